"""What belongs to a tool's tree."""

from jail.peer.processes import Orphans, Process, members, parse_stat


def process(parent: int, session: int, started_s: float = 0.0) -> Process:
    """A row of the table."""
    return Process("S", parent, session, started_s)


def test_a_name_with_parentheses_does_not_shift_the_fields() -> None:
    stat = b"42 (a) b) S 7 42 41 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 500 0 0"

    row = parse_stat(stat)

    assert (row.state, row.parent, row.session) == ("S", 7, 41)
    assert row.started_s > 0


def test_a_tree_is_a_session_its_descendants_and_new_orphans() -> None:
    table = {
        1: process(0, 1),
        10: process(1, 10),  # the tool
        11: process(10, 10),
        12: process(11, 12),  # left the session, still a descendant
        13: process(1, 10),  # an orphan of the session
        14: process(13, 14),
        20: process(1, 20, started_s=5),  # an orphan since the tool began
        21: process(20, 21),
        30: process(1, 30, started_s=1),  # one from before
    }

    assert members(table, 10, None) == {10, 11, 12, 13, 14}
    assert members(table, 10, Orphans(1, 2.0)) == {10, 11, 12, 13, 14, 20, 21}
