"""Which messages of a session the model sees, by a stated rule. Pure.

The rule: the agent's prompt and the client's system messages stay, in front (when
they take more than half of the window, each is cut to its share); then the oldest
whole exchanges (a user message and all that answers it) go first until the rest is within
``context_bytes`` and ``context_messages``. The last exchange stays: when it alone is too much, its
oldest rounds go (an assistant's tool calls never without their results), then its tool results are
cut in the middle, and at last its user message, which then cites what is attached to it without
showing it.
"""

from typing import NamedTuple

from msgspec.structs import replace

from jail.peer.texts import cut_middle, size
from jail.wire.schema import TEXT_SHOWN_BYTES, Attachment, Limits, Message

_MESSAGE_BYTES = 64  # what a message costs besides its text: names, ids, framing
_CALL_BYTES = 96
_ATTACHMENT_BYTES = 160
_PICTURE_BYTES = 6_000  # a picture takes some 1,500 tokens of a model's window, whatever its file's size
# a frame may hold 32,768 values (jail.wire.frames); a message is 5 of them, a tool call 4
_MAX_VALUES = 24_000
_LEAST_RESULT_BYTES = 256
_NO_RESULT = "[No result was recorded: the turn was cut short.]"

Unit = list[Message]
"""Messages that stay or go together: a user message, or an assistant's with its tool results."""


class Window(NamedTuple):
    """What the model gets, and how many messages of the session it does not get."""

    messages: list[Message]
    dropped: int
    cut: bool


def cost_bytes(message: Message) -> int:
    """About what a message takes in a frame."""
    calls = sum(_CALL_BYTES + size(call.name) + size(call.arguments) for call in message.tool_calls)
    picture = message.picture
    named = _ATTACHMENT_BYTES + size(picture.path) + size(picture.caption) if picture is not None else 0
    files = named + sum(map(_attachment_bytes, message.attachments))
    return _MESSAGE_BYTES + size(message.text) + calls + files


def _attachment_bytes(attachment: Attachment) -> int:
    """What a model will be shown of it, in its place rather than in this frame."""
    is_text = attachment.media_type == "text/plain"
    shown = min(attachment.size_bytes, TEXT_SHOWN_BYTES) if is_text else _PICTURE_BYTES
    return _ATTACHMENT_BYTES + size(attachment.path) + shown


def fit(prompt: str, history: list[Message], limits: Limits) -> Window:
    """Choose the messages for one request to the model.

    Args:
        prompt: the agent's own system message, "" for none.
        history: the session, oldest first.
        limits: ``context_bytes`` and ``context_messages`` are used.
    """
    system, dropped_system = _fit_system(prompt, history, limits)
    exchanges = _exchanges(repair([m for m in history if m.role != "system"]))
    bytes_left = limits.context_bytes - sum(map(cost_bytes, system))
    messages_left = limits.context_messages - len(system)
    values_left = _MAX_VALUES - 5 * len(system)
    costs = [_cost(exchange) for exchange in exchanges]
    total = [sum(column) for column in zip(*costs, strict=True)] if costs else [0, 0, 0]
    first = 0
    room = (bytes_left, messages_left, values_left)
    while first < len(exchanges) - 1 and _exceeds(total, room):
        total = [have - gone for have, gone in zip(total, costs[first], strict=True)]
        first += 1
    dropped = dropped_system + sum(len(unit) for e in exchanges[:first] for unit in e)
    kept = exchanges[first:]
    cut = False
    if kept and _exceeds(total, room):
        kept[-1], gone, cut = _fit_last(kept[-1], room)
        dropped += gone
    return Window(system + [m for e in kept for unit in e for m in unit], dropped, cut)


def repair(messages: list[Message]) -> list[Message]:
    """The same messages with every tool call answered and no answer without its call.

    A crash between two writes leaves either; model servers refuse both.
    """
    repaired: list[Message] = []
    open_ids: list[str] = []
    for message in messages:
        if message.role == "tool":
            if message.tool_call_id in open_ids:
                open_ids.remove(message.tool_call_id)
                repaired.append(message)
            continue
        repaired += [Message("tool", _NO_RESULT, tool_call_id=lost) for lost in open_ids]
        open_ids = [call.id for call in message.tool_calls]
        repaired.append(message)
    repaired += [Message("tool", _NO_RESULT, tool_call_id=lost) for lost in open_ids]
    return repaired


def _fit_system(prompt: str, history: list[Message], limits: Limits) -> tuple[list[Message], int]:
    """System messages stay, as long as they leave half of the window to the conversation."""
    client = [m for m in history if m.role == "system"]
    kept = client[-max(1, limits.context_messages // 2 - 1) :]
    system = [Message("system", prompt), *kept] if prompt else kept
    budget = limits.context_bytes // 2
    if sum(map(cost_bytes, system)) > budget:
        share = max(0, budget // len(system) - _MESSAGE_BYTES)
        system = [replace(message, text=cut_middle(message.text, share)) for message in system]
    return system, len(client) - len(kept)


def _exchanges(messages: list[Message]) -> list[list[Unit]]:
    exchanges: list[list[Unit]] = []
    for message in messages:
        if message.role == "user" or not exchanges:
            exchanges.append([[message]])
        elif message.role == "tool":
            exchanges[-1][-1].append(message)
        else:
            exchanges[-1].append([message])
    return exchanges


def _cost(exchange: list[Unit]) -> list[int]:
    messages = [message for unit in exchange for message in unit]
    values = sum(
        5 + 5 * len(m.tool_calls) + 6 * (len(m.attachments) + (m.picture is not None)) for m in messages
    )
    return [sum(map(cost_bytes, messages)), len(messages), values]


def _exceeds(total: list[int], room: tuple[int, int, int]) -> bool:
    return any(have > limit for have, limit in zip(total, room, strict=True))


def _fit_last(exchange: list[Unit], room: tuple[int, int, int]) -> tuple[list[Unit], int, bool]:
    """The last exchange within ``room``: what is left, messages gone, whether text was cut."""
    head = exchange[:1] if exchange[0][0].role == "user" else []
    rounds = exchange[len(head) :]
    gone = 0
    while len(rounds) > 1 and _exceeds(_cost(head + rounds), room):
        gone += len(rounds.pop(0))
    if not _exceeds(_cost(head + rounds), room):
        return head + rounds, gone, False
    spent = _cost(head)[0]
    if rounds:
        spent = min(spent, room[0] // 2)
        rounds = [_cut_results(rounds[0], room[0] - spent)]
        if _unit_bytes(rounds[0]) > room[0] - spent or _exceeds(_cost(rounds), room):
            gone += len(rounds.pop())
    if head:
        limit = room[0] - sum(map(_unit_bytes, rounds)) - _MESSAGE_BYTES
        head = [[replace(head[0][0], text=cut_middle(head[0][0].text, max(0, limit)), attachments=())]]
    return head + rounds, gone, True


def _unit_bytes(unit: Unit) -> int:
    """Bytes of a unit."""
    return sum(map(cost_bytes, unit))


def _cut_results(unit: Unit, limit_bytes: int) -> Unit:
    results = [m for m in unit if m.role == "tool"]
    if not results:
        return unit
    fixed = _unit_bytes(unit) - sum(size(m.text) for m in results)
    share = max(_LEAST_RESULT_BYTES, (limit_bytes - fixed) // len(results))
    return [replace(m, text=cut_middle(m.text, share)) if m.role == "tool" else m for m in unit]
