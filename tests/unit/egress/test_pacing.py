"""How far apart a stream's pieces go, by how late its credit comes back."""

from core.egress.pacing import MAX_GAP_S, Pacing


def taken(pacing: Pacing, took_s: float, batches: int, now_s: float = 0.0) -> float:
    """Batches of eight pieces, each taken ``took_s`` after its last piece went; returns the time then."""
    for _ in range(batches):
        for _ in range(8):
            now_s += 0.05
            pacing.sent(now_s)
        now_s += took_s
        pacing.granted(8, now_s)
    return now_s


def test_pieces_that_are_taken_quickly_go_at_once() -> None:
    pacing = Pacing()
    taken(pacing, 0.006, 20)
    assert pacing.gap_s == 0.0


def test_whoever_is_behind_gets_fewer_and_no_later_than_the_bound() -> None:
    pacing = Pacing()
    taken(pacing, 0.04, 3)
    assert 0.04 < pacing.gap_s < MAX_GAP_S
    taken(pacing, 2.0, 5)
    assert pacing.gap_s == MAX_GAP_S


def test_one_late_credit_changes_little_and_a_gap_goes_once_nobody_is_behind() -> None:
    pacing = Pacing()
    now_s = taken(pacing, 0.05, 1)
    assert pacing.gap_s == 0.0
    now_s = taken(pacing, 0.2, 3, now_s)
    assert pacing.gap_s == MAX_GAP_S
    gaps = []
    for _ in range(20):
        now_s = taken(pacing, 0.004, 1, now_s)
        gaps.append(pacing.gap_s)
    assert gaps == sorted(gaps, reverse=True)
    assert (gaps[2] > 0.0, gaps[-1]) == (True, 0.0)


def test_time_counts_from_the_last_piece_that_credit_pays_for() -> None:
    """The first of a batch waits for the others to be sent, whoever takes them."""
    pacing = Pacing()
    for at_s in (0.0, 10.0):
        pacing.sent(at_s)
    pacing.granted(2, 10.001)
    pacing.granted(1, 99.0)  # more than was sent: nothing was waited for
    assert pacing.gap_s == 0.0
