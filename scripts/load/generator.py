"""The generator: Locust's users against a running server, in a process of its own.

    python -m scripts.load.generator

reads one JSON object (:class:`Orders`) from its first line of input, prints a line of JSON with the
progress every few seconds and the record (:mod:`scripts.load.record`) as the last, and leaves at the
end of its input.
"""

from gevent import monkey

monkey.patch_all()

import json  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
from typing import Any  # noqa: E402

import gevent  # noqa: E402
import msgspec  # noqa: E402
from locust import User  # noqa: E402
from locust.env import Environment  # noqa: E402

from core.capacity.pace import Pace  # noqa: E402
from scripts.load.orders import Orders  # noqa: E402
from scripts.load.people import make_kind, make_watcher  # noqa: E402
from scripts.load.record import WINDOW_S, Recorder, Window  # noqa: E402

_END_S = 10.0
_WATCHERS = 4
_FLOOR_TOKENS = 600


def main() -> int:
    """See the module."""
    orders = msgspec.json.decode(sys.stdin.readline(), type=Orders)
    record = Recorder(time.monotonic())
    environment = Environment(user_classes=_classes(orders, record), stop_timeout=0)
    runner = environment.create_local_runner()
    people = sum(group.count for group in orders.groups) + _WATCHERS
    runner.start(people, spawn_rate=max(1.0, people / max(orders.arrive_s, 0.1)))
    deadline_s = record.began_s + orders.seconds
    while (left_s := deadline_s - time.monotonic()) > 0 and not runner.exceptions:
        gevent.sleep(min(WINDOW_S, left_s))
        _tell(record, runner.user_count)
    # what ends only because the test does is not a fault
    record_json = [found for found in record.to_json() if found["at_s"] < orders.seconds]
    with gevent.Timeout(_END_S, False):
        runner.quit()
    print(json.dumps({"record": record_json, "exceptions": _exceptions(runner)}), flush=True)
    sys.stdin.read()  # we are still looked at until our input ends
    return 0


def _classes(orders: Orders, record: Recorder) -> list[type[User]]:
    numbered = iter(enumerate(orders.tokens))
    classes = [
        # each group has tokens of its own: a person's agents are made for their group
        make_kind(group, orders.port, iter([next(numbered) for _ in range(group.count)]), record, orders.seed)
        for group in orders.groups
    ]
    judged = next(group for group in orders.groups if group.kind != "abuser")
    floor = Pace(judged.pace.rate_per_s, _FLOOR_TOKENS)
    return [*classes, make_watcher(_WATCHERS, floor, orders.model_port, record)]


def _tell(record: Recorder, users: int) -> None:
    now = int((time.monotonic() - record.began_s) // WINDOW_S)
    window = record.windows.get(now - 1, Window())
    errors = {code: count for code, count in window.ends.items() if code}
    print(
        json.dumps(
            {
                "at_s": round(time.monotonic() - record.began_s),
                "people": users - _WATCHERS,
                "turns_per_s": window.ends.total() / WINDOW_S,
                "tokens_per_s": window.delta.count / WINDOW_S,
                "first_p50_ms": window.first.percentile(0.5),
                "delta_p50_ms": window.delta.percentile(0.5),
                "errors": errors,
            }
        ),
        flush=True,
    )


def _exceptions(runner: Any) -> list[str]:
    """What went wrong in the people's own code: none of it may."""
    return [f"{found['msg']} ({found['count']} times)" for found in runner.exceptions.values()]


if __name__ == "__main__":
    sys.exit(main())
