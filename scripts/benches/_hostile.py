"""Programs for jails that do what their neighbours are to be spared, while ``go`` lies in their home.

Each runs in the worker's place (tests/fakes/hostile_jail.py), takes a turn and never ends it.
"""

_LOOP = """
import select
from jail.wire.zmtp import Zmtp as _Zmtp
a = begin()
sock.setblocking(False)

def go():
    return os.path.exists("/home/user/go")

def push(data):
    # send all of it, and read meanwhile: who does not read is ended for that
    rest = memoryview(data)
    while rest:
        readable, writable, _ = select.select([sock], [sock], [], 1.0)
        if readable and not sock.recv(1 << 20):
            os._exit(0)
        if writable:
            rest = rest[sock.send(rest):]

def idle():
    readable, _, _ = select.select([sock], [], [], 0.01)
    if readable and not sock.recv(1 << 20):
        os._exit(0)

"""

_REQUESTS = """
number = 0
def batch():
    global number
    out = bytearray()
    for number in range(number + 1, number + 201):
        body = {"verb": "log", "turn": a.body.turn, "level": "info", "event": "x", "detail": ""}
        out += zmtp.encode(msgpack.packb([1, 2, number, body]))
    return bytes(out)
while True:
    push(batch()) if go() else idle()
"""

_COMMANDS = """
pongs = b"\\x04\\x05\\x04PONG" * 5_000
while True:
    push(pongs) if go() else idle()
"""

_HEAVY = """
number = 0
def heavy():
    # some 30,000 values in a frame: the most that core looks at before it says no
    global number
    number += 1
    calls = tuple(ToolCall("c%d" % n, "n", "{}") for n in range(64))
    body = to_wire(ProviderChat(a.body.turn, (Message("assistant", "", calls),) * 70))
    return zmtp.encode(msgpack.packb([1, 2, number, body]))
while True:
    push(heavy()) if go() else idle()
"""

_BURN = """
while True:
    if not go():
        idle()
        continue
    for _ in range(100_000):
        pass
"""

PROGRAMS = {
    "requests": _LOOP + _REQUESTS,
    "commands": _LOOP + _COMMANDS,
    "heavy": _LOOP + _HEAVY,
    "burn": _LOOP + _BURN,
}
"""Small requests that are refused one by one; commands of the transport, that nobody answers; large frames
full of small values; and the control, a loop that has no business with anybody."""
