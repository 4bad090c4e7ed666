"""Bodies a peer could send: right ones made from the schema itself, and wrong ones from those."""

from typing import Any

import msgspec
from msgspec import inspect

from tests.fuzz.choices import Choices

TURNS = tuple("turn_" + digit * 16 for digit in "1234")
CANARY = "SQUEAMISH"
"""In every text a peer writes: it must not come out in a fault's words."""
# by the letters a pattern begins with; a pattern that is not here fails the first run
_SHAPED = {
    "^[A-Za-z0-9]": ("a", "run_command", "a/b:c.d-e"),
    "^turn_": TURNS,
    "^[a-z][a-z0-9_]": ("something_happened", "x"),
    "^[0-9a-f-]{0,": ("", "0-1f-a"),
    "^(req_": ("", "req_" + "1" * 24),
    "^[0-9a-f]{16}": ("1" * 16, "2" * 16),
    "^(?!/)": ("plots/a b.png", "é", "..a/b../c"),
    r"^[^\x00": ("", "a plot", "é\U0001f600"),
}
_JUNK: tuple[Any, ...] = (
    None, True, 0, -1, 1, 2**53 + 1, 2**64 - 1, -(2**63), 0.5, 1e308, "", CANARY, CANARY + "'`\n\x00",
    "turn_" + "1" * 16 + "\n", b"", CANARY.encode(), [], {}, [[]], {"": {}}, {CANARY: CANARY},
    {"verb": "ping"}, {"type": "delta"}, ["delta"], "\U0001f600" * 9,
)  # fmt: skip
_LONG = (129, 2_001, 70_000, 900_001)
_kinds: dict[Any, inspect.Type] = {}


def valid(choices: Choices, kind: Any) -> Any:
    """A body of ``kind`` as builtin objects, every choice within the schema."""
    if kind not in _kinds:
        _kinds[kind] = inspect.type_info(kind)
    return _value(choices, _kinds[kind])


def _value(choices: Choices, kind: inspect.Type) -> Any:
    match kind:
        case inspect.Metadata(type=inner):
            return _value(choices, inner)
        case inspect.StructType():
            return _struct(choices, kind)
        case inspect.UnionType(types=types):
            return _value(choices, choices.one(types))
        case inspect.LiteralType(values=values):
            return choices.one(values)
        case inspect.VarTupleType(item_type=item, min_length=least, max_length=most):
            count = min((least or 0) + choices.below(4), most if most is not None else 64)
            return [_value(choices, item) for _ in range(count)]
        case inspect.StrType():
            return _text(choices, kind)
        case inspect.BytesType(max_length=most):
            return choices.one((b"", CANARY.encode(), CANARY.encode() * choices.byte()))[:most]
        case inspect.IntType(ge=low, le=high):
            return choices.one((low or 0, high or 9, min((low or 0) + 1, high or 9)))
        case inspect.FloatType(ge=low, le=high):
            return choices.one((low or 0.0, high or 1.0, int(low or 0)))
        case inspect.BoolType():
            return choices.chance(128)
        case inspect.NoneType():
            return None
    raise NotImplementedError(f"the schema has a type the fuzzer cannot make: {kind}")


def _struct(choices: Choices, kind: inspect.StructType) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if kind.tag_field is not None:
        made[kind.tag_field] = kind.tag
    for field in kind.fields:
        if field.required or choices.chance(128):
            made[field.encode_name] = _value(choices, field.type)
    return made


def _text(choices: Choices, kind: inspect.StrType) -> str:
    if kind.pattern is not None:
        return choices.one(next(v for k, v in _SHAPED.items() if kind.pattern.startswith(k)))
    text = choices.one(("", CANARY, "{}", "é\U0001f600" * 8, CANARY * choices.byte()))
    return text[: kind.max_length].ljust(kind.min_length or 0, "x")


def mutated(choices: Choices, raw: Any) -> Any:
    """``raw`` with something somewhere that is probably wrong."""
    while isinstance(raw, list | dict) and raw and choices.chance(160):
        inner = _copied(raw)
        at = choices.one(list(inner) if isinstance(inner, dict) else range(len(inner)))
        inner[at] = mutated(choices, inner[at])
        return inner
    match choices.below(6):
        case 0:
            return choices.one(_JUNK)
        case 1 if isinstance(raw, dict):
            return {**raw, choices.one((CANARY, "turn", "verb", "type", "")): choices.one(_JUNK)}
        case 2 if isinstance(raw, dict) and raw:
            gone = choices.one(list(raw))
            return {key: value for key, value in raw.items() if key != gone}
        case 3 if isinstance(raw, list):
            return (raw or [choices.one(_JUNK)]) * choices.one((2, 65, 257, 1_024))
        case 4:
            return CANARY[:1] * choices.one(_LONG)
        case 5:
            return [raw]
    return choices.one(_JUNK)


def _copied(raw: Any) -> Any:
    return dict(raw) if isinstance(raw, dict) else list(raw)


def plain(body: msgspec.Struct) -> Any:
    """A struct of ours as the peer would send it."""
    return msgspec.to_builtins(body)
