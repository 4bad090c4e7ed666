"""What a person is asked, for whoever asks in their name over HTTP or a WebSocket."""

import asyncio
from collections.abc import Callable
from typing import Protocol

import structlog

from actors.approvals import Answered
from actors.asking import Resolution
from core.errors import CoreError
from core.sessions import Storage, StorageError
from core.sessions.approvals import ApprovalRecords, ApprovalRow
from core.sessions.asking import ask_storage
from core.vault.handle import UserHandle
from jail.wire.schema import Failure

_ANSWER_S = 15.0
_TRIES, _AGAIN_S = 5, 0.1

_log = structlog.get_logger()


class NoSuchApproval(CoreError):
    """This user was not asked that."""

    def __init__(self) -> None:
        super().__init__("you have no approval of this id; GET /v1/approvals lists those that wait for you")


class AlreadyDecided(CoreError):
    """It is not open any more; ``outcome`` says why, where that is known."""

    def __init__(self, outcome: Resolution | None) -> None:
        why = {"allowed": "was allowed", "refused": "was refused", "expired": "has expired", None: "is over"}
        super().__init__(f"this approval {why.get(outcome, 'is over: its turn ended')}; nothing was changed")
        self.outcome = outcome


class Answers(Protocol):
    """Hands an answer to the user's actor, which decides. Thread-safe; never blocks."""

    def answer_approval(self, user: str, approval: str, allow: bool, answered: Answered) -> None:
        """``answered`` is called once, from any thread; with None where nothing of it is open."""
        ...


class ApprovalDesk:
    """Used on the hub's loop. Every method raises StorageError and SealError."""

    def __init__(self, storage: Storage, answers: Answers) -> None:
        self._storage = storage
        self._answers = answers

    async def open(self, handle: UserHandle) -> list[ApprovalRow]:
        """What waits for this user, oldest first."""
        return await ask_storage(self._storage, handle, lambda store: ApprovalRecords(store).open())

    async def answer(self, handle: UserHandle, approval: str, allow: bool) -> ApprovalRow:
        """Answer one, durably. NoSuchApproval; AlreadyDecided for one that is not open."""
        for _ in range(_TRIES):
            found = await self._find(handle, approval)
            if found.outcome is not None:
                raise AlreadyDecided(found.outcome)
            outcome = await self._decide(handle.user, approval, allow)
            if outcome is not None:
                return found._replace(outcome=outcome)
            # decided between the two looks; or so new that its user's actor does not know that it is kept
            await asyncio.sleep(_AGAIN_S)
        raise AlreadyDecided((await self._find(handle, approval)).outcome)

    async def _find(self, handle: UserHandle, approval: str) -> ApprovalRow:
        found = await ask_storage(self._storage, handle, lambda store: ApprovalRecords(store).find(approval))
        if found is None:
            raise NoSuchApproval
        return found

    async def _decide(self, user: str, approval: str, allow: bool) -> Resolution | None:
        loop = asyncio.get_running_loop()
        decided: asyncio.Future[Resolution | None] = loop.create_future()

        def settle(set_: Callable[[], None]) -> None:
            try:
                loop.call_soon_threadsafe(lambda: None if decided.done() else set_())
            except RuntimeError:
                _log.debug("approval_answer_came_after_loop")  # the loop closed: nobody waits

        def answered(outcome: Resolution | None, failure: Failure | None) -> None:
            if failure is not None:
                error = StorageError("unavailable", f"the answer did not count: {failure.message}")
                settle(lambda: decided.set_exception(error))
            else:
                settle(lambda: decided.set_result(outcome))

        self._answers.answer_approval(user, approval, allow, answered)
        try:
            async with asyncio.timeout(_ANSWER_S):
                return await decided
        except TimeoutError:
            raise StorageError(
                "unavailable", "answering took too long: see whether it is still open"
            ) from None
