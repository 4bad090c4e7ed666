"""Which jails are started, kept warm and given up."""
