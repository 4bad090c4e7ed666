"""The questions to a person that are not over: pure; :mod:`actors.user_state` owns one of these.

    storing    being written down; nobody is shown it yet
    open       the person may answer, once; or it expires
    settling   decided, and being written down; then the asker is told

A question is decided here and nowhere else, so two answers, or an answer and the end of the time,
cannot both count.
"""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from actors.asking import SHOWN_CHARS, ApprovalWanted, Kind, Resolution
from actors.service import TurnSpec
from jail.wire.schema import ApprovalAsk, Failure, HttpBody, HttpFetch, ProviderChat

Answered = Callable[[Resolution | None, Failure | None], None]
"""How it was decided, or None where it is not open (any more); a failure where that was not stored."""

_REFUSALS: dict[Resolution, str] = {
    "refused": "the person who was asked refused",
    "expired": "a person was asked, and nobody answered in time",
    "ended": "the turn is over",
}


_UNDER_WAY = 4


@dataclass(frozen=True, slots=True)
class ApprovalRules:
    """The bounds: an answer may take ``expires_s``, all answers of one turn ``held_s`` (in seconds).

    ``most`` of one user's may be open at once.
    """

    expires_s: float = 600.0
    most: int = 16
    held_s: float = 3_600.0


@dataclass(slots=True)
class Question:
    """A request of the worker's that waits for a person. ``request`` is its id on the wire."""

    wanted: ApprovalWanted
    spec: TurnSpec
    request: int
    verb: str
    body: Any
    deadline_s: float
    state: Literal["storing", "open", "settling"] = "storing"
    outcome: Resolution | None = None
    dropped: bool = False  # its turn is over: nobody waits for the outcome
    answered: Answered | None = None

    @property
    def id(self) -> str:
        """The approval's."""
        return self.wanted.approval

    def refusal(self) -> Failure:
        """What the worker is told where it was not allowed."""
        assert self.outcome is not None
        return Failure("refused", _REFUSALS[self.outcome])


@dataclass(slots=True)
class Approvals:
    """A user's questions.

    Args:
        rules: the bounds.
        new_id: names a question; unguessable.
        unix_s: the time of day (Unix, in seconds).
    """

    rules: ApprovalRules = ApprovalRules()
    new_id: Callable[[], str] = lambda: f"approval_{secrets.token_hex(8)}"
    unix_s: Callable[[], float] = time.time
    _questions: dict[str, Question] = field(default_factory=dict)

    def ask(
        self, spec: TurnSpec, request: int, verb: str, body: Any, held_s: float, now_s: float
    ) -> Question | Failure:
        """Take a question in; a failure where one may not be asked.

        ``held_s`` is how long the turn has waited for people already.
        """
        rules = self.rules
        # asked and taken back faster than it is written down
        if len(self._questions) >= _UNDER_WAY * rules.most:
            return Failure("overloaded", "too much is asked at once", 1)
        if sum(q.state != "settling" for q in self._questions.values()) >= rules.most:
            return Failure("refused", f"{rules.most} approvals wait for their person already")
        left_s = min(rules.expires_s, rules.held_s - held_s)
        if left_s <= 0:
            return Failure("refused", f"this turn has waited {rules.held_s:g} s for its person already")
        kind, name, step, arguments = _asked(spec, verb, body)
        wanted = ApprovalWanted(
            self.new_id(),
            kind,
            name,
            arguments[:SHOWN_CHARS],
            int(self.unix_s() + left_s),
            step,
            len(arguments) > SHOWN_CHARS,
        )
        question = Question(wanted, spec, request, verb, body, now_s + left_s)
        self._questions[question.id] = question
        return question

    def get(self, approval: str) -> Question | None:
        """A question that is not over."""
        return self._questions.get(approval)

    def kept(self, approval: str) -> Question | None:
        """It was written down: the question, if it is now open."""
        question = self._questions.get(approval)
        if question is None or question.state != "storing":
            return None
        question.state = "open"
        return question

    def decide(self, question: Question, outcome: Resolution) -> bool:
        """Decide a question that is not decided yet; whether it was."""
        if question.state == "settling":
            return False
        question.state, question.outcome = "settling", outcome
        return True

    def forget(self, approval: str) -> Question | None:
        """It is over; returns it, the first time."""
        return self._questions.pop(approval, None)

    def of_turn(self, turn: str) -> list[Question]:
        """The questions of a turn that somebody waits for."""
        return [q for q in self._questions.values() if q.spec.turn == turn and not q.dropped]

    def late(self, now_s: float) -> list[Question]:
        """Undecided ones that are past their time."""
        return [q for q in self._questions.values() if q.state != "settling" and now_s >= q.deadline_s]

    def next_deadline_s(self) -> float | None:
        """When the next expires."""
        return min((q.deadline_s for q in self._questions.values() if q.state != "settling"), default=None)


def _asked(spec: TurnSpec, verb: str, body: Any) -> tuple[Kind, str, int, str]:
    """What a person is shown of a request: its kind, name, step and arguments."""
    if isinstance(body, ApprovalAsk):
        return "tool", body.tool, body.step, body.arguments
    if isinstance(body, ProviderChat):
        # the whole history would tell nobody anything
        shown: Any = {
            "provider": spec.agent.provider,
            "model": spec.agent.model,
            "messages": len(body.messages),
            "last": body.messages[-1].text,
        }
    else:
        shown = {
            key: value for key, value in msgspec.to_builtins(body).items() if key not in ("verb", "turn")
        }
        if isinstance(body, HttpFetch) and body.body:
            shown["body"] = _readable(body.body)
        elif isinstance(body, HttpBody):
            shown["data"] = _readable(body.data)
    return "verb", verb, 0, msgspec.json.encode(shown).decode()


def _readable(data: bytes) -> str:
    """Bytes as a person can judge them; base64 would tell nobody anything."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return f"({len(data)} bytes that are no text)"
