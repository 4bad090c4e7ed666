"""What a model provider is, to the streams that run it."""

from typing import Literal, Protocol

from core.egress.messages import ChatStart
from core.errors import CoreError
from jail.wire.schema import ChatEnd, ErrorCode, Failure, ToolCall, Usage

Again = Literal["no", "retry", "elsewhere"]
"""What helps: nothing (the request itself is wrong), the same once more, or another provider only."""


Spent = Literal["nothing", "perhaps"]
"""Whether a failed try may have cost something: it never reached a model or was turned away, or it may."""


class ProviderError(CoreError):
    """A chat failed; ``failure`` says how, for programs and for people.

    Args:
        code: for programs.
        message: what happened and what to do.
        retry_after_s: when the other end wants to be asked again.
        again: what may be tried as long as nothing of the answer has come.
        spent: whether the ledger has to count what was sent.
    """

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        retry_after_s: int | None = None,
        again: Again = "no",
        spent: Spent = "perhaps",
    ) -> None:
        super().__init__(message)
        self.spent: Spent = spent
        self.failure = Failure(code, message[:2_000], retry_after_s)
        self.again: Again = again


class UpstreamSaid(ProviderError):
    """The stream carried an error of the upstream's; ``raw`` is it, to be sanitised."""

    def __init__(self, raw: bytes, code: ErrorCode = "upstream", again: Again = "retry") -> None:
        super().__init__(code, "the answer carried an error", again=again)
        self.raw = raw


class Outlet(Protocol):
    """Where an answer goes, in order. Each call waits while the other end takes no more."""

    async def text(self, text: str) -> None:
        """A piece of the answer, of any length."""
        ...

    async def reasoning(self, text: str) -> None:
        """A piece of the model's reasoning, of any length."""
        ...

    async def call(self, call: ToolCall) -> None:
        """A whole tool call."""
        ...


class Counter(Outlet, Protocol):
    """An outlet that also wants to know what the upstream says was used, however the answer ends."""

    def usage(self, usage: Usage) -> None:
        """What it said so far."""
        ...


class Provider(Protocol):
    """Answers chats. Cancelling a chat stops whatever it does at once."""

    async def chat(self, ask: ChatStart, out: Outlet) -> ChatEnd:
        """Answer ``ask`` through ``out``. Raises ProviderError."""
        ...

    async def close(self) -> None:
        """Let go of connections; no chat runs any more."""
        ...


class Watched:
    """An outlet that remembers whether anything has come; from then on nothing is tried again."""

    def __init__(self, out: Outlet) -> None:
        self._out = out
        self.began = False

    async def text(self, text: str) -> None:
        """Pass it on."""
        self.began = True
        await self._out.text(text)

    async def reasoning(self, text: str) -> None:
        """Pass it on."""
        self.began = True
        await self._out.reasoning(text)

    async def call(self, call: ToolCall) -> None:
        """Pass it on."""
        self.began = True
        await self._out.call(call)
