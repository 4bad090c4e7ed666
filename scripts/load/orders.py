"""What the generator is told."""

import msgspec

from scripts.load.plan import Group


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """Whom to be, for how long, against what.

    Args:
        port: the server's, on 127.0.0.1.
        model_port: the model server's, asked directly for the floor.
        tokens: one for each person.
        arrive_s: everybody comes within so long.
        seed: of what people do by chance.
    """

    port: int
    model_port: int
    tokens: list[str]
    groups: list[Group]
    seconds: float
    arrive_s: float
    seed: int
