"""The routes of the administrators' listener. A test holds it against the application."""

from core.audit.records import KINDS
from core.audit.verify import Verdict
from core.config import Config, EgressRule
from core.hub.admin import MadeToken
from core.hub.admin_requests import USER_NAMES, NewToken, NewUser, TrialAsked
from core.hub.openapi import admin_answers, answers
from core.hub.openapi.route import (
    DAYS,
    HEALTH,
    JSON,
    TEXT,
    Answer,
    Api,
    Parameter,
    Route,
    Schema,
    json_of,
    limit,
    one_of,
)
from core.hub.usage import MOST_LINES, LimitChanges

_PREFIX = "/admin/v1"
_PATH = f"{_PREFIX}/openapi.json"

# what can befall every request of an administrator's, and what else one with a body
_COMMON = (400, 401, 429, 500, 503)
_BODY = (408, 413, 415)

_NAME = Parameter(
    "path", "name", "the user's name", {"type": "string", **USER_NAMES}, required=True,
)  # fmt: skip
_TOKEN = Parameter("path", "token_id", "the token's id, which is no secret", TEXT, required=True)
_PROVIDER = Parameter("path", "name", "as [providers.NAME]", TEXT, required=True)
_RULE = Parameter("path", "rule", "the rule's id", TEXT, required=True)
_TIME = {"anyOf": [{"type": "string", "format": form} for form in ("date", "date-time")]}
_AUDIT = (
    Parameter("query", "user", "whose affair it was"),
    Parameter("query", "kind", "what happened", one_of(*sorted(KINDS))),
    Parameter("query", "since", "the first day, or a time (of UTC where it has no zone)", _TIME),
    Parameter("query", "until", "the last, or a time", _TIME),
    limit(MOST_LINES),
)
_METRICS: Answer = (("text/plain", TEXT), ("application/openmetrics-text", TEXT))


def _get(path: str, text: str, shape: Schema, *parameters: Parameter) -> Route:
    """A look at something; at something of a name, which may not be there."""
    errors = (*_COMMON, 404) if "{" in path else _COMMON
    return Route("get", _PREFIX + path, text, {200: json_of(shape)}, errors, parameters)


def _act(path: str, text: str, shape: Schema, *parameters: Parameter) -> Route:
    """An act that needs no body; on something of a name, which may not be there."""
    errors = (*_COMMON, 404) if "{" in path else _COMMON
    return Route("post", _PREFIX + path, text, {200: json_of(shape)}, errors, parameters)


def _end(path: str, text: str, shape: Schema, *parameters: Parameter) -> Route:
    """Something is deleted."""
    return Route("delete", _PREFIX + path, text, {200: json_of(shape)}, (*_COMMON, 404), parameters)


ROUTES = (
    _get("/health", "What an operator looks at first", admin_answers.ServerHealth),
    _get("/status", "What runs", admin_answers.ServerStatus),
    _get("/config", "Every setting in use; keys stand elsewhere", Config),
    _get("/pool", "Users' jails, and the bounds on them", admin_answers.Pool),
    _act("/pool/drain", "Take no new jail, and let all go as they become idle", admin_answers.Draining),
    _act("/pool/open", "Take jails again", admin_answers.Draining),
    _act(
        "/pool/{name}/evict", "Give a user's jail up as soon as nothing runs in it",
        admin_answers.EvictedJail, _NAME,
    ),
    _act("/pool/{name}/kill", "End a user's jail now; its turns fail", admin_answers.KilledJail, _NAME),
    _act(
        "/pool/{name}/release", "Start a user's jail again that is held for dying at once",
        admin_answers.ReleasedJail, _NAME,
    ),
    _get("/users", "List users", admin_answers.AllUsers),
    Route(
        "post", f"{_PREFIX}/users", "Add a user", {201: json_of(admin_answers.AnyUser)},
        (*_COMMON, *_BODY, 409), (), (JSON, NewUser), {"name": "alice"},
    ),
    Route(
        "delete", f"{_PREFIX}/users/{{name}}", "Delete a user with everything they have stored",
        {200: json_of(admin_answers.DeletedUser)}, (*_COMMON, 404, 409), (_NAME,),
    ),
    _act(
        "/users/{name}/disable", "Let a user's tokens be none, and end what runs of theirs",
        admin_answers.DisabledUser, _NAME,
    ),
    _act("/users/{name}/enable", "Let a user in again", admin_answers.EnabledUser, _NAME),
    _get("/users/{name}/tokens", "List a user's tokens", admin_answers.AllTokens, _NAME),
    Route(
        "post", f"{_PREFIX}/users/{{name}}/tokens", "Make a token of a user's, which is shown this once",
        {201: json_of(MadeToken)}, (*_COMMON, *_BODY, 404), (_NAME,), (JSON, NewToken), {"label": "laptop"},
        body_required=False,
    ),
    _get(
        "/users/{name}/sessions", "What a user's sessions take on the disk, and how many there are",
        admin_answers.StoredInDetail, _NAME,
    ),
    _get(
        "/users/{name}/usage", "What a user used by day and model, and how they stand today",
        answers.UsersUsage, _NAME, *DAYS,
    ),
    _get("/users/{name}/limits", "What a user may use in a day", answers.Standing, _NAME),
    Route(
        "patch", f"{_PREFIX}/users/{{name}}/limits", "Give a user limits of their own",
        {200: json_of(answers.Standing)}, (*_COMMON, *_BODY, 404), (_NAME,),
        (JSON, LimitChanges), {"hard": {"tokens": 100_000}},
    ),
    _get(
        "/users/{name}/egress/rules", "List a user's rules for requests outside, and the operator's for them",
        answers.EgressRules, _NAME,
    ),
    Route(
        "post", f"{_PREFIX}/users/{{name}}/egress/rules",
        "Let a user's agent send requests: 200 where it may already",
        {200: json_of(answers.AddedEgressRule), 201: json_of(answers.AddedEgressRule)},
        (*_COMMON, *_BODY, 404), (_NAME,),
        (JSON, EgressRule), {"host": "api.example.com", "methods": ["GET"]},
    ),
    _end("/users/{name}/egress/rules/{rule}", "Remove a rule", answers.RemovedEgressRule, _NAME, _RULE),
    _get("/sessions", "What each user's sessions take on the disk", admin_answers.AllStored),
    _get("/tokens", "List all users' tokens", admin_answers.AllTokens),
    _end(
        "/tokens/{token_id}", "Revoke a token, a user's or an administrator's",
        admin_answers.RevokedToken, _TOKEN,
    ),
    _get("/admin-tokens", "List administrators' tokens", admin_answers.AllTokens),
    Route(
        "post", f"{_PREFIX}/admin-tokens", "Make a token of an administrator's, which is shown this once",
        {201: json_of(MadeToken)}, (*_COMMON, *_BODY), (), (JSON, NewToken), {"label": "laptop"},
        body_required=False,
    ),
    _get(
        "/providers", "The providers of the running server, and how each is", admin_answers.Providers
    ),
    Route(
        "post", f"{_PREFIX}/providers/{{name}}/test", "Ask a provider for its models, and for a few words",
        {200: json_of(admin_answers.TriedProvider)}, (*_COMMON, *_BODY, 404),
        (_PROVIDER,), (JSON, TrialAsked), {"model": ""}, body_required=False,
    ),
    _get("/usage", "What everybody used, by day and model", answers.UsageReport, *DAYS),
    _get("/audit", "The latest lines of the audit log that match", admin_answers.AuditLines, *_AUDIT),
    _act("/audit/verify", "Check that the whole audit log is as it was written", Verdict),
    _get("/openapi.json", "This document", answers.Anything),
    Route(
        "get", "/metrics", "Metrics of all trusted processes, for Prometheus",
        {200: _METRICS}, _COMMON, guard="as configured",
    ),
    *HEALTH,
)  # fmt: skip

ADMIN = Api(
    "Certosa, for administrators",
    "What the operators' listener of a Certosa server answers; docs/operating.md says more.",
    _PATH, _PREFIX, "an administrator's token (`cta_...`)", ROUTES,
)  # fmt: skip
