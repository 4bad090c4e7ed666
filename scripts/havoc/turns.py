"""What was asked for and what came of it, as the people of the test saw it. No judgement here."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

Json = dict[str, Any]
Kind = Literal["talk", "look", "act", "write", "hog"]

ENDS = ("done", "error")
"""Types of a turn's last event."""
TOKENS = 40
_RATE = 25
_WRITTEN = 20_000
_HOG_BYTES = 512 << 20


@dataclass
class Turn:
    """A turn that somebody asked for.

    Args:
        session: its own: nothing else happens there.
        key: what makes asking twice one turn.
        text: what was said.
        mark: what its tool leaves behind, "" for a turn without.
    """

    kind: Kind
    session: str
    key: str
    text: str
    agent: str
    mark: str = ""
    id: str = ""
    refused: str = ""
    asked_often: int = 0
    events: list[Json] = field(default_factory=list)
    cuts: int = 0

    @property
    def last_id(self) -> int:
        """The newest event that its person was given."""
        return int(self.events[-1]["id"]) if self.events else 0

    @property
    def last(self) -> Json | None:
        """Its last event, once there is one."""
        return self.events[-1] if self.events and self.events[-1]["type"] in ENDS else None

    @property
    def is_over(self) -> bool:
        """Whether its person has seen the end."""
        return self.last is not None

    @property
    def ending(self) -> str:
        """How it ended, in a word: answered, resumed (and answered), closed, refused or lost."""
        if self.refused:
            return "refused"
        if self.last is None:
            return "lost"
        if self.last["type"] == "error":
            return "closed"
        return "resumed" if any(event["type"] == "resumed" for event in self.events) else "answered"


def written(mark: str) -> str:
    """What a turn of kind ``write`` writes: its mark again and again, of one length always."""
    return (f"{mark} " * _WRITTEN)[:_WRITTEN]


def wishes(person: str, rng: random.Random) -> Iterator[Turn]:
    """What a person asks for, one turn after the other, without an end."""
    number = 0
    while True:
        number += 1
        mark = f"{person}-{number:05d}"
        kind: Kind = rng.choices(("talk", "look", "act", "write"), (4, 2, 3, 2))[0]
        yield make(kind, mark)


def make(kind: Kind, mark: str) -> Turn:
    """A turn of a kind; ``mark`` names it, and is used once."""
    match kind:
        case "talk":
            return Turn(kind, mark, mark, f"tokens={TOKENS} rate={_RATE}", "load")
        case "look":
            return Turn(kind, mark, mark, "list files", "assistant")
        case "act":
            command = f"run: echo {mark} >> journal; echo begun; sleep 0.5"
            return Turn(kind, mark, mark, command, "assistant", mark)
        case "write":
            return Turn(kind, mark, mark, f"write big.txt: {written(mark)}", "assistant", mark)
        case "hog":
            program = f"python: kept = b'x' * {_HOG_BYTES}; print(len(kept))"
            return Turn(kind, mark, mark, program, "assistant")
