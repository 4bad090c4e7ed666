"""The table as an OpenAPI 3.1 document: https://spec.openapis.org/oas/v3.1.0"""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import msgspec

from core.hub.openapi.route import JSON, Answer, Api, Guard, Parameter, Route, Schema

_REASONS = {
    101: "a WebSocket from here on", 200: "done", 201: "made", 202: "begun",
    204: "nothing more comes", 206: "one part",
    400: "the request will not do; `param` says which field", 401: "no token, or not a valid one",
    403: "not allowed", 404: "not there", 408: "the body did not come in time",
    409: "something else is in the way", 410: "the log does not have that place",
    413: "too large", 415: "compressed", 416: "no such part",
    426: "ask for an upgrade to a WebSocket",
    429: "too much at once; `Retry-After` says when to try again", 499: "the turn was cancelled",
    500: "the server failed", 502: "a model's server or the jail failed",
    503: "not just now; `Retry-After` says when to try again", 504: "it took too long",
    507: "the disk is nearly full",
}  # fmt: skip
_SECURITY: list[dict[str, list[str]]] = [{"bearer": []}, {"apiKey": []}]
# that of an operation, where it is not everybody's else
_OTHERWISE: dict[Guard, list[dict[str, list[str]]]] = {"open": [], "as configured": [{}, *_SECURITY]}
_RETRY = {"Retry-After": {"description": "in seconds", "schema": {"type": "integer"}}}


@cache
def encoded_document(api: Api) -> bytes:
    """The document as JSON, indented, a line feed at its end."""
    return msgspec.json.format(msgspec.json.encode(document(api), order="sorted"), indent=1) + b"\n"


def document(api: Api) -> dict[str, Any]:
    """The document that describes an API."""
    kinds = list(dict.fromkeys(kind for route in api.routes for kind in _kinds(route)))
    found, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    schemas = dict(zip(kinds, found, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in api.routes:
        paths.setdefault(route.path, {})[route.method] = _operation(api, route, schemas)
    made: dict[str, Any] = _portable({
        "openapi": "3.1.0",
        "info": {
            "title": api.title,
            "version": "1",
            "description": api.text,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": _SECURITY,
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": api.tokens},
                "apiKey": {
                    "type": "apiKey", "in": "header", "name": "x-api-key", "description": "the same",
                },
            },
        },
    })  # fmt: skip
    return made


def _kinds(route: Route) -> Iterable[type]:
    if route.errors:
        yield route.error
    shapes: list[Schema] = [shape for answer in route.answers.values() for _, shape in answer]
    if route.body:
        shapes.append(route.body[1])
    for shape in shapes:
        if isinstance(shape, Mapping):
            yield from shape.get("oneOf", ())
        else:
            yield shape


def _operation(api: Api, route: Route, schemas: Mapping[Any, Any]) -> dict[str, Any]:
    answers: dict[int, Answer] = dict.fromkeys(sorted(route.errors), ((JSON, route.error),))
    answers |= route.answers
    if route.method == "head":
        answers = dict.fromkeys(answers, ())
    operation: dict[str, Any] = {
        "summary": route.text,
        "operationId": _id(api, route),
        "responses": {
            str(status): _answer(status, answer, schemas) for status, answer in sorted(answers.items())
        },
    }
    if route.parameters:
        operation["parameters"] = [_parameter(parameter) for parameter in route.parameters]
    if route.body:
        kind, shape = route.body
        content = {"schema": _schema(shape, schemas)}
        if route.example is not None:
            content["example"] = route.example
        operation["requestBody"] = {"required": route.body_required, "content": {kind: content}}
    if route.guard in _OTHERWISE:
        operation["security"] = _OTHERWISE[route.guard]
    return operation


def _answer(status: int, answer: Answer, schemas: Mapping[Any, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {"description": _REASONS[status]}
    if status in (429, 503):
        made["headers"] = _RETRY
    if answer:
        made["content"] = {kind: {"schema": _schema(shape, schemas)} for kind, shape in answer}
    return made


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "in": parameter.where,
        "name": parameter.name,
        "description": parameter.text,
        "required": parameter.required,
        "schema": parameter.schema,
    }


def _schema(shape: Schema, schemas: Mapping[Any, Any]) -> Any:
    if not isinstance(shape, Mapping):
        return schemas[shape]
    if "oneOf" in shape:
        return {"oneOf": [schemas[kind] for kind in shape["oneOf"]]}
    return shape


def _id(api: Api, route: Route) -> str:
    words = re.findall(r"[a-z]+", route.path.removeprefix(api.prefix))
    return "_".join([route.method, *words])


def _portable(value: Any) -> Any:
    r"""The same without Python's ``\Z``, for which JSON Schema's regular expressions have ``$``."""
    if isinstance(value, Mapping):
        return {
            key: inner.replace(r"\Z", "$")
            if key == "pattern" and isinstance(inner, str)
            else _portable(inner)
            for key, inner in value.items()
        }
    return [_portable(inner) for inner in value] if isinstance(value, list | tuple) else value
