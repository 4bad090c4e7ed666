"""Core and egress in spawner tests: does what the test says over ``--test FD``, and tells what it hears.

Lines of JSON both ways. Started by its staged path, so that any uid can read it; what it imports
lies beside it in the staged ``app``.
"""

import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(sys.argv[0]).resolve().parents[2]))

import select

import msgspec

from jail.host import messages
from jail.host.sealed import sealed_file


class Service:
    """One fake; ``fds`` are its flags."""

    def __init__(self, fds: dict[str, int]) -> None:
        self.fds = fds
        self.test = socket.socket(fileno=fds["test"])
        self.lines = b""
        self.control = socket.socket(fileno=fds["control"]) if "control" in fds else None
        name = "egress" if self.control is not None else "core"
        self.link: socket.socket | None = socket.socket(fileno=fds[name])
        self.spawner = socket.socket(fileno=fds["spawner"]) if "spawner" in fds else None
        self.values: dict[str, str] | None = None  # what lies in jails; None: asked for it, it says nothing
        self.edges: dict[int, socket.socket] = {}
        self.deaf = False
        self.stubborn = False

    def tell(self, **what: Any) -> None:
        self.test.sendall(json.dumps(what).encode() + b"\n")

    def run(self) -> None:
        self.tell(
            heard="started", pid=os.getpid(), uid=os.getuid(), gid=os.getgid(),
            groups=os.getgroups(), fds=sorted(_fds()), env=sorted(os.environ), umask=_umask(),
            no_new_privs=_no_new_privs(), flags=sorted(self.fds),
        )  # fmt: skip
        while True:
            poll = select.poll()
            poll.register(self.test, select.POLLIN)
            if self.control is not None and not self.deaf:
                poll.register(self.control, select.POLLIN)
            if self.spawner is not None and self.values is not None:
                poll.register(self.spawner, select.POLLIN)
            if self.control is None and self.link is not None:
                poll.register(self.link, select.POLLIN)
            for fd, _ in poll.poll():
                if fd == self.test.fileno():
                    self.on_test()
                elif self.control is not None and fd == self.control.fileno():
                    self.on_control()
                elif self.spawner is not None and fd == self.spawner.fileno():
                    self.on_spawner(self.spawner)
                else:
                    self.on_link()

    def on_test(self) -> None:
        data = self.test.recv(65_536)
        if not data:
            os._exit(0)
        self.lines += data
        while b"\n" in self.lines:
            line, self.lines = self.lines.split(b"\n", 1)
            self.do(json.loads(line))

    def do(self, order: dict[str, Any]) -> None:
        match order.pop("do"):
            case "send":
                kind = getattr(messages, order.pop("kind"))
                assert self.control is not None
                self.control.setblocking(True)
                messages.send_message(self.control, kind(**order))
            case "send_with_fd":
                assert self.control is not None
                messages.send_message(self.control, messages.CoreReady(), 0)
            case "garbage":
                assert self.control is not None
                self.control.send(b"\x91\xc1 no message")
            case "close_control":
                assert self.control is not None
                self.control.close()
                self.control = None
            case "edge":
                edge = self.edges[order["life"]]
                edge.settimeout(60)
                edge.sendall(json.dumps(order["argv"]).encode() + b"\n")
                data = b""
                while not data.endswith(b"\n"):
                    piece = edge.recv(65_536)
                    if not piece:
                        break
                    data += piece
                self.tell(heard="edge", answer=json.loads(data) if data else None)
            case "ping_egress":
                assert self.link is not None
                self.link.settimeout(30)
                self.link.sendall(b"ping")
                self.tell(heard="pong", data=self.link.recv(4).decode())
            case "give":
                self.values = order["values"]
            case "deaf":
                self.deaf = True
            case "stubborn":
                self.stubborn = True
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            case "exit":
                os._exit(order["status"])

    def on_control(self) -> None:
        assert self.control is not None
        received = messages.receive_message(self.control, messages.ToCore)
        if received is None:
            os._exit(0)
        message, fd = received
        if isinstance(message, messages.JailStarted) and fd is not None:
            self.edges[message.life] = socket.socket(fileno=fd)
        elif isinstance(message, messages.EgressLink) and fd is not None:
            assert self.link is not None
            self.link.close()
            self.link = socket.socket(fileno=fd)
        elif fd is not None:
            raise AssertionError(f"a descriptor with {message}")
        fields = msgspec.to_builtins(message)
        self.tell(heard=fields.pop("type"), **fields)
        if isinstance(message, messages.Shutdown) and not self.stubborn:
            os._exit(0)

    def on_spawner(self, spawner: socket.socket) -> None:
        received = messages.receive_message(spawner, messages.ToEgress)
        assert received is not None
        asked = received[0]
        assert isinstance(asked, messages.AskMounts)
        assert self.values is not None
        names = tuple(name for name in asked.names if name in self.values)
        fds = [sealed_file("credential", self.values[name].encode()) for name in names]
        messages.send_message(spawner, messages.MountsGiven(asked.request, names), more=fds)
        for fd in fds:
            os.close(fd)
        self.tell(heard="AskMounts", user=asked.user, names=asked.names)

    def on_link(self) -> None:
        assert self.link is not None
        data = self.link.recv(64)
        if data:
            self.link.sendall(data)
        else:
            self.link = None


def _fds() -> list[int]:
    return [int(name) for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")]


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _no_new_privs() -> bool:
    return "NoNewPrivs:\t1" in Path("/proc/self/status").read_text()


def main() -> None:
    flags = sys.argv[1:]
    Service({name[2:]: int(number) for name, number in zip(flags[::2], flags[1::2], strict=True)}).run()


if __name__ == "__main__":
    main()
