import sqlite3
from pathlib import Path

import pytest

from core.ledger.book import MAX_MODELS, OTHER_MODEL
from core.ledger.limits import PICO, Limits, Sums
from core.ledger.metering import Amount
from core.ledger.store import LedgerStore
from core.vault.errors import VaultError
from tests.fakes.ledger import NOON_S, chat, fetch, ledger, terms


def test_what_is_settled_counts_and_what_is_held_is_held_no_more(tmp_path: Path) -> None:
    with ledger(tmp_path, terms()) as book:
        grant = book.grant(chat())
        assert book.held() == Sums(200, 1, 0, 300 * PICO // 1_000_000)
        book.settle(grant, Amount(1, 90, 40, 5_000))
        assert book.held() == Sums()
        assert book.used() == Sums(130, 1, 0, 170 * PICO // 1_000_000)


def test_two_turns_at_once_are_granted_no_more_than_the_limit_together(tmp_path: Path) -> None:
    with ledger(tmp_path, terms(hard=Limits(tokens=500))) as book:
        first, second = book.grant(chat(output=300)), book.grant(chat(input=50, output=300))
        assert (first.amount.output_tokens, second.amount.output_tokens) == (300, 50)
        assert first.capped
        assert book.refusal(chat(input=0, output=1, least=1)).dimension == "tokens"
        book.settle(first, Amount(1, 100, 10))
        book.grant(chat(input=100, output=100))


def test_an_answer_is_cut_to_what_is_left_but_not_below_its_least(tmp_path: Path) -> None:
    with ledger(tmp_path, terms(hard=Limits(tokens=250))) as book:
        grant = book.grant(chat(input=100, output=1_000, least=10))
        assert grant.amount == Amount(1, 100, 150)
        book.settle(grant, Amount(1, 100, 41))
        assert book.refusal(chat(input=100, output=1_000, least=10)).dimension == "tokens"
        assert book.grant(chat(input=99, output=1_000, least=10)).amount.output_tokens == 10


def test_a_cost_limit_counts_the_model_s_own_price_and_lets_what_has_none_pass(tmp_path: Path) -> None:
    with ledger(tmp_path, terms(hard=Limits(cost=400 * PICO // 1_000_000))) as book:
        grant = book.grant(chat(input=100, output=500, least=100))
        assert grant.amount.output_tokens == 150  # 100 x 1 + 150 x 2
        refused = book.refusal(chat(input=100, output=500, least=100))
        assert refused.dimension == "cost"
        assert "0.0004 USD" in refused.failure.message
        free = chat()._replace(provider="local")
        assert not book.grant(free).capped


def test_bytes_are_limited_for_brokered_requests_alone(tmp_path: Path) -> None:
    with ledger(tmp_path, terms(hard=Limits(bytes=1_500))) as book:
        book.settle(book.grant(chat()), Amount(1, 1, 1, 1_000_000))
        assert book.grant(fetch(most=1_000)).amount.bytes == 1_000
        assert book.grant(fetch(most=1_000)).amount.bytes == 500
        assert book.refusal(fetch(least=1)).dimension == "bytes"


def test_requests_have_a_limit_and_another_user_has_a_day_of_their_own(tmp_path: Path) -> None:
    with ledger(tmp_path, terms(hard=Limits(requests=2))) as book:
        book.use(chat())
        book.grant(fetch())
        assert book.refusal(chat()).dimension == "requests"
        book.grant(chat("bob"))


def test_the_error_says_how_much_was_used_and_when_the_day_ends(tmp_path: Path) -> None:
    with ledger(tmp_path, terms(hard=Limits(tokens=1_000))) as book:
        book.use(chat(input=500, output=400))
        failure = book.refusal(chat()).failure
        assert failure.code == "quota"
        assert failure.retry_after_s == 12 * 3_600
        assert "1,000 tokens a day" in failure.message
        assert "900 tokens used" in failure.message
        assert "2026-12-03 00:00 UTC" in failure.message


def test_a_request_that_no_day_has_room_for_is_told_so(tmp_path: Path) -> None:
    with ledger(tmp_path, terms(hard=Limits(tokens=50))) as book:
        assert "begin a new session" in book.refusal(chat()).failure.message


def test_the_next_day_begins_anew_and_what_began_before_midnight_counts_there(tmp_path: Path) -> None:
    with ledger(tmp_path, terms(hard=Limits(tokens=200))) as book:
        late = book.grant(chat())
        book.refusal(chat())
        book.now_s += 86_400
        book.grant(chat())
        book.settle(late, late.amount)
        assert book.used() == Sums()
        book.now_s -= 86_400
        assert book.used().tokens == 200


def test_a_day_is_the_operator_s_zone_s_even_when_it_has_23_hours(tmp_path: Path) -> None:
    given = terms(zone="Europe/Berlin")
    before_s = 1_774_738_800.0  # 2026-03-29 00:00 +01:00, the day of 23 hours
    assert given.days.day(before_s) == "2026-03-29"
    assert given.days.day(before_s - 1) == "2026-03-28"
    assert given.days.resets_at_s(before_s) - before_s == 23 * 3_600


def test_a_soft_limit_is_told_once_a_day_and_stops_nothing(tmp_path: Path) -> None:
    with ledger(tmp_path, terms(soft=Limits(tokens=150, requests=100))) as book:
        assert book.grant(chat()).met == ()
        book.use(chat())
        (met,) = book.grant(chat()).met
        assert (met.level, met.dimension) == ("soft", "tokens")
        assert "200 tokens today" in met.text
        assert book.grant(chat()).met == ()
        book.now_s += 86_400
        book.use(chat())
        assert len(book.grant(chat()).met) == 1


def test_only_the_day_s_first_refusal_is_news(tmp_path: Path) -> None:
    with ledger(tmp_path, terms(hard=Limits(tokens=1))) as book:
        assert book.refusal(chat()).first
        assert not book.refusal(chat()).first


def test_what_a_crash_left_held_is_settled_in_full_and_marked_as_estimated(tmp_path: Path) -> None:
    with ledger(tmp_path, terms(hard=Limits(tokens=1_000))) as book:
        book.grant(chat(output=300))
        assert book.crash() == 1
        assert book.held() == Sums()
        assert book.used().tokens == 400
        (row,) = book.book.rows("alice", "", "", 10, NOON_S)
        assert (row.requests, row.input_tokens, row.output_tokens, row.estimated) == (1, 100, 300, 1)
        assert book.crash() == 0


def test_settling_twice_or_what_is_not_held_changes_nothing(tmp_path: Path) -> None:
    with ledger(tmp_path, terms()) as book:
        grant = book.grant(chat())
        book.settle(grant, Amount(1, 1, 1))
        book.settle(grant, Amount(1, 1, 1))
        assert book.used().tokens == 2


def test_own_limits_count_instead_of_the_configuration_s_until_they_are_reset(tmp_path: Path) -> None:
    with ledger(tmp_path, terms(hard=Limits(tokens=10, requests=5))) as book:
        book.refusal(chat())
        with book.store.transaction():
            book.book.set_limits("alice", {"hard": {"tokens": None}})
        book.grant(chat())
        book.refusal(chat("bob"))
        book.crash()
        book.grant(chat())
        assert book.book.standing("alice", NOON_S).hard == Limits(requests=5)
        with book.store.transaction():
            book.book.set_limits("alice", {"hard": {"tokens": "default"}})
        book.refusal(chat())


def test_a_user_who_is_forgotten_leaves_nothing_to_the_next_of_that_name(tmp_path: Path) -> None:
    with ledger(tmp_path, terms(hard=Limits(requests=2))) as book:
        running = book.grant(chat())
        book.use(chat())
        with book.store.transaction():
            book.book.set_limits("alice", {"hard": {"requests": 2}})
            book.book.forget("alice")
        book.settle(running, running.amount)
        standing = book.book.standing("alice", NOON_S)
        assert (standing.used, standing.held, standing.own) == (Sums(), Sums(), {})


def test_models_past_so_many_a_day_share_one_row(tmp_path: Path) -> None:
    with ledger(tmp_path, terms()) as book:
        for number in range(MAX_MODELS + 20):
            book.use(chat(model=f"model-{number}"))
        rows = book.book.rows("alice", "", "", 1_000, NOON_S)
        assert len(rows) == MAX_MODELS + 1
        assert next(row.requests for row in rows if row.model == OTHER_MODEL) == 20
        book.use(chat(model="model-3"))
        assert len(book.book.rows("alice", "", "", 1_000, NOON_S)) == MAX_MODELS + 1


def test_counts_that_nobody_believes_do_not_break_the_sums(tmp_path: Path) -> None:
    with ledger(tmp_path, terms(hard=Limits(cost=PICO))) as book:
        for number in range(20):
            claim = chat(user="mallory", input=1, output=1, least=0, model=f"m{number}")
            with book.store.transaction():
                book.book.set_limits("mallory", {"hard": {"cost": None}})
            book.settle(book.grant(claim), Amount(2**53, 2**53, 2**53, 2**60))
        assert book.used("mallory").tokens > 10**11
        with book.store.transaction():
            book.book.set_limits("mallory", {"hard": {"cost": "default"}})
        assert book.refusal(chat("mallory")).dimension == "cost"


def test_days_older_than_are_kept_are_forgotten(tmp_path: Path) -> None:
    with ledger(tmp_path, terms(keep_days=31)) as book:
        book.use(chat())
        book.now_s += 20 * 86_400
        book.use(chat())
        with book.store.transaction():
            book.book.purge(NOON_S + 31 * 86_400)
        assert len(book.book.rows("", "2026-01-01", "9999-12-31", 10, NOON_S)) == 2
        with book.store.transaction():
            book.book.purge(NOON_S + 32 * 86_400)
        assert [row.day for row in book.book.rows("", "2026-01-01", "9999-12-31", 10, NOON_S)] == [
            "2026-12-22"
        ]


def test_a_newer_ledger_is_refused_and_one_open_to_others_too(tmp_path: Path) -> None:
    with ledger(tmp_path, terms()):
        pass
    path = tmp_path / "ledger.db"
    path.chmod(0o644)
    with pytest.raises(VaultError, match="lets others in"):
        LedgerStore(path)
    path.chmod(0o600)
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(VaultError, match="schema version 99"):
        LedgerStore(path)
