"""Backups: all of a data directory in one sealed file, made while the server runs, and put back."""
