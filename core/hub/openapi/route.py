"""What a table of routes is made of: a route, its parameters, and the shapes of what goes in and out."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from core.hub.openapi.answers import Error, Health, Readiness

JSON, BYTES, EVENTS, MARKDOWN, SCHEMA = (
    "application/json", "application/octet-stream", "text/event-stream", "text/markdown",
    "application/schema+json",
)  # fmt: skip
TEXT: dict[str, Any] = {"type": "string"}
# one event of a stream, as those who check streams by their schema take it; all of it is text on the wire
EVENT: dict[str, Any] = {
    "properties": {name: {"type": "string"} for name in ("id", "event", "data")},
    "description": "Server-sent events; the data of each is JSON.",
}
BINARY: dict[str, Any] = {"type": "string", "contentMediaType": BYTES}

Schema = type | Mapping[str, Any]
Answer = tuple[tuple[str, Schema], ...]
Guard = Literal["token", "as configured", "open"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of the path, the query or a header."""

    where: str
    name: str
    text: str
    schema: Mapping[str, Any] = field(default_factory=lambda: TEXT)
    required: bool = False


@dataclass(frozen=True, slots=True)
class Route:
    """One method at one path.

    ``answers`` is what comes of it by status; ``errors`` the statuses that have an error's shape, which is
    ``error``. ``guard`` says whether it wants a
    token of those who are let in.
    """

    method: str
    path: str
    text: str
    answers: Mapping[int, Answer]
    errors: tuple[int, ...]
    parameters: tuple[Parameter, ...] = ()
    body: tuple[str, Schema] | None = None
    example: Any = None
    body_required: bool = True
    guard: Guard = "token"
    error: type = Error


@dataclass(frozen=True, slots=True, eq=False)
class Api:
    """What one listener has, and where its description is served.

    ``prefix`` is left out of operations' names; ``tokens`` says whose are let in.
    """

    title: str
    text: str
    path: str
    prefix: str
    tokens: str
    routes: tuple[Route, ...]


def json_of(shape: Schema) -> Answer:
    """An answer of JSON."""
    return ((JSON, shape),)


def number(least: int, most: int) -> dict[str, Any]:
    """The schema of a whole number."""
    return {"type": "integer", "minimum": least, "maximum": most}


def one_of(*values: str) -> dict[str, Any]:
    """The schema of a word of these."""
    return {"type": "string", "enum": list(values)}


def limit(most: int) -> Parameter:
    """How many are asked for."""
    return Parameter("query", "limit", "at most so many", number(1, most))


_DATE = {"type": "string", "format": "date"}
DAYS = (
    Parameter("query", "day", "one day, in place of both others; today where nothing is said", _DATE),
    Parameter("query", "since", "the first day", _DATE),
    Parameter("query", "until", "the last", _DATE),
)
"""Which days are asked for."""

HEALTH = (
    Route(
        "get", "/healthz", "Whether the process answers",
        {200: json_of(Health)}, (500,), guard="open",
    ),
    Route(
        "get", "/readyz", "Whether turns can run",
        {200: json_of(Readiness), 503: json_of(Readiness)}, (500,), guard="open",
    ),
)  # fmt: skip
"""What both listeners say to everybody."""
