"""The egress process: every outside connection, and the only process with keys."""
