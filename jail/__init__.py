"""The lowest floor: the protocol, the jail from outside and the worker inside it."""
