"""The session store as an actor: its place in the tree. The work itself is on storage threads."""

from actors.base import Actor, Ref
from actors.observer import Observer
from core.sessions.storage import Storage


class SessionsActor(Actor):
    """Ends the storage threads, with everything written, after the user actors have ended."""

    def __init__(self, name: str, parent: Ref | None, observer: Observer, *, storage: Storage) -> None:
        super().__init__(name, parent, observer)
        self._storage = storage

    def teardown(self) -> None:
        """Commit what waits and close every database."""
        self._storage.stop()
