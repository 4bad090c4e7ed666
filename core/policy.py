"""Who may use which verb: the operator's switches, with the defaults of what is built."""

from collections.abc import Mapping

from actors.service import Mode
from jail.wire.schema import FROM_JAIL


class Policy:
    """``[verbs] NAME = off | ask | on``; what is served is on unless switched, all else is off."""

    def __init__(self, switches: Mapping[str, Mode]) -> None:
        self.apply(switches)

    def apply(self, switches: Mapping[str, Mode]) -> None:
        """Use other switches from the next request on."""
        self._modes: dict[str, Mode] = {**dict.fromkeys(FROM_JAIL, "on"), **switches}

    def mode(self, verb: str) -> Mode:
        """Whether an agent may use ``verb``."""
        return self._modes.get(verb, "off")
