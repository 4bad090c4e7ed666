"""Files on their way from a jail to egress: piece by piece, in turn, whole or not at all."""

from typing import Any

from actors.calls import CallSpec
from core.egress.attached import MAX_CHAT_BYTES, Attached
from core.egress.messages import ChatFile
from core.gathering import MAX_FILES_BYTES, Gatherings, wanted_files
from jail.wire.schema import TEXT_SHOWN_BYTES, Attachment, Failure, FileChunk, FileInfo, FileRead, Message
from tests.fakes.handle import FakeHandle

ALICE = FakeHandle("alice")


class FakeCalls:
    """Jails that are asked and answer when told."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.asked: list[CallSpec] = []
        self.marks: list[str] = []
        self.cancelled: list[CallSpec] = []

    def call(self, spec: CallSpec) -> None:
        self.asked.append(spec)

    def grant_call(self, spec: CallSpec, count: int) -> None:
        raise AssertionError("a piece needs no more credit than there is")

    def cancel_call(self, spec: CallSpec) -> None:
        self.cancelled.append(spec)

    def answer(self) -> None:
        """Answer the last question."""
        spec, body = self.asked[-1], self.asked[-1].body
        assert isinstance(body, FileRead)
        self.marks.append(body.mark)
        data = self.files.get(body.path)
        if data is None:
            spec.sink.finish(Failure("not_found", "there is nothing at this path"))
            return
        part = data[body.offset :][: body.length]
        for at in range(0, len(part), 65_536):
            spec.sink.item(FileChunk(part[at : at + 65_536]))
        spec.sink.finish(FileInfo("file", len(data), 1, "5a"))


def picture(path: str, size: int) -> Attachment:
    return Attachment(path, "image/png", size)


def test_a_file_goes_in_pieces_each_once_the_one_before_was_taken() -> None:
    data = bytes(300_000)
    calls = FakeCalls({"a.png": data})
    sent: list[Any] = []
    ends: list[Any] = []
    gatherings = Gatherings(calls)
    gatherings.begin(
        7, ALICE, [picture("a.png", len(data))], sent.append, lambda: ends.append("start"), ends.append
    )
    for count in (1, 2, 3):
        calls.answer()
        assert len(sent) == count
        assert not ends
        gatherings.taken(7)
    assert ends == ["start"]
    assert all(isinstance(piece, ChatFile) and piece.id == 7 for piece in sent)
    assert b"".join(piece.data for piece in sent) == data
    assert max(len(piece.data) for piece in sent) <= 128 << 10
    assert calls.marks == ["", "5a", "5a"]


def test_a_file_that_is_gone_or_another_by_now_is_left_out() -> None:
    calls = FakeCalls({"b.png": bytes(9), "c.png": bytes(5)})
    sent: list[Any] = []
    ends: list[Any] = []
    gatherings = Gatherings(calls)
    files = [picture("a.png", 5), picture("b.png", 5), picture("c.png", 5)]
    gatherings.begin(1, ALICE, files, sent.append, lambda: ends.append("start"), ends.append)
    for _ in files:
        calls.answer()
    assert [piece.path for piece in sent] == ["c.png"]
    gatherings.taken(1)
    assert ends == ["start"]


def test_a_jail_that_cannot_answer_fails_the_chat() -> None:
    calls = FakeCalls({})
    ends: list[Any] = []
    Gatherings(calls).begin(
        1, ALICE, [picture("a", 5)], ends.append, lambda: ends.append("start"), ends.append
    )
    failure = Failure("overloaded", "too many")
    calls.asked[-1].sink.finish(failure)
    assert ends == [failure]


def test_the_ninth_waits_for_one_of_eight_and_a_chat_that_ends_lets_it_in() -> None:
    calls = FakeCalls({"a.png": bytes(5)})
    ends: list[Any] = []
    gatherings = Gatherings(calls)
    for number in range(9):
        gatherings.begin(number, ALICE, [picture("a.png", 5)], ends.append, lambda: None, ends.append)
    assert len(calls.asked) == 8
    gatherings.end(3)
    assert calls.cancelled == [calls.asked[3]]
    assert len(calls.asked) == 9
    gatherings.end_all()
    assert len(calls.cancelled) == 9
    for spec in calls.asked:
        spec.sink.finish(Failure("cancelled", "no longer wanted"))
    assert not ends


def test_the_latest_files_are_carried_and_each_once() -> None:
    large = MAX_FILES_BYTES // 2
    old, new = picture("old", large), picture("new", large)
    text = Attachment("t", "text/plain", 10**9)
    messages = [Message("user", attachments=(old,)), Message("user", attachments=(new, new))]
    assert wanted_files(messages) == [new, old]
    assert wanted_files([*messages, Message("user", attachments=(text,))]) == [text, new]
    assert TEXT_SHOWN_BYTES < 10**6


def test_egress_holds_no_more_than_its_bounds() -> None:
    attached = Attached()
    assert attached.add(ChatFile(1, "a", b"x" * 10)) is None
    assert attached.add(ChatFile(1, "a", b"y")) is None
    assert attached.files(1) == {"a": b"x" * 10 + b"y"}
    refusal: Any = attached.add(ChatFile(1, "b", bytes(MAX_CHAT_BYTES)))
    assert refusal.code == "limit"
    piece = bytes(MAX_CHAT_BYTES)
    answers = [attached.add(ChatFile(chat, "a", piece)) for chat in range(2, 7)]
    assert [a.code if a else "" for a in answers] == ["", "", "", "", "overloaded"]
    attached.drop(2)
    assert attached.add(ChatFile(9, "a", piece)) is None
