"""The routes of the public API: what each takes and answers. A test holds it against the application."""

from core.config import EgressRule
from core.hub.agents import AgentFile
from core.hub.approvals import ApprovalAnswer
from core.hub.connecting import ConnectBody
from core.hub.credentials import CredentialBody
from core.hub.live.requests import TurnAsked
from core.hub.messages_request import MessagesRequest
from core.hub.openapi import answers
from core.hub.openapi.route import (
    BINARY,
    BYTES,
    DAYS,
    EVENT,
    EVENTS,
    HEALTH,
    JSON,
    MARKDOWN,
    SCHEMA,
    TEXT,
    Answer,
    Api,
    Parameter,
    Route,
    json_of,
    limit,
    number,
    one_of,
)
from core.hub.request import ChatRequest
from core.hub.sessions import Fork, Rename

OPENAPI_PATH = "/v1/openapi.json"

# what can befall every request of a user's, and what else one whose jail or storage is asked
_COMMON = (400, 401, 403, 408, 413, 415, 429, 500, 503)
_JAIL = (404, 409, 502, 504)

_SESSION_HEADER = Parameter(
    "header", "X-Certosa-Session", "a session that is kept: it supplies the history",
    {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"},
)  # fmt: skip
_EVENTS_HEADER = Parameter("header", "X-Certosa-Events", "the turn's other events", one_of("on", "off"))
_PATH = Parameter("query", "path", "relative to the home", TEXT, required=True)
_PLACE = Parameter("query", "path", "relative to the home; the home itself where left out")
_RECURSIVE = Parameter("query", "recursive", "a directory and all in it", one_of("true", "false", "1", "0"))
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
_AFTER_SEQ = Parameter("query", "after", "`next` of the answer before", number(0, 2**53))
_AFTER_EVENT = Parameter("query", "after", "the last event's id that the client has", number(0, 2**53))
_LAST_EVENT = Parameter("header", "Last-Event-ID", "the same; goes before `after`", number(0, 2**53))
_UNTIL_IDLE = Parameter("query", "until", "end when no turn runs", one_of("idle"))
_SCHEMA = Parameter("path", "name", "as events.json", TEXT, required=True)
_WORDS = Parameter(
    "query", "q", "text to look for", {"type": "string", "minLength": 1, "maxLength": 200}, required=True
)
_FORMAT = Parameter("query", "format", "json where left out", one_of("json", "markdown"))
_CHAT = {"model": "assistant", "messages": [{"role": "user", "content": "help"}]}
_ENDED = (404, 409, 499, 502, 504, 507)
_DOWNLOAD: dict[int, Answer] = {200: ((BYTES, BINARY),), 206: ((BYTES, BINARY),)}


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
        error=answers.MessagesError,
    ),
    Route(
        "post", "/v1/turns/{turn}/cancel", "End a running turn early",
        {202: json_of(answers.CancelledTurn)}, (*_COMMON, 404), (_TURN,),
    ),
    Route(
        "get", "/v1/models", "List the user's agents as models, in the shape of either API",
        {200: json_of({"oneOf": [answers.Models, answers.MessagesModels]})}, _COMMON, (_VERSION,),
    ),
    Route(
        "get", "/v1/models/{name}", "Show an agent as a model",
        {200: json_of({"oneOf": [answers.Model, answers.MessagesModel]})}, (*_COMMON, 404), (_NAME, _VERSION),
    ),
    Route(
        "get", "/v1/files", "List a directory, or describe a file, of the home",
        {200: json_of({"oneOf": [answers.Directory, answers.File]})}, (*_COMMON, *_JAIL), (_PLACE,),
    ),
    Route(
        "delete", "/v1/files", "Delete a file, or a directory and all in it",
        {200: json_of(answers.DeletedFile)}, (*_COMMON, *_JAIL), (_PATH, _RECURSIVE),
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
        {200: json_of(answers.File), 201: json_of(answers.File)}, (*_COMMON, *_JAIL),
        (_PATH,), (BYTES, BINARY),
    ),
    Route(
        "get", "/v1/sessions", "List sessions, the latest first",
        {200: json_of(answers.Sessions)}, _COMMON, (limit(1_000), _AFTER),
    ),
    Route(
        "get", "/v1/sessions/search", "Find text in messages and titles",
        {200: json_of(answers.Hits)}, _COMMON, (_WORDS, limit(200), _AFTER),
    ),
    Route(
        "get", "/v1/sessions/{id}", "Show a session and some of its messages",
        {200: json_of(answers.SessionPage)}, (*_COMMON, 404), (_ID, limit(1_000), _AFTER_SEQ),
    ),
    Route(
        "patch", "/v1/sessions/{id}", "Give a session another title",
        {200: json_of(answers.Session)}, (*_COMMON, 404), (_ID,), (JSON, Rename),
    ),
    Route(
        "delete", "/v1/sessions/{id}", "Delete a session",
        {200: json_of(answers.DeletedSession)}, (*_COMMON, 404, 409), (_ID,),
    ),
    Route(
        "get", "/v1/sessions/{id}/export", "All of a session as a file",
        {200: ((JSON, answers.Anything), (MARKDOWN, TEXT))}, (*_COMMON, 404), (_ID, _FORMAT),
    ),
    Route(
        "post", "/v1/sessions/{id}/fork", "Begin a session with a copy of another's first messages",
        {201: json_of(answers.Session)}, (*_COMMON, 404, 409), (_ID,), (JSON, Fork),
    ),
    Route(
        "post", "/v1/sessions/{id}/turns", "Say something in a session: the turn runs on by itself",
        {200: json_of(answers.StartedTurn), 202: json_of(answers.StartedTurn)}, (*_COMMON, 404, 409, 507),
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
        {200: json_of(answers.Anything)}, (500,), guard="open",
    ),
    Route(
        "get", "/v1/schema/{name}", "One of them",
        {200: ((SCHEMA, answers.Anything),)}, (404, 500), (_SCHEMA,), guard="open",
    ),
    Route(
        "get", "/v1/usage", "What the user used by day and model, and what today's limits leave",
        {200: json_of(answers.UsersUsage)}, _COMMON, DAYS,
    ),
    Route(
        "get", "/v1/credentials", "List credentials, never their values",
        {200: json_of(answers.Anything)}, _COMMON,
    ),
    Route(
        "put", "/v1/credentials/{name}", "Keep a credential: 201 where it is new",
        {200: json_of(answers.Anything), 201: json_of(answers.Anything)}, _COMMON,
        (_CREDENTIAL,), (JSON, CredentialBody),
    ),
    Route(
        "delete", "/v1/credentials/{name}", "Forget a credential",
        {200: json_of(answers.Anything)}, (*_COMMON, 404), (_CREDENTIAL,),
    ),
    Route(
        "post", "/v1/credentials/{name}/connect", "Begin to connect an account elsewhere by OAuth 2",
        {201: json_of(answers.Anything)}, _COMMON, (_CREDENTIAL,), (JSON, ConnectBody),
    ),
    Route(
        "get", "/v1/credentials/{name}/connect", "How far it is",
        {200: json_of(answers.Anything)}, (*_COMMON, 404), (_CREDENTIAL,),
    ),
    Route(
        "get", "/v1/oauth", "What there is to connect with", {200: json_of(answers.Anything)}, _COMMON,
    ),
    Route(
        "get", "/v1/oauth/{provider}/callback", "Where an authorization server sends a browser back to",
        {200: _PAGE, 400: (*_PAGE, (JSON, answers.Error)), 503: _PAGE}, (500,), _CALLBACK, guard="open",
    ),
    Route(
        "post", "/v1/oauth/{provider}/callback", "The person at that browser agrees",
        {200: _PAGE, 400: (*_PAGE, (JSON, answers.Error)), 503: _PAGE}, (500,), _CALLBACK, guard="open",
    ),
    Route(
        "get", "/v1/credential-key", "What values may be sealed to",
        {200: json_of(answers.Anything)}, _COMMON,
    ),
    Route(
        "get", "/v1/egress/rules", "List the user's rules for requests outside, and the operator's for them",
        {200: json_of(answers.EgressRules)}, _COMMON,
    ),
    Route(
        "post", "/v1/egress/rules", "Let the user's agent send requests: 200 where it may already",
        {200: json_of(answers.AddedEgressRule), 201: json_of(answers.AddedEgressRule)}, _COMMON,
        (), (JSON, EgressRule), {"host": "api.example.com", "methods": ["GET"]},
    ),
    Route(
        "delete", "/v1/egress/rules/{rule}", "Remove a rule",
        {200: json_of(answers.RemovedEgressRule)}, (*_COMMON, 404), (_RULE,),
    ),
    Route(
        "get", "/v1/approvals", "List what waits for the user's approval",
        {200: json_of(answers.Approvals)}, _COMMON,
    ),
    Route(
        "post", "/v1/approvals/{id}", "Allow or refuse what waits for an approval",
        {200: json_of(answers.Approval)}, (*_COMMON, 404, 409), (_APPROVAL,), (JSON, ApprovalAnswer),
    ),
    Route("get", "/v1/agents", "List the user's agents", {200: json_of(answers.AgentRows)}, _COMMON),
    Route(
        "get", "/v1/agents/{name}", "Show an agent",
        {200: json_of(answers.ShownAgent)}, (*_COMMON, 404), (_NAME,),
    ),
    Route(
        "put", "/v1/agents/{name}", "Store an agent: 201 where it is new",
        {200: json_of(answers.ShownAgent), 201: json_of(answers.ShownAgent)}, (*_COMMON, 404),
        (_NAME,), (JSON, AgentFile),
    ),
    Route(
        "delete", "/v1/agents/{name}", "Delete an agent",
        {200: json_of(answers.DeletedAgent)}, (*_COMMON, 404), (_NAME,),
    ),
    *HEALTH,
    Route(
        "get", OPENAPI_PATH, "This document", {200: json_of(answers.Anything)}, (500,), guard="open",
    ),
)  # fmt: skip

PUBLIC = Api(
    "Certosa", "The HTTP API of a Certosa server; docs/api.md says more.", OPENAPI_PATH, "/v1",
    "a user's token (`cts_...`)", ROUTES,
)  # fmt: skip
