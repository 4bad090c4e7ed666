"""A worker process with a fake core end."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from jail.wire.schema import Message
from tests.fakes.core_end import Answer, CoreEnd
from tests.fakes.plain_worker import PlainWorker, make_library


class Pair(NamedTuple):
    """A worker and core's end of its edge."""

    worker: PlainWorker
    core: CoreEnd


Start = Callable[..., Pair]


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a jail sees as /certosa/lib."""
    return make_library(tmp_path_factory.mktemp("lib"))


@pytest.fixture
def start(library: Path, tmp_path: Path) -> Iterator[Start]:
    """Starts a worker with a scripted model and a history; all of it is ended afterwards."""
    started: list[PlainWorker] = []

    def begin(
        *answers: Answer,
        history: Iterable[Message] = (Message("user", "Hello"),),
        start_script: bool = False,
        before: str = "",
    ) -> Pair:
        worker = PlainWorker(library, tmp_path, start_script=start_script, before=before)
        started.append(worker)
        return Pair(worker, CoreEnd(worker.sock, answers, history))

    yield begin
    for worker in started:
        worker.close()
