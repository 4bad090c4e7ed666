"""A handle with a name and no key, for the floors that must not care."""

from dataclasses import dataclass, field

from core.vault.standing import Standing


@dataclass(frozen=True)
class FakeHandle:
    """Implements actors.service.UserHandle."""

    user: str
    standing: Standing = field(default_factory=Standing, compare=False)
