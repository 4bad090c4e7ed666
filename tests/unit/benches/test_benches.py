from jail.wire.connection import Connection
from jail.wire.schema import StepBegin
from scripts.benches import _hop_worker
from scripts.benches.dispatch import names

_TURN = "turn_0123456789abcdef"


def test_the_benchmarks_are_these() -> None:
    assert {"events", "files", "first-token", "flood", "hop", "idle", "memory"} <= set(names())
    assert not [name for name in names() if name.startswith("-")]


def test_a_verb_of_the_hop_is_a_frame_of_200_bytes() -> None:
    worker, core = Connection("worker", 0.0, 1.0), Connection("core", 0.0, 1.0)
    core.receive(worker.hello("bench"))
    for answer in core.take_answers():
        worker.receive(answer)
    question = _hop_worker._question(_TURN, 1_000)
    assert isinstance(question, StepBegin)
    sizes = set()
    for _ in range(400):
        _, frame = worker.request(question)
        sizes.add(len(frame))
    # a request's id grows from one byte to three
    assert sizes <= {198, 199, 200}
    assert max(sizes) == 200
