"""Whom core acts for: the request's id, and the trace that a client names (W3C Trace Context)."""

import re

import pytest
import structlog

from core.acting import (
    NO_REQUEST,
    REQUEST,
    TRACE,
    Trace,
    acting,
    current_request,
    current_traceparent,
    fresh_request,
    parse_trace,
)

_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
_PARENT = "00f067aa0ba902b7"


def test_a_clients_trace_goes_on_with_a_span_of_our_own() -> None:
    trace = parse_trace(f"00-{_ID}-{_PARENT}-01")
    assert trace == Trace(_ID, sampled=True)
    said = [trace.header() for _ in range(2)]
    assert said[0] != said[1]
    for header in said:
        assert re.fullmatch(rf"00-{_ID}-[0-9a-f]{{16}}-01", header)
        assert _PARENT not in header
    assert parse_trace(f"00-{_ID}-{_PARENT}-00").header().endswith("-00")


def test_a_later_version_may_say_more_than_ours_knows() -> None:
    assert parse_trace(f"01-{_ID}-{_PARENT}-03-more-of-it").id == _ID
    assert parse_trace(f"cc-{_ID}-{_PARENT}-00").id == _ID


@pytest.mark.parametrize(
    "said",
    [
        None,
        "",
        f"00-{_ID}-{_PARENT}",
        f"00-{_ID}-{_PARENT}-01-more",
        f"ff-{_ID}-{_PARENT}-01",
        f"00-{_ID.upper()}-{_PARENT}-01",
        f"00-{'0' * 32}-{_PARENT}-01",
        f"00-{_ID}-{'0' * 16}-01",
        f"00-{_ID}-{_PARENT}-1",
        f"00-{_ID}-{_PARENT}-01\n",
        "x" * 8_000,
    ],
)
def test_what_is_no_trace_begins_a_fresh_one(said: str | None) -> None:
    one, other = parse_trace(said), parse_trace(said)
    assert re.fullmatch(r"[0-9a-f]{32}", one.id)
    assert one.id not in (_ID, other.id)
    assert not one.sampled


def test_within_a_block_everything_is_for_its_request_and_afterwards_not() -> None:
    assert (REQUEST.get(), current_request(), current_traceparent()) == (NO_REQUEST, "", "")
    outer, inner = fresh_request(), fresh_request()
    with acting(outer, Trace(_ID, sampled=False)):
        assert structlog.contextvars.get_contextvars() == {"request_id": outer, "trace_id": _ID}
        with acting(inner):
            assert current_request() == inner
            assert _ID in current_traceparent()  # of the trace around it
        with acting(""):
            assert current_request() == outer
        assert current_request() == outer
    assert (current_request(), TRACE.get(), structlog.contextvars.get_contextvars()) == ("", None, {})
