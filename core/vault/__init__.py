"""Keys: the master key, users' keys and tokens. Runs in the egress process, except the handle."""
