"""The attacks of `certosa doctor`, a module a kind. Standard library alone."""
