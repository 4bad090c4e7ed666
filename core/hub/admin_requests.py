"""What administrators send; of users' limits see :mod:`core.hub.usage`, of rules :mod:`core.config`."""

from typing import Annotated

import msgspec


class _Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


# what is published is stricter than what is read: core.users says what is wrong with a name
USER_NAMES = {"pattern": "^[a-z0-9][a-z0-9_-]{0,31}$"}


class NewUser(_Body, frozen=True):
    """Somebody who is not there yet."""

    name: Annotated[str, msgspec.Meta(max_length=300, extra_json_schema=USER_NAMES)]


class TrialAsked(_Body, frozen=True):
    """Which model is to say a few words; empty: the agents' own, else the first there is."""

    model: Annotated[str, msgspec.Meta(max_length=128)] = ""


class NewToken(_Body, frozen=True):
    """What a token is for, in its owner's words."""

    label: Annotated[str, msgspec.Meta(max_length=64)] = ""
