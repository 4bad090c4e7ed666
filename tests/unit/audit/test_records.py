from typing import get_args

import msgspec
import pytest

from core.audit.records import CORE_KINDS, KINDS, CoreKind, EgressKind, Record, bounded
from core.audit.throttle import TOTAL_PER_WINDOW, WINDOW_S, Throttle
from core.egress.account_messages import CoreRecord, NoteAudit


def test_long_and_unprintable_words_are_cut_and_replaced() -> None:
    record = bounded(Record("egress_refused", "refused", user="a" * 99, on="x\n\u202ey", detail="d" * 999))
    assert (record.user, record.on, len(record.detail)) == ("a" * 32, "x??y", 200)


def test_core_cannot_report_in_the_name_of_egress() -> None:
    assert not set(get_args(CoreKind)) & set(get_args(EgressKind))
    assert CORE_KINDS < KINDS
    decode = msgspec.msgpack.Decoder(NoteAudit).decode
    good = NoteAudit(1, CoreRecord("user_added", "done"))
    assert decode(msgspec.msgpack.encode(good)) == good
    forged = msgspec.to_builtins(good)
    forged["record"]["kind"] = "credential_used"
    with pytest.raises(msgspec.ValidationError):
        decode(msgspec.msgpack.encode(forged))


def test_a_flood_of_one_user_s_is_gathered_and_another_s_lines_go_on() -> None:
    throttle = Throttle(2)
    mine = Record("egress_refused", "refused", user="mallory", on="a")
    assert [throttle.admits("egress", mine, 0.0) for _ in range(5)] == [True, True, False, False, False]
    assert throttle.admits("egress", Record("egress_refused", "refused", user="alice"), 0.0)
    assert throttle.admits("egress", Record("credential_used", "allowed", user="mallory"), 0.0)
    assert throttle.due(WINDOW_S - 1) == []
    ((by, summary),) = throttle.due(WINDOW_S)
    assert (by, summary.kind, summary.user, summary.count) == ("egress", "egress_refused", "mallory", 3)
    assert throttle.admits("egress", mine, WINDOW_S)


def test_all_users_together_have_a_bound() -> None:
    throttle = Throttle(10**6)
    admitted = sum(
        throttle.admits("core", Record("login_failed", "refused", user=str(n)), 0.0)
        for n in range(2 * TOTAL_PER_WINDOW)
    )
    assert admitted == TOTAL_PER_WINDOW
    assert sum(record.count for _, record in throttle.due(0.0, everything=True)) == TOTAL_PER_WINDOW
