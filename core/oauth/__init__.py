"""OAuth 2 in the egress process: grants are got, kept in the vault and renewed; docs/credentials.md.

Of our own rather than a library's: what we need of the protocol is three forms, one hash and one JSON
answer. All around it (limits, whose token it is, one renewal at a time, what is written when) would
be ours in any case, and the libraries put a server's words and our secrets into their exceptions.
"""
