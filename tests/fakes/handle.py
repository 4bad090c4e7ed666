"""A handle with a name and no key, for the floors that must not care."""

from dataclasses import dataclass


@dataclass(frozen=True)
class FakeHandle:
    """Implements actors.service.UserHandle."""

    user: str
