"""An outlet of a chat that keeps what comes."""

from jail.wire.schema import ToolCall, Usage


class Kept:
    """Implements core.egress.providers.Counter; ``said`` is pieces with their kind, in order."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []
        self.calls: list[ToolCall] = []
        self.used = Usage()

    async def text(self, text: str) -> None:
        self.said.append(("text", text))

    async def reasoning(self, text: str) -> None:
        self.said.append(("reasoning", text))

    async def call(self, call: ToolCall) -> None:
        self.calls.append(call)

    def usage(self, usage: Usage) -> None:
        self.used = usage

    def joined(self, kind: str = "text") -> str:
        """All pieces of one kind."""
        return "".join(text for was, text in self.said if was == kind)

    @property
    def everything(self) -> str:
        """All pieces of any kind, then the calls' names."""
        return "".join([*(text for _, text in self.said), *(call.name for call in self.calls)])
