"""What every worker does first, done by the template: so that it need not be done in memory of its own.

Types are prepared at their first use, and code is rewritten as it runs; either, in a worker, would be
a copy of a page. Nothing is kept, no thread is started, no descriptor stays open.
"""

import asyncio

import msgspec

from jail.host.starting import TO_BUILDER, BuildJail, Entered
from jail.peer import worker
from jail.wire.connection import Connection
from jail.wire.schema import Agent, ChatDelta, Done, Message, Ping, ProviderChat, TurnStart

_TURN = "turn_0000000000000000"
_AGENT = Agent("assistant", "", "builtin", "assistant", ("run_command",))


def rehearse_building() -> None:
    """Go through what a builder does with its request."""
    request = BuildJail("/bin/true", b"args", b"filter", 1, 1, ((0, 1),), 1, ("/bin/true", "-c"))
    TO_BUILDER.decode(msgspec.msgpack.encode(request))
    msgspec.msgpack.encode(Entered())


def rehearse() -> None:
    """Go once through building, handshake, a PING and a turn's first frames."""
    rehearse_building()
    assert worker.run is not None
    loop = asyncio.new_event_loop()
    loop.run_until_complete(_wait_for_nothing())
    loop.close()
    core, peer = Connection("core", 0.0, 60.0), Connection("worker", 0.0, 60.0)
    core.receive(peer.hello("rehearsal"))
    for answer in core.take_answers():
        peer.receive(answer)
    ping, frame = core.request(Ping())
    peer.receive(frame)
    core.receive(peer.reply(ping, Done()))
    _, frame = core.request(TurnStart(_TURN, _AGENT))
    peer.receive(frame)
    chat, frame = peer.request(ProviderChat(_TURN, (Message("user", "hello"),)))
    core.receive(frame)
    peer.receive(core.item(chat, ChatDelta("hello")))


async def _wait_for_nothing() -> None:
    event = asyncio.Event()
    event.set()
    async with asyncio.timeout(1.0):
        await event.wait()
