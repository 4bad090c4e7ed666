"""What every user used and may use, by model and day: reserved before a request, settled after it.

Runs in the egress process, where requests go out; see docs/usage-and-audit.md.
"""
