"""Whether a user who was let in may still begin something.

A request holds its handle from the verified token on, and takes as long as its client likes to send
the rest. Deleting or disabling the user meanwhile has to reach it: somebody else may get the same
name a moment later.
"""


class Standing:
    """Shared by the handles of a user's; ended on core's loop, read by any thread.

    Without it no turn begins and no database is made; what runs is stored to its end.
    """

    __slots__ = ("_ended",)

    def __init__(self) -> None:
        self._ended = False

    def is_good(self) -> bool:
        """Whether the user is let in; changes under whoever asks."""
        return not self._ended

    def end(self) -> None:
        """For good: a user who is let in again gets another."""
        self._ended = True


class Standings:
    """By user, who is let in at present. Used on core's loop."""

    def __init__(self) -> None:
        self._by_user: dict[str, Standing] = {}

    def of(self, user: str) -> Standing:
        """What a handle gets that is minted now."""
        return self._by_user.setdefault(user, Standing())

    def end(self, user: str) -> None:
        """End what the user's handles have; those minted from now on get another."""
        standing = self._by_user.pop(user, None)
        if standing is not None:
            standing.end()
