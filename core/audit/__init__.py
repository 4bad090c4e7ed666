"""Who did what: an append-only, chained log that the egress process keeps; docs/usage-and-audit.md."""
