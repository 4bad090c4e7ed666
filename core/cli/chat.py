"""``certosa chat``."""

import argparse
import secrets
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from core.cli.account import connect_api
from core.cli.api import ApiClient, Piece, Turn
from core.cli.approvals import ask_person, send
from core.cli.failure import FAILED, UNREACHABLE, USAGE, CommandFailed
from core.cli.output import harmless
from core.cli.screen import make_screen

_MAX_MESSAGE_BYTES = 900_000
_HELP = """\
/new     start a fresh conversation
/quit    leave (so does the end of input)
/help    this
Ctrl-C   end the answer that is running"""


def chat(arguments: argparse.Namespace) -> int:
    """One message and its answer, or a conversation where a person sits at a terminal."""
    client = connect_api(arguments)
    session = arguments.session or _fresh_session()
    talk = _Conversation(client, session, arguments.model, arguments.json)
    message: str | None = arguments.message
    if message is None and sys.stdin.isatty():
        return talk.run()
    if message is None:
        message = sys.stdin.buffer.read(_MAX_MESSAGE_BYTES + 1).decode(errors="replace")
        if len(message.encode()) > _MAX_MESSAGE_BYTES:
            raise CommandFailed(f"a message has at most {_MAX_MESSAGE_BYTES} bytes", USAGE)
    if not message.strip():
        raise CommandFailed("the message is empty: say something with -m or on stdin", USAGE)
    return talk.say(message)


def _fresh_session() -> str:
    return f"chat-{secrets.token_hex(6)}"


class _Conversation:
    def __init__(self, client: ApiClient, session: str, model: str, as_json: bool) -> None:
        self._client = client
        self._session = session
        self._model = model
        self._json = as_json
        self._screen = make_screen(as_json)

    def run(self) -> int:
        """Ask at the terminal until the person leaves."""
        import readline

        readline.set_auto_history(True)
        print("Talking to your agent. /help says what else there is.", file=sys.stderr)
        try:
            self._talk()
        except KeyboardInterrupt:
            print(file=sys.stderr)  # between two prompts, where it is the second Ctrl-C
        return 0

    def _talk(self) -> None:
        interrupted = False
        while True:
            try:
                line = input("> ").strip()
            except EOFError:
                print(file=sys.stderr)
                return
            except KeyboardInterrupt:
                if interrupted:
                    raise
                print(file=sys.stderr)
                interrupted = True
                print("Ctrl-C once more to leave.", file=sys.stderr)
                continue
            interrupted = False
            if line == "/quit":
                return
            self._obey(line)

    def _obey(self, line: str) -> None:
        if line == "/new":
            self._session = _fresh_session()
            print("A fresh conversation.", file=sys.stderr)
        elif line == "/help":
            print(_HELP, file=sys.stderr)
        elif line.startswith("/"):
            print(f"{harmless(line.split(maxsplit=1)[0])} is no command; /help lists them.", file=sys.stderr)
        elif line:
            try:
                self.say(line)
            except CommandFailed as error:
                print(f"certosa: {error}", file=sys.stderr)
            except KeyboardInterrupt:
                print("The answer is no longer waited for.", file=sys.stderr)

    def say(self, text: str) -> int:
        """Send a message and show its answer; 0 unless the turn was cut off or cancelled."""
        cancel = _Cancel(self._client)
        finish = ""
        with cancel.on_interrupt():
            turn = self._client.start_turn(text, self._session, self._model)
            try:
                cancel.started(turn)
                for piece in turn.pieces():
                    self._screen.show(piece)
                    finish = piece.text if piece.kind == "finish" else finish
                    if piece.kind == "approval_wanted":
                        self._answer(piece, cancel)
            except CommandFailed:
                if not cancel.wanted:
                    raise
            finally:
                turn.close()
                self._screen.end()
        if cancel.wanted:
            print("The answer was cancelled.", file=sys.stderr)
        return FAILED if cancel.wanted or finish not in {"stop", "length"} else 0

    def _answer(self, piece: Piece, cancel: "_Cancel") -> None:
        """Put an approval to whoever sits at the terminal; where nobody does, say how to answer it."""
        if self._json or not (sys.stdin.isatty() and sys.stderr.isatty()):
            print(
                f"This waits for: certosa approval allow|refuse {harmless(piece.approval)}", file=sys.stderr
            )
            return
        allowed = ask_person(piece, lambda: cancel.wanted, sys.stdin, sys.stderr)
        if allowed is None:
            return
        try:
            send(self._client, piece.approval, allowed)
        except CommandFailed as error:
            # answered elsewhere meanwhile, or too late: the turn's own stream says what came of it
            print(f"certosa: {error}", file=sys.stderr)


class _Cancel:
    """Ctrl-C while a turn runs: the first asks the server to end it, the second leaves it.

    The handler does not raise the first time, so reading goes on to the turn's own end (PEP 475).
    """

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._unasked: list[str] = []  # the turn, until the server was asked: popped, so asked once
        self.wanted = False

    @contextmanager
    def on_interrupt(self) -> Iterator[None]:
        """Handle SIGINT so as long as the block runs."""
        before = signal.signal(signal.SIGINT, self._on_interrupt)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def started(self, turn: Turn) -> None:
        """The turn has an id now; a Ctrl-C that came before is carried out."""
        self._unasked.append(turn.turn_id)
        if self.wanted:
            self._ask()

    def _on_interrupt(self, _signal: int, _frame: FrameType | None) -> None:
        if self.wanted:
            raise KeyboardInterrupt
        self.wanted = True
        self._ask()

    def _ask(self) -> None:
        """Raises KeyboardInterrupt where the server is gone: then leaving is all that is left."""
        try:
            turn_id = self._unasked.pop()
        except IndexError:
            return  # not begun, or asked already: a signal may come between any two lines of started()
        try:
            self._client.cancel_turn(turn_id)
        except CommandFailed as error:
            # A refusal says that the turn has just ended, which its own stream is about to say.
            if error.status == UNREACHABLE:
                raise KeyboardInterrupt from None
