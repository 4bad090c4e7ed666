"""One id for all that a request causes, in every process's log, and the client's trace goes on."""

import json
import re
from typing import Any

from tests.fakes.model_server import Call, FakeModelServer, Script
from tests.fakes.real_server import RealServer, new_person, until

_TRACE = "0af7651916cd43dd8448eb211c80319c"


def lines_of(server: RealServer, request: str) -> list[dict[str, Any]]:
    found = []
    for line in server.log_path.read_text(errors="replace").splitlines():
        if request in line:
            found.append(json.loads(line))
    return found


def test_a_request_has_one_id_in_the_hub_the_jail_its_tools_egress_and_the_spawner(
    server: RealServer, model: FakeModelServer
) -> None:
    person = new_person(server, "one-id")
    command = json.dumps({"command": "echo id=$CERTOSA_REQUEST_ID"})
    model.say(Script(calls=(Call("run_command", command, "call_1"),)), Script(text="done"))
    before = len(model.requests)
    with person.client() as client:
        raw = client.chat.completions.with_raw_response.create(
            model="fake",
            messages=[{"role": "user", "content": "who asks?"}],
            extra_headers={"traceparent": f"00-{_TRACE}-b7ad6b7169203331-01", "X-Certosa-Session": "ids"},
        )
        request, turn = raw.headers["X-Request-Id"], raw.headers["X-Certosa-Turn"]
    assert re.fullmatch(r"req_[0-9a-f]{24}", request)

    sent = model.requests[before:]
    assert len(sent) == 2
    result = next(m["content"] for m in sent[1].body["messages"] if m["role"] == "tool")
    assert f"id={request}\n" in result
    spans = [re.fullmatch(rf"00-{_TRACE}-([0-9a-f]{{16}})-01", s.headers["traceparent"]) for s in sent]
    assert len({span[1] for span in spans if span}) == 2

    def all_there() -> list[dict[str, Any]]:
        found = lines_of(server, request)
        done = [line for line in found if line["event"] == "chat_ended"]
        return found if len(done) == 2 and any(line["event"] == "turn_ended" for line in found) else []

    found = until("the lines of the request", all_there)
    said = {(line["process"], line["event"]) for line in found}
    assert said >= {
        ("spawner", "jail_started"),
        ("core", "jail_ready"),
        ("core", "turn_accepted"),
        ("core", "turn_ended"),
        ("egress", "chat_ended"),
    }
    for line in found:
        assert line["request_id"] == request
        if line["event"] in ("turn_accepted", "turn_ended", "chat_ended"):
            assert (line["turn"], line["trace_id"]) == (turn, _TRACE)

    with person.client() as client:
        events = client.get("/sessions/ids/events?after=0&until=idle", cast_to=str)
    first = json.loads(events.partition("data: ")[2].partition("\n")[0])
    assert (first["type"], first["request"]) == ("accepted", request)


def test_requests_without_a_trace_or_with_a_broken_one_get_fresh_ones(
    server: RealServer, model: FakeModelServer
) -> None:
    person = new_person(server, "no-trace")
    before = len(model.requests)
    model.say(Script(text="a"), Script(text="b"))
    with person.client() as client:
        for headers in ({}, {"traceparent": f"00-{_TRACE}-broken-01"}):
            client.chat.completions.create(
                model="fake", messages=[{"role": "user", "content": "hi"}], extra_headers=headers
            )
    traces = [r.headers["traceparent"].split("-")[1] for r in model.requests[before:]]
    assert len({*traces, _TRACE}) == 3
