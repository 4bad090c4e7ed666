"""The real egress process at the end of a socket pair, and a core's end to speak to it with."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from core.config import Config
from core.egress.messages import FromEgress
from core.link import LinkReader, encode_message

_START = Path(__file__).resolve().parents[2] / "core" / "egress" / "start.py"
TIMEOUT_S = 30.0


class EgressProcess:
    """Starts at once; leave the ``with`` block, or call stop, to end it.

    Args:
        directory: a test's own; data, and the log as ``egress.log``.
        config: the configuration it gets.
        provider_keys: the text of the provider key file; None passes none.
    """

    def __init__(
        self, directory: Path, config: Config | None = None, provider_keys: str | None = None
    ) -> None:
        self._log = directory / "egress.log"
        core, egress = socket.socketpair()
        self.sock = core
        core.settimeout(TIMEOUT_S)
        fds = [_memory_file(msgspec.json.encode(config or Config()))]
        arguments = ["--core", str(egress.fileno()), "--config", str(fds[0])]
        if provider_keys is not None:
            fds.append(_memory_file(provider_keys.encode()))
            arguments += ["--provider-keys", str(fds[1])]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-I", str(_START), *arguments, "--data-dir", str(directory)],
                pass_fds=(egress.fileno(), *fds),
                env={},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )
        egress.close()
        for fd in fds:
            os.close(fd)
        self._reader = LinkReader(FromEgress)
        self._came: list[Any] = []
        self.seen: list[Any] = []
        """Every message that came, in order."""

    def send(self, *messages: msgspec.Struct) -> None:
        """Send messages."""
        self.sock.sendall(b"".join(encode_message(message) for message in messages))

    def receive(self, wanted: Callable[[Any], bool] = lambda _: True) -> Any:
        """The next message that is ``wanted``; others before it are only kept in ``seen``.

        Raises TimeoutError, or EOFError at the process's end.
        """
        while True:
            while self._came:
                message = self._came.pop(0)
                self.seen.append(message)
                if wanted(message):
                    return message
            data = self.sock.recv(65_536)
            if not data:
                raise EOFError(self.log())
            self._came += self._reader.feed(data)

    def ask(self, message: Any) -> Any:
        """Send a message and return the first answer with its id."""
        self.send(message)
        return self.receive(lambda answer: answer.id == message.id)

    def log(self) -> str:
        """What it logged so far."""
        return self._log.read_text()

    def stop(self) -> int:
        """End the link and return the exit status; harmless twice."""
        self.sock.close()
        try:
            return self.process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise

    def __enter__(self) -> "EgressProcess":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


def _memory_file(data: bytes) -> int:
    fd = os.memfd_create("egress", os.MFD_CLOEXEC)
    os.write(fd, data)
    return fd
