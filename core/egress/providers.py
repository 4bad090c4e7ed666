"""What a model provider is, to the streams that run it."""

from typing import Protocol

from core.egress.messages import ChatStart
from core.errors import CoreError
from jail.wire.schema import ChatEnd, ErrorCode, Failure, ToolCall


class ProviderError(CoreError):
    """A chat failed; ``failure`` says how, for programs and for people."""

    def __init__(self, code: ErrorCode, message: str, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.failure = Failure(code, message[:2_000], retry_after_s)


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


class Provider(Protocol):
    """Answers chats. Cancelling a chat stops whatever it does at once."""

    async def chat(self, ask: ChatStart, out: Outlet) -> ChatEnd:
        """Answer ``ask`` through ``out``. Raises ProviderError."""
        ...

    async def close(self) -> None:
        """Let go of connections; no chat runs any more."""
        ...
