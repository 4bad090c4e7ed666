"""Jails that run a program of the test's in the worker's place: ``peer.py`` in the user's home.

``BEFORE`` is for :func:`tests.fakes.real_server.real_server`: a jail whose home has no ``peer.py``
runs the real worker, so that a neighbour, and the control, are real.
"""

_CHOOSE = """
import os, sys
if os.path.exists("/home/user/peer.py"):
    exec(compile(open("/home/user/peer.py").read(), "peer.py", "exec"))
else:
    os.execv(sys.executable, [sys.executable, "-I", "-S", "/certosa/lib/jail/peer/start.py"])
"""

BEFORE = f"""
import dataclasses
import core.serve
core.serve._attack_first = lambda config, _: config.start
plain = core.serve.spawner_config
def with_peer(*given):
    config = plain(*given)
    return dataclasses.replace(config, command=(config.system.python, "-I", "-S", "-c", {_CHOOSE!r}))
core.serve.spawner_config = with_peer
"""

PEER = """
import array, os, socket, struct, sys, time
sys.path.insert(0, "/certosa/lib")
import msgpack
from jail.wire.connection import *
from jail.wire.frames import *
from jail.wire.schema import *
from jail.wire.zmtp import Zmtp

listener = socket.socket(fileno=3)
sock, _ = listener.accept()
zmtp = Zmtp(MAX_FRAME_BYTES)
connection = Connection("worker", 0, 1e9)
events = []

def pump():
    data = sock.recv(65_536)
    if not data:
        os._exit(0)
    for payload in zmtp.feed(data):
        events.extend(connection.receive(payload))
    sock.sendall(zmtp.outgoing())

def until(kind):
    while not (found := [e for e in events if isinstance(e, kind)]):
        pump()
    events.remove(found[0])
    return found[0]

def say(payload):
    sock.sendall(zmtp.encode(payload))

def raw(*values):
    say(msgpack.packb(list(values)))

def greet():
    sock.sendall(zmtp.outgoing())
    while not zmtp.ready:
        pump()

def begin():
    # the handshake and the turn.start that follows
    greet()
    say(connection.hello("hostile"))
    return until(Asked)

def end(asked, text=""):
    # an orderly end of the turn
    if text:
        say(connection.item(asked.id, Delta(text)))
    say(connection.reply(asked.id, TurnEnd("stop")))
    stay()

def stay():
    while sock.recv(65_536):
        pass
    os._exit(0)
"""
"""What every such program begins with."""

_LOG = "{'verb': 'log', 'turn': a.body.turn, 'level': 'info', 'event': 'x', 'detail': ''}"
_ITEM = "zmtp.encode(msgpack.packb([1, 3, a.id, {'type': 'delta', 'text': 'x'}]))"

_PICTURE = """
p = {"type": "picture", "step": 1, "path": "a.png", "media_type": "image/png", "size": 9, "caption": ""}
"""

FAULTS = {
    "oversize-announced": ("begin(); sock.sendall(struct.pack('>BQ', 2, 1 << 40)); stay()", "oversize"),
    "oversize-sent": (
        "begin(); sock.sendall(struct.pack('>BQ', 2, 2 << 20) + bytes(2 << 20)); stay()", "oversize",
    ),
    "depth": ("begin(); say(b'\\x91' * 100_000); stay()", "encoding"),
    "empty-maps": (
        (
        "begin(); head = b'\\x94\\x01\\x02\\x01\\xdd' + struct.pack('>I', 1_000_000)\n"
        "say(head + b'\\x80' * 1_000_000); stay()"
        ),
        "encoding",
    ),
    "many-arrays-of-maps": (
        (
        "begin(); thousand = b'\\xdc\\x03\\xe8'\n"
        "say(b'\\x94\\x01\\x02\\x01' + thousand + (thousand + b'\\x80' * 1000) * 1000); stay()"
        ),
        "encoding",
    ),
    "not-msgpack": ("begin(); say(b'\\xc1' * 50); stay()", "encoding"),
    "trailing-bytes": ("begin(); say(msgpack.packb([1, 2, 1, {}]) + b'\\x00'); stay()", "encoding"),
    "nan": ("begin(); raw(1, 6, 1, float('nan')); stay()", "encoding"),
    "extension": ("begin(); raw(1, 2, 1, msgpack.ExtType(5, b'x')); stay()", "encoding"),
    "duplicate-key": (
        "begin(); say(b'\\x94\\x01\\x02\\x01\\x82\\xa1a\\x01\\xa1a\\x02'); stay()", "encoding",
    ),
    "bool-for-int": ("begin(); raw(True, 2, 1, {}); stay()", "version"),
    "not-zmtp": ("sock.sendall(b'GET / HTTP/1.1\\r\\n\\r\\n'); stay()", "greeting"),
    "multipart": ("begin(); sock.sendall(b'\\x01\\x05hello'); stay()", "multipart"),
    "reserved-flag": ("begin(); sock.sendall(b'\\x80\\x05hello'); stay()", "command"),
    "other-version": ("greet(); raw(2, 0, 0, {'software': 'x'}); stay()", "version"),
    "no-hello": ("greet(); raw(1, 2, 1, {'verb': 'session.load', 'turn': 'x'}); stay()", "order"),
    "two-hellos": ("begin(); raw(1, 0, 0, {'software': 'x'}); stay()", "order"),
    "replayed": (
        "a = begin(); _, data = connection.request(SessionLoad(a.body.turn)); say(data); say(data); stay()",
        "replay",
    ),
    "unknown-verb": (
        "a = begin(); raw(1, 2, 1, {'verb': 'vault.open', 'turn': a.body.turn}); stay()", "schema",
    ),
    "unknown-field": (
        "a = begin(); raw(1, 2, 1, {'verb': 'session.load', 'turn': a.body.turn, 'user': 'bob'}); stay()",
        "schema",
    ),
    "answer-to-nothing": ("begin(); raw(1, 4, 77, {}); stay()", "order"),
    "credit-overrun": (f"a = begin(); sock.sendall({_ITEM} * 400); stay()", "credit"),
    "credit-for-ever": (
        # in one piece, so that the request is still open when the credit comes
        (
            "a = begin(); _, data = connection.request(SessionLoad(a.body.turn))\n"
            "credit = zmtp.encode(msgpack.packb([1, 6, 1, 64]))\n"
            "sock.sendall(zmtp.encode(data) + credit * 50); stay()"
        ),
        "credit",
    ),
    "picture-out-of-the-home": (
        _PICTURE + "a = begin(); raw(1, 3, a.id, p | {'path': '../../bob/home/a.png'}); stay()", "schema",
    ),
    "picture-with-a-line-break": (
        _PICTURE + "a = begin(); raw(1, 3, a.id, p | {'path': 'a\\nb'}); stay()", "schema",
    ),
    "picture-that-is-a-page": (
        _PICTURE + "a = begin(); raw(1, 3, a.id, p | {'media_type': 'text/html'}); stay()", "schema",
    ),
    "picture-of-no-step": (_PICTURE + "a = begin(); raw(1, 3, a.id, p | {'step': 0}); stay()", "schema"),
    "picture-of-anothers-turn": (
        _PICTURE + "a = begin(); raw(1, 3, a.id, p | {'turn': 'turn_' + '1' * 16}); stay()", "schema",
    ),
    "picture-of-no-turn": (_PICTURE + "a = begin(); raw(1, 3, a.id + 1, p); stay()", "order"),
    "pictures-past-the-credit": (
        (
            _PICTURE + "a = begin()\n"
            "sock.sendall(zmtp.encode(msgpack.packb([1, 3, a.id, p])) * 400); stay()"
        ),
        "credit",
    ),
    "reads-nothing": (
        f"a = begin(); n = 0\nwhile True:\n    n += 1\n    raw(1, 2, n, {_LOG})", "flood",
    ),
}  # fmt: skip
"""Programs that break the protocol, and the reason that core has to give."""
FAULTS_BEFORE_THE_TURN = ("not-zmtp", "other-version", "no-hello")
"""Those that never come to a turn; their jail is started three times."""
