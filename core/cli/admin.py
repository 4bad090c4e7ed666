"""The command line's way to a running server: HTTP over the Unix socket DATA/_system/admin.sock."""

import http.client
import json
import os
import socket
from pathlib import Path
from typing import Any

from core.cli.failure import UNREACHABLE, CommandFailed
from core.cli.output import harmless
from core.config import Config

_TIMEOUT_S = 60.0
_MAX_ANSWER_BYTES = 64 << 20
"""A list of a hundred thousand tokens fits."""


class AdminClient:
    """Calls on one server's admin socket, a connection each.

    Args:
        data_dir: the server's data directory.
        timeout_s: how long an answer may take; deleting a user takes longest.
    """

    def __init__(self, data_dir: Path, timeout_s: float = _TIMEOUT_S) -> None:
        self._data_dir = data_dir
        self._timeout_s = timeout_s

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """One request; returns the JSON of the answer, None where it has no body.

        Raises CommandFailed: UNREACHABLE when nobody listens, else with the server's own message.
        """
        connection = _UnixConnection(self._data_dir / "_system", "admin.sock", self._timeout_s)
        headers = {"Content-Type": "application/json"} if body is not None else {}
        data = json.dumps(body).encode() if body is not None else None
        try:
            connection.request(method, path, data, headers)
            with connection.getresponse() as response:
                answer = response.read(_MAX_ANSWER_BYTES)
        except PermissionError:
            raise CommandFailed(
                f"the server's socket in {self._data_dir} is not yours: run this as the user who"
                " started the server, or as root",
                UNREACHABLE,
            ) from None
        except (FileNotFoundError, ConnectionRefusedError):
            raise CommandFailed(
                f"no server runs on {self._data_dir}: start one with `certosa serve`, or name its"
                " data directory with --data-dir",
                UNREACHABLE,
            ) from None
        except (OSError, http.client.HTTPException) as error:
            raise CommandFailed(
                f"the server on {self._data_dir} did not answer ({error or type(error).__name__}):"
                " try again, or look at its log",
                UNREACHABLE,
            ) from None
        finally:
            connection.close()
        return _result(response.status, answer)


def connect_admin(config: Config) -> AdminClient:
    """A client for the server that ``config`` is about; nothing is connected yet."""
    return AdminClient(config.data_dir)


def error_message(answer: Any, otherwise: str) -> str:
    """The message of ``{"error": {"message": ...}}``, made harmless; ``otherwise`` without one."""
    error = answer.get("error") if isinstance(answer, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    return harmless(message) if isinstance(message, str) and message else otherwise


def _result(status: int, answer: bytes) -> Any:
    try:
        value = json.loads(answer) if answer else None
    except ValueError:
        value = None
    if status >= 400:
        raise CommandFailed(error_message(value, f"the server refused, with status {status}"))
    return value


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a socket file, named from its directory: a path may be longer than sun_path."""

    def __init__(self, directory: Path, name: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._directory = directory
        self._name = name

    def connect(self) -> None:
        directory = os.open(self._directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.sock.settimeout(self.timeout)
            self.sock.connect(f"/proc/self/fd/{directory}/{self._name}")
        except OSError:
            self.sock.close()
            self.sock = None
            raise
        finally:
            os.close(directory)
