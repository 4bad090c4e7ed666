"""No interleaving of reserving, settling, crashing and changing days gets past a hard limit."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from core.ledger.limits import PICO, Limits, Price, Sums, sums_of
from core.ledger.metering import DIMENSIONS, Amount, Grant
from tests.fakes.ledger import PRICES, Ledger, chat, fetch, ledger, terms

_LIMITS = st.builds(
    Limits,
    tokens=st.none() | st.integers(0, 2_000),
    requests=st.none() | st.integers(0, 8),
    bytes=st.none() | st.integers(0, 3_000),
    cost=st.none() | st.integers(0, 3_000).map(lambda micro: micro * PICO // 1_000_000),
)
_USERS = st.sampled_from(["alice", "bob"])
_CLAIMS = st.one_of(
    st.builds(
        chat, user=_USERS, input=st.integers(0, 500), output=st.integers(10, 900), least=st.integers(0, 10)
    ),
    st.builds(fetch, user=_USERS, least=st.integers(0, 100), most=st.integers(100, 2_000)),
)
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("reserve"), _CLAIMS),
        st.tuples(st.just("settle"), st.integers(0, 20), st.floats(0, 1)),
        st.tuples(st.just("crash")),
        st.tuples(st.just("tomorrow")),
    ),
    max_size=40,
)


def _within(book: Ledger, limits: Limits) -> None:
    for user in ("alice", "bob"):
        together = book.used(user).plus(book.held(user))
        for dimension in DIMENSIONS:
            most = getattr(limits, dimension)
            assert most is None or getattr(together, dimension) <= most, (user, dimension, together)


@settings(max_examples=50, deadline=None)
@given(limits=_LIMITS, steps=_STEPS)
def test_used_and_held_together_stay_within_every_hard_limit(
    limits: Limits, steps: list[tuple[object, ...]]
) -> None:
    with tempfile.TemporaryDirectory() as directory, ledger(Path(directory), terms(hard=limits)) as book:
        running: list[Grant] = []
        for step in steps:
            match step:
                case ("reserve", claim):
                    found = book.reserve(claim)  # type: ignore[arg-type]
                    if isinstance(found, Grant):
                        running.append(found)
                case ("settle", int(at), float(part)) if running:
                    grant = running.pop(at % len(running))
                    book.settle(grant, Amount(*(int(value * part) for value in grant.amount)))
                case ("crash",):
                    book.crash()
                    running.clear()
                case ("tomorrow",):
                    book.now_s += 86_400
            _within(book, limits)


@settings(max_examples=15, deadline=None)
@given(claims=st.lists(_CLAIMS, max_size=15), part=st.floats(0, 1))
def test_what_was_settled_is_what_is_told(claims: list[object], part: float) -> None:
    with tempfile.TemporaryDirectory() as directory, ledger(Path(directory), terms()) as book:
        expected = {"alice": Sums(), "bob": Sums()}
        for claim in claims:
            grant = book.grant(claim)  # type: ignore[arg-type]
            used = Amount(*(int(value * part) for value in grant.amount))
            book.settle(grant, used)
            user, kind = claim.user, claim.kind  # type: ignore[attr-defined]
            price: Price | None = PRICES["acme"]["m1"] if kind == "chat" else None
            expected[user] = expected[user].plus(sums_of(used, kind, price))
        assert {user: book.used(user) for user in expected} == expected
        assert book.held("alice") == book.held("bob") == Sums()
