"""Secrets: held so that nothing prints them, and struck out of what comes back from outside."""

from collections.abc import Iterable

STRUCK = "[struck out]"
_WINDOW = 8
"""So many characters in a row in common with a secret are struck out of an error's text."""
MIN_STRIKABLE = 12
"""A shorter secret could be a word ("ollama", "none"), and is not looked for in answers."""


class Secret:
    """A secret text. Only :meth:`reveal` gives it away."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself, for the one header it belongs in."""
        return self._text

    def __repr__(self) -> str:
        return "Secret()"

    def __reduce__(self) -> str:
        raise TypeError("a secret does not leave its process")


class Striker:
    """Strikes secrets out of texts that come from outside."""

    def __init__(self, secrets: Iterable[Secret]) -> None:
        self._texts = {secret.reveal() for secret in secrets}
        self._prepare()

    @property
    def texts(self) -> frozenset[str]:
        """Every secret that is known."""
        return frozenset(self._texts)

    def add(self, secret: Secret) -> None:
        """Strike this one out too, from now on; nothing happens where it is known."""
        if secret.reveal() not in self._texts:
            self._texts.add(secret.reveal())
            self._prepare()

    def _prepare(self) -> None:
        texts = self._texts
        self._long = sorted((t for t in texts if len(t) >= MIN_STRIKABLE), key=len, reverse=True)
        self._windows = frozenset(
            text[at : at + _WINDOW].lower()
            for text in texts
            if len(text) >= _WINDOW
            for at in range(len(text) - _WINDOW + 1)
        )
        self._first = frozenset(text[0] for text in self._long)

    def clean(self, text: str) -> str:
        """Strike out every stretch in common with a secret, a cut or half-masked one too.

        For short texts such as an error's message: rather too much than too little.
        """
        low = text.lower()
        if not self._windows or len(low) != len(text):
            # lower() changed the length somewhere: positions no longer agree, so none is trusted
            return text if not self._windows else self._clean_exact(text)
        hit = [False] * len(text)
        for at in range(len(text) - _WINDOW + 1):
            if low[at : at + _WINDOW] in self._windows:
                hit[at : at + _WINDOW] = [True] * _WINDOW
        pieces: list[str] = []
        for at, character in enumerate(text):
            if not hit[at]:
                pieces.append(character)
            elif at == 0 or not hit[at - 1]:
                pieces.append(STRUCK)
        return "".join(pieces)

    def _clean_exact(self, text: str) -> str:
        return self.clean(text.encode("ascii", "replace").decode())

    def strike(self, text: str) -> str:
        """Strike out whole secrets."""
        for secret in self._long:
            if secret in text:
                text = text.replace(secret, STRUCK)
        return text

    def unfinished(self, text: str) -> int:
        """How many characters at the end of ``text`` could be the beginning of a secret."""
        if not self._long:
            return 0
        start = max(0, len(text) - len(self._long[0]) + 1)
        for at in range(start, len(text)):
            if text[at] in self._first:
                tail = text[at:]
                if any(secret.startswith(tail) for secret in self._long):
                    return len(text) - at
        return 0


class StreamStriker:
    """Strikes whole secrets out of a text that comes in pieces, wherever the pieces part."""

    def __init__(self, striker: Striker) -> None:
        self._striker = striker
        self._held = ""

    def feed(self, text: str) -> str:
        """What may go on now; a possible beginning of a secret is held back."""
        text = self._striker.strike(self._held + text)
        keep = self._striker.unfinished(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def finish(self) -> str:
        """What was held back, when no more comes."""
        text, self._held = self._held, ""
        return text
