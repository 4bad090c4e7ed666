"""What the middle floor reports: core turns it into log lines and metrics."""

from typing import Any, Literal, Protocol


class Observer(Protocol):
    """Called from any thread; never blocks, never raises."""

    def note(self, event: str, **values: Any) -> None:
        """Something ordinary happened."""
        ...

    def warn(self, event: str, **values: Any) -> None:
        """Something an operator should know happened."""
        ...

    def handled(self, actor: str, seconds: float, mailbox: int) -> None:
        """An actor of this kind handled a message; that many were waiting behind it."""
        ...

    def frame(self, direction: Literal["in", "out"], kind: str, size: int) -> None:
        """A frame came from a jail or went to it; ``kind`` by jail.wire.frames.kind_name."""
        ...

    def jail_started(self, start_s: float) -> None:
        """A jail's worker said HELLO that long after it was asked for."""
        ...

    def jail_ended(self, reason: str) -> None:
        """A jail ended: idle, drain, fault, cancel, crash, ..."""
        ...

    def peer_faulted(self, reason: str) -> None:
        """A jail broke the protocol; ``reason`` is a jail.wire.errors.FaultReason."""
        ...

    def restarted(self, actor: str) -> None:
        """A supervisor restarted a child of this kind."""
        ...


class Silent:
    """An observer that looks away, for tests and tools."""

    def note(self, event: str, **values: Any) -> None:
        """Look away."""

    def warn(self, event: str, **values: Any) -> None:
        """Look away."""

    def handled(self, actor: str, seconds: float, mailbox: int) -> None:
        """Look away."""

    def frame(self, direction: Literal["in", "out"], kind: str, size: int) -> None:
        """Look away."""

    def jail_started(self, start_s: float) -> None:
        """Look away."""

    def jail_ended(self, reason: str) -> None:
        """Look away."""

    def peer_faulted(self, reason: str) -> None:
        """Look away."""

    def restarted(self, actor: str) -> None:
        """Look away."""
