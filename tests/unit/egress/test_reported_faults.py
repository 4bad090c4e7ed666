from typing import Any

from core.audited import CoreAuditor
from core.errors import LinkError
from core.metrics import Metrics
from core.observer import CoreObserver


class Link:
    """A link to egress that keeps what it is told, or is down."""

    def __init__(self, down: bool = False) -> None:
        self.down = down
        self.told: list[Any] = []

    def tell(self, make: Any) -> None:
        if self.down:
            raise LinkError("down")
        self.told.append(make(1))


def observer(link: Link) -> CoreObserver:
    return CoreObserver(Metrics(), CoreAuditor(link).jail_killed)  # type: ignore[arg-type]


def test_a_jail_ended_for_a_fault_is_reported_and_an_ordinary_end_is_not() -> None:
    link = Link()
    seen = observer(link)
    seen.note("jail_ended", user="alice", life=1, reason="drained")
    seen.warn("peer_faulted", user="mallory", life=2, reason="schema", detail="an unknown field")
    (said,) = link.told
    assert (said.record.kind, said.record.user, said.record.on) == ("jail_killed", "mallory", "schema")


def test_while_egress_is_down_reporting_breaks_nothing() -> None:
    observer(Link(down=True)).warn("peer_faulted", user="mallory", life=2, reason="schema", detail="x")
