"""A model server that speaks at a set pace: OpenAI's chat completions, each token the time it was sent.

    python -m core.capacity.pace

prints its port and serves on 127.0.0.1 until its input ends. The model's name says what comes:
``pace-RATE-TOKENS`` is TOKENS tokens at RATE a second, the first at once; ``pace-RATE-TOKENS-ROUNDS``
calls the tool ``run_command`` ROUNDS times before that. A token is ``@SECONDS `` of the machine's
monotonic clock, so whoever reads it in whatever process knows how long it was under way.
"""

import asyncio
import json
import re
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from aiohttp import web

STAMP = re.compile(rb"@(\d+\.\d{6}) ")
"""A token in an answer's bytes."""

_MODEL = re.compile(r"pace-(\d+(?:\.\d+)?)-(\d+)(?:-(\d+))?")
_COMMAND = json.dumps({"command": "echo working > note; wc -c note"})
_MAX_BODY_BYTES = 32 << 20
_END_S = 0.5


@dataclass(frozen=True, slots=True)
class Pace:
    """``tokens`` at ``rate_per_s``, after ``rounds`` of tool calls."""

    rate_per_s: float
    tokens: int
    rounds: int = 0

    @property
    def model(self) -> str:
        """Its name."""
        return f"pace-{self.rate_per_s:g}-{self.tokens}" + (f"-{self.rounds}" if self.rounds else "")


def parse_pace(model: str) -> Pace | None:
    """What a model's name says; None for a name that is none of ours."""
    found = _MODEL.fullmatch(model)
    if found is None or float(found[1]) <= 0:
        return None
    return Pace(float(found[1]), int(found[2]), int(found[3] or 0))


def stamps_s(data: bytes) -> list[float]:
    """When the tokens in some bytes were sent (in seconds of the monotonic clock)."""
    return [float(found) for found in STAMP.findall(data)]


async def _chat(request: web.Request) -> web.StreamResponse:
    body = await request.json()
    pace = parse_pace(str(body.get("model", "")))
    if pace is None:
        return web.json_response({"error": {"message": "the model is pace-RATE-TOKENS"}}, status=404)
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    try:
        await response.prepare(request)
        async for data in _events(pace, body):
            await response.write(data)
    except ConnectionError:  # the client left while it was written to
        pass
    return response


async def _events(pace: Pace, body: Any) -> AsyncIterator[bytes]:
    called = _rounds_done(body["messages"])
    finish, tokens = "stop", pace.tokens
    if called < pace.rounds:
        finish, tokens = "tool_calls", 0
        call = {
            "index": 0,
            "id": f"call_{called}",
            "type": "function",
            "function": {"name": "run_command", "arguments": _COMMAND},
        }
        yield _chunk({"tool_calls": [call]})
    loop = asyncio.get_running_loop()
    due_s = loop.time()
    for _ in range(tokens):
        yield _chunk({"content": f"@{time.monotonic():.6f} "})
        due_s += 1 / pace.rate_per_s
        await asyncio.sleep(max(0.0, due_s - loop.time()))
    yield _chunk({}, finish)
    usage = {"prompt_tokens": 10, "completion_tokens": tokens}
    yield b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n"
    yield b"data: [DONE]\n\n"


def _rounds_done(messages: list[Any]) -> int:
    """How many tool results came since the user spoke last."""
    done = 0
    for message in reversed(messages):
        if message.get("role") == "user":
            break
        done += message.get("role") == "tool"
    return done


def _chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({"object": "chat.completion.chunk", "choices": [choice]}).encode() + b"\n\n"


async def _serve() -> None:
    app = web.Application(client_max_size=_MAX_BODY_BYTES)
    app.router.add_post("/v1/chat/completions", _chat)
    # a client that leaves ends its answer
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=_END_S)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    sys.stdout.write(f"{runner.addresses[0][1]}\n")
    sys.stdout.flush()
    try:
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    finally:
        await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(_serve())
