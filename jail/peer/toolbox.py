"""Runs the tool calls of a round: checks them, journals them, bounds what they answer.

What a model gets wrong (an unknown tool, arguments that are not what the tool takes) goes back to
it as a failed result, and the turn goes on.
"""

from collections.abc import Mapping
from typing import Protocol

import msgspec
from msgspec.structs import asdict

from jail.peer.draft import Draft
from jail.peer.errors import AskFailed, ToolFailed
from jail.peer.items import ItemQueue
from jail.peer.loop_state import LoopState, Stop
from jail.peer.results import shorten
from jail.peer.texts import clean
from jail.peer.tools.base import Surroundings, Tool, ToolResult, spec_of
from jail.wire.schema import (
    Agent,
    ApprovalAsk,
    Body,
    PictureShown,
    StepBegin,
    StepEnd,
    ToolCall,
    ToolEnded,
    ToolProgress,
    ToolSpec,
    ToolStarted,
)

_ASK_S = 30.0
_NOT_ALLOWED = ("refused", "approval_required")
_MAX_STEPS = 100_000  # the schema's bound


class Asker(Protocol):
    """What tools need of the edge."""

    async def ask(self, body: Body, timeout_s: float) -> Body:
        """One question, one answer; raises AskFailed."""
        ...


class Toolbox:
    """The tools of one turn.

    Args:
        turn: the turn's id.
        agent: says which tools may be used, and their limits.
        known: every tool there is, by name.
        edge: to journal steps.
        around: the home, the children, where things happen.
        first_step: the number of the first call.
    """

    def __init__(
        self,
        turn: str,
        agent: Agent,
        known: Mapping[str, Tool],
        edge: Asker,
        around: Surroundings,
        first_step: int = 1,
    ) -> None:
        self._turn = turn
        self._limits = agent.limits
        self._asks = frozenset(agent.ask)
        self._tools = {name: known[name] for name in agent.tools if name in known}
        self._edge = edge
        self._around = around
        self._step = first_step - 1
        self.specs: tuple[ToolSpec, ...] = tuple(spec_of(tool) for tool in self._tools.values())

    async def run_round(self, draft: Draft, state: LoopState, items: ItemQueue) -> Stop | None:
        """Run the draft's calls in order and add their results to it; a Stop ends the turn."""
        failed = 0
        for call in draft.calls:
            stop = state.before_call(call.name, call.arguments)
            if stop is None and self._step >= _MAX_STEPS:
                stop = Stop("rounds", f"Stopped after {_MAX_STEPS} tool calls.")
            if stop is not None:
                return stop
            self._step += 1
            step = self._step
            draft.begun += 1
            await items.put(ToolStarted(step, call.name, call.arguments))
            result = await self._run(step, call, items)
            name = f"{self._turn}-{step}"
            text = shorten(clean(result.text), self._limits.tool_result_bytes, self._around.home, name)
            state.after_call(call.name, call.arguments, text)
            draft.add_result(call, text, result.picture)
            failed += not result.ok
            if result.picture is not None:
                # before the result: what a turn goes on from after an interruption ends with one
                await items.put(PictureShown(**asdict(result.picture), step=step))
            await items.put(ToolEnded(step, result.ok, text))
        state.end_round(len(draft.calls), failed)
        return None

    async def _run(self, step: int, call: ToolCall, items: ItemQueue) -> ToolResult:
        tool = self._tools.get(call.name)
        if tool is None:
            return ToolResult(False, f"There is no tool of that name. {self._offer()}")
        try:
            arguments = msgspec.json.decode(call.arguments or "{}", type=tool.arguments)
        except (msgspec.MsgspecError, RecursionError) as error:
            text = f"The arguments of {call.name} have to be a JSON object of its parameters: {error}."
            return ToolResult(False, text)
        try:
            if call.name in self._asks:
                # while a person is asked the turn is held, and these seconds do not count
                await self._edge.ask(ApprovalAsk(self._turn, step, call.name, call.arguments), _ASK_S)
            await self._edge.ask(StepBegin(self._turn, step, call.name, call.arguments), _ASK_S)
        except AskFailed as failed:
            if failed.failure.code not in _NOT_ALLOWED:
                raise
            return ToolResult(False, f"Not allowed: {failed.failure.message}")

        def progress(text: str) -> None:
            if not items.full:
                items.add(ToolProgress(step, text))

        try:
            result = await tool.run(arguments, self._around.for_step(progress, self._limits))
        except ToolFailed as error:
            result = ToolResult(False, str(error))
        except OSError as error:
            result = ToolResult(False, f"{call.name} failed: {error.strerror or error}.")
        await self._edge.ask(StepEnd(self._turn, step, result.ok), _ASK_S)
        return result

    def _offer(self) -> str:
        return f"There are: {', '.join(self._tools)}." if self._tools else "There are none here."
