"""The top floor: the trusted services, and the composition root that puts them together."""
