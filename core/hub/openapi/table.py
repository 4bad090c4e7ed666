"""The routes of the public API: what each takes and answers. A test holds it against the application."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from core.config import EgressRule
from core.hub.agents import AgentFile
from core.hub.approvals import ApprovalAnswer
from core.hub.connecting import ConnectBody
from core.hub.credentials import CredentialBody
from core.hub.live.requests import TurnAsked
from core.hub.messages_request import MessagesRequest
from core.hub.openapi import answers
from core.hub.request import ChatRequest
from core.hub.sessions import Fork, Rename

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

# what can befall every request of a user's, and what else one whose jail or storage is asked
_COMMON = (400, 401, 403, 408, 413, 415, 429, 500, 503)
_JAIL = (404, 409, 502, 504)

Schema = type | Mapping[str, Any]
Answer = tuple[tuple[str, Schema], ...]


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

    ``answers`` is what comes of it by status; ``errors`` the statuses that have an error's shape.
    """

    method: str
    path: str
    text: str
    answers: Mapping[int, Answer]
    errors: tuple[int, ...] = _COMMON
    parameters: tuple[Parameter, ...] = ()
    body: tuple[str, Schema] | None = None
    example: Any = None
    anybody: bool = False


def _json(shape: Schema) -> Answer:
    return ((JSON, shape),)


def _number(least: int, most: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": least, "maximum": most}


def _one_of(*values: str) -> dict[str, Any]:
    return {"type": "string", "enum": list(values)}


_SESSION_HEADER = Parameter(
    "header", "X-Certosa-Session", "a session that is kept: it supplies the history",
    {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"},
)  # fmt: skip
_EVENTS_HEADER = Parameter("header", "X-Certosa-Events", "the turn's other events", _one_of("on", "off"))
_PATH = Parameter("query", "path", "relative to the home", TEXT, required=True)
_PLACE = Parameter("query", "path", "relative to the home; the home itself where left out")
_RECURSIVE = Parameter("query", "recursive", "a directory and all in it", _one_of("true", "false", "1", "0"))
_ID = Parameter("path", "id", "the session's id", TEXT, required=True)
_APPROVAL = Parameter("path", "id", "the approval's id", TEXT, required=True)
_NAME = Parameter("path", "name", "the agent's name", TEXT, required=True)
_CREDENTIAL = Parameter("path", "name", "the credential's name", TEXT, required=True)
_RULE = Parameter("path", "rule", "the rule's id", TEXT, required=True)
_PAGE: Answer = (("text/html", TEXT),)
_CALLBACK = (
    Parameter("path", "provider", "as [oauth.NAME]", TEXT, required=True),
    Parameter("query", "state", "as it was sent there", TEXT, required=True),
    Parameter("query", "code", "what becomes a grant"),
    Parameter("query", "error", "why there is none"),
)
_TURN = Parameter("path", "turn", "the turn's id", TEXT, required=True)
_VERSION = Parameter("header", "anthropic-version", "with it the answer has Anthropic's shape")
_RANGE = Parameter("header", "Range", "one part, `bytes=FIRST-LAST`")
_AFTER = Parameter("query", "after", "`next` of the answer before")
_AFTER_SEQ = Parameter("query", "after", "`next` of the answer before", _number(0, 2**53))
_AFTER_EVENT = Parameter("query", "after", "the last event's id that the client has", _number(0, 2**53))
_LAST_EVENT = Parameter("header", "Last-Event-ID", "the same; goes before `after`", _number(0, 2**53))
_UNTIL_IDLE = Parameter("query", "until", "end when no turn runs", _one_of("idle"))
_SCHEMA = Parameter("path", "name", "as events.json", TEXT, required=True)
_WORDS = Parameter(
    "query", "q", "text to look for", {"type": "string", "minLength": 1, "maxLength": 200}, required=True
)
_FORMAT = Parameter("query", "format", "json where left out", _one_of("json", "markdown"))
_CHAT = {"model": "assistant", "messages": [{"role": "user", "content": "help"}]}
_ENDED = (404, 409, 499, 502, 504, 507)
_DOWNLOAD: dict[int, Answer] = {200: ((BYTES, BINARY),), 206: ((BYTES, BINARY),)}


def _day(name: str) -> Parameter:
    return Parameter("query", name, "YYYY-MM-DD", {"type": "string", "format": "date"})


def _limit(most: int) -> Parameter:
    return Parameter("query", "limit", "at most so many", _number(1, most))


ROUTES = (
    Route(
        "post", "/v1/chat/completions", "Answer a conversation, as OpenAI's clients ask for it",
        {200: ((JSON, answers.ChatCompletion), (EVENTS, EVENT))}, (*_COMMON, *_ENDED),
        (_SESSION_HEADER, _EVENTS_HEADER), (JSON, ChatRequest), _CHAT,
    ),
    Route(
        "post", "/v1/messages", "Answer a conversation, as Anthropic's clients ask for it",
        {200: ((JSON, answers.MessagesMessage), (EVENTS, EVENT))}, (*_COMMON, *_ENDED),
        (_SESSION_HEADER,), (JSON, MessagesRequest), {**_CHAT, "max_tokens": 100},
    ),
    Route(
        "post", "/v1/turns/{turn}/cancel", "End a running turn early",
        {202: _json(answers.CancelledTurn)}, (*_COMMON, 404), (_TURN,),
    ),
    Route(
        "get", "/v1/models", "List the user's agents as models, in the shape of either API",
        {200: _json({"oneOf": [answers.Models, answers.MessagesModels]})}, _COMMON, (_VERSION,),
    ),
    Route(
        "get", "/v1/models/{name}", "Show an agent as a model",
        {200: _json({"oneOf": [answers.Model, answers.MessagesModel]})}, (*_COMMON, 404), (_NAME, _VERSION),
    ),
    Route(
        "get", "/v1/files", "List a directory, or describe a file, of the home",
        {200: _json({"oneOf": [answers.Directory, answers.File]})}, (*_COMMON, *_JAIL), (_PLACE,),
    ),
    Route(
        "delete", "/v1/files", "Delete a file, or a directory and all in it",
        {200: _json(answers.DeletedFile)}, (*_COMMON, *_JAIL), (_PATH, _RECURSIVE),
    ),
    Route(
        "get", "/v1/files/content", "Download a file, or one part of it",
        _DOWNLOAD, (*_COMMON, *_JAIL, 416), (_PATH, _RANGE),
    ),
    Route(
        "head", "/v1/files/content", "What a download would answer", {200: (), 206: ()},
        (*_COMMON, *_JAIL, 416), (_PATH, _RANGE),
    ),
    Route(
        "put", "/v1/files/content", "Upload a file: 201 where it is new",
        {200: _json(answers.File), 201: _json(answers.File)}, (*_COMMON, *_JAIL), (_PATH,), (BYTES, BINARY),
    ),
    Route(
        "get", "/v1/sessions", "List sessions, the latest first",
        {200: _json(answers.Sessions)}, _COMMON, (_limit(1_000), _AFTER),
    ),
    Route(
        "get", "/v1/sessions/search", "Find text in messages and titles",
        {200: _json(answers.Hits)}, _COMMON, (_WORDS, _limit(200), _AFTER),
    ),
    Route(
        "get", "/v1/sessions/{id}", "Show a session and some of its messages",
        {200: _json(answers.SessionPage)}, (*_COMMON, 404), (_ID, _limit(1_000), _AFTER_SEQ),
    ),
    Route(
        "patch", "/v1/sessions/{id}", "Give a session another title",
        {200: _json(answers.Session)}, (*_COMMON, 404), (_ID,), (JSON, Rename),
    ),
    Route(
        "delete", "/v1/sessions/{id}", "Delete a session",
        {200: _json(answers.DeletedSession)}, (*_COMMON, 404, 409), (_ID,),
    ),
    Route(
        "get", "/v1/sessions/{id}/export", "All of a session as a file",
        {200: ((JSON, answers.Anything), (MARKDOWN, TEXT))}, (*_COMMON, 404), (_ID, _FORMAT),
    ),
    Route(
        "post", "/v1/sessions/{id}/fork", "Begin a session with a copy of another's first messages",
        {201: _json(answers.Session)}, (*_COMMON, 404, 409), (_ID,), (JSON, Fork),
    ),
    Route(
        "post", "/v1/sessions/{id}/turns", "Say something in a session: the turn runs on by itself",
        {200: _json(answers.StartedTurn), 202: _json(answers.StartedTurn)}, (*_COMMON, 404, 409, 507),
        (_ID,), (JSON, TurnAsked), {"text": "help"},
    ),
    Route(
        "get", "/v1/sessions/{id}/events", "Watch a session: its events, each with its id",
        {200: ((EVENTS, EVENT),), 204: ()}, (*_COMMON, 404, 410),
        (_ID, _AFTER_EVENT, _LAST_EVENT, _UNTIL_IDLE),
    ),
    Route(
        "get", "/v1/ws", "Upgrade to the WebSocket; /v1/schema has what is said there",
        {101: ()}, (*_COMMON, 426),
    ),
    Route(
        "get", "/v1/schema", "Where the JSON Schemas of events and requests are",
        {200: _json(answers.Anything)}, (500,), anybody=True,
    ),
    Route(
        "get", "/v1/schema/{name}", "One of them",
        {200: ((SCHEMA, answers.Anything),)}, (404, 500), (_SCHEMA,), anybody=True,
    ),
    Route(
        "get", "/v1/usage", "What the user used by day and model, and what today's limits leave",
        {200: _json(answers.Anything)}, _COMMON, (_day("day"), _day("since"), _day("until")),
    ),
    Route("get", "/v1/credentials", "List credentials, never their values", {200: _json(answers.Anything)}),
    Route(
        "put", "/v1/credentials/{name}", "Keep a credential: 201 where it is new",
        {200: _json(answers.Anything), 201: _json(answers.Anything)}, _COMMON,
        (_CREDENTIAL,), (JSON, CredentialBody),
    ),
    Route(
        "delete", "/v1/credentials/{name}", "Forget a credential",
        {200: _json(answers.Anything)}, (*_COMMON, 404), (_CREDENTIAL,),
    ),
    Route(
        "post", "/v1/credentials/{name}/connect", "Begin to connect an account elsewhere by OAuth 2",
        {201: _json(answers.Anything)}, _COMMON, (_CREDENTIAL,), (JSON, ConnectBody),
    ),
    Route(
        "get", "/v1/credentials/{name}/connect", "How far it is",
        {200: _json(answers.Anything)}, (*_COMMON, 404), (_CREDENTIAL,),
    ),
    Route("get", "/v1/oauth", "What there is to connect with", {200: _json(answers.Anything)}),
    Route(
        "get", "/v1/oauth/{provider}/callback", "Where an authorization server sends a browser back to",
        {200: _PAGE, 400: (*_PAGE, (JSON, answers.Error)), 503: _PAGE}, (500,), _CALLBACK, anybody=True,
    ),
    Route(
        "post", "/v1/oauth/{provider}/callback", "The person at that browser agrees",
        {200: _PAGE, 400: (*_PAGE, (JSON, answers.Error)), 503: _PAGE}, (500,), _CALLBACK, anybody=True,
    ),
    Route(
        "get", "/v1/credential-key", "What values may be sealed to", {200: _json(answers.Anything)}
    ),
    Route(
        "get", "/v1/egress/rules", "List the user's rules for requests outside, and the operator's for them",
        {200: _json(answers.EgressRules)},
    ),
    Route(
        "post", "/v1/egress/rules", "Let the user's agent send requests: 200 where it may already",
        {200: _json(answers.AddedEgressRule), 201: _json(answers.AddedEgressRule)}, _COMMON,
        (), (JSON, EgressRule), {"host": "api.example.com", "methods": ["GET"]},
    ),
    Route(
        "delete", "/v1/egress/rules/{rule}", "Remove a rule",
        {200: _json(answers.RemovedEgressRule)}, (*_COMMON, 404), (_RULE,),
    ),
    Route(
        "get", "/v1/approvals", "List what waits for the user's approval",
        {200: _json(answers.Approvals)}, _COMMON,
    ),
    Route(
        "post", "/v1/approvals/{id}", "Allow or refuse what waits for an approval",
        {200: _json(answers.Approval)}, (*_COMMON, 404, 409), (_APPROVAL,), (JSON, ApprovalAnswer),
    ),
    Route("get", "/v1/agents", "List the user's agents", {200: _json(answers.AgentRows)}),
    Route(
        "get", "/v1/agents/{name}", "Show an agent",
        {200: _json(answers.ShownAgent)}, (*_COMMON, 404), (_NAME,),
    ),
    Route(
        "put", "/v1/agents/{name}", "Store an agent: 201 where it is new",
        {200: _json(answers.ShownAgent), 201: _json(answers.ShownAgent)}, (*_COMMON, 404),
        (_NAME,), (JSON, AgentFile),
    ),
    Route(
        "delete", "/v1/agents/{name}", "Delete an agent",
        {200: _json(answers.DeletedAgent)}, (*_COMMON, 404), (_NAME,),
    ),
    Route(
        "get", "/healthz", "Whether the process answers",
        {200: _json(answers.Health)}, (500,), anybody=True,
    ),
    Route(
        "get", "/readyz", "Whether turns can run",
        {200: _json(answers.Readiness), 503: _json(answers.Readiness)}, (500,), anybody=True,
    ),
    Route("get", "/v1/openapi.json", "This document", {200: _json(answers.Anything)}, (500,), anybody=True),
)  # fmt: skip
