"""Transcripts, event logs and the turn journal: one sealed database a user."""
