"""A model server that answers on purpose: OpenAI's and Anthropic's wire formats over a real socket.

In a test with an event loop:

    async with FakeModelServer() as server:
        server.say(Script(text="hello"), Script(misbehave="stall"))

in a test without one, :func:`running_model_server`; as a program

    python -m tests.fakes.model_server --port 0 [--rate TOKENS_PER_S] [--tokens N]

which prints its base URL as the first line. Scripts are used up in order; without one the model's
name decides: ``pace-RATE-TOKENS`` streams TOKENS tokens at RATE a second, ``bad-NAME`` misbehaves as
NAME (see :data:`tests.fakes.model_script.Misbehaviour`), any other answers "You said: ..." from the
last user message.
"""

import argparse
import asyncio
import gzip
import json
import re
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, get_args

from aiohttp import web

from tests.fakes import anthropic_format
from tests.fakes.model_script import Call, Misbehaviour, Script
from tests.fakes.model_script import tokens as split

__all__ = ["Call", "FakeModelServer", "Misbehaviour", "Recorded", "Script", "running_model_server"]


@dataclass(frozen=True)
class Recorded:
    """A request as it came."""

    path: str
    headers: dict[str, str]
    body: Any


class FakeModelServer:
    """The server. Start and stop it in one event loop; ``say`` and the records are for any thread."""

    def __init__(self, rate_per_s: float = 0.0, tokens: int = 0, keep_alive: bool = True) -> None:
        self.requests: list[Recorded] = []
        self.url = ""
        self.left = threading.Semaphore(0)
        """Released each time a client went away before its answer was whole; a new one from ``say``."""
        self.bytes_sent = 0
        self.models: Any = {"object": "list", "data": [{"id": "m1", "object": "model"}, {"id": "m2"}]}
        """What GET /v1/models answers, as JSON; a web.Response is sent as it is."""
        self._scripts: deque[Script] = deque()
        self._default = (rate_per_s, tokens)
        self._runner: web.AppRunner | None = None
        self._closing = asyncio.Event()
        self._keep_alive = keep_alive

    def say(self, *scripts: Script) -> None:
        """Queue what the next requests are answered with; who left before counts no more."""
        self.left = threading.Semaphore(0)
        self._scripts.extend(scripts)

    def forget(self) -> None:
        """Drop what was queued and not asked for."""
        self._scripts.clear()

    async def start(self, port: int = 0) -> "FakeModelServer":
        """Listen on 127.0.0.1; ``url`` is then the base URL, up to and with /v1."""
        app = web.Application(client_max_size=64 << 20)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/v1/messages", self._chat)
        app.router.add_get("/v1/models", self._list_models)
        if not self._keep_alive:
            app.on_response_prepare.append(_close_after)
        # a client that leaves cancels its handler: that is how its leaving is seen
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.5)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port)
        await site.start()
        port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{port}/v1"
        return self

    async def stop(self) -> None:
        """Close everything, running answers too."""
        self._closing.set()
        if self._runner is not None:
            await self._runner.cleanup()

    async def __aenter__(self) -> "FakeModelServer":
        return await self.start()

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    async def _list_models(self, request: web.Request) -> web.Response:
        self.requests.append(Recorded(request.path, dict(request.headers), None))
        return self.models if isinstance(self.models, web.Response) else web.json_response(self.models)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests.append(Recorded(request.path, dict(request.headers), body))
        script = self._scripts.popleft() if self._scripts else self._by_model(body)
        left = self.left
        try:
            return await self._answer(request, script, body)
        except (asyncio.CancelledError, ConnectionError) as gone:
            if not self._closing.is_set():
                left.release()
            if isinstance(gone, ConnectionError):
                return web.Response(status=499)  # to nobody
            raise

    def _by_model(self, body: Any) -> Script:
        model = str(body.get("model", ""))
        if found := re.fullmatch(r"pace-(\d+(?:\.\d+)?)-(\d+)", model):
            return Script(text="tok " * int(found[2]), rate_per_s=float(found[1]))
        if model.startswith("bad-") and model[4:] in get_args(Misbehaviour):
            name: Any = model[4:]
            return Script(text="some words before", misbehave=name)
        rate_per_s, tokens = self._default
        if tokens:
            return Script(text="tok " * tokens, rate_per_s=rate_per_s)
        said = next((m["content"] for m in reversed(body["messages"]) if m["role"] == "user"), "")
        if isinstance(said, list):
            said = "".join(part.get("text", "") for part in said)
        if isinstance(said, list):
            said = "".join(block.get("text", "") for block in said)
        return Script(text=f"You said: {said}", rate_per_s=rate_per_s)

    async def _answer(self, request: web.Request, script: Script, body: Any) -> web.StreamResponse:
        special = await self._unstreamed(request, script, bool(body.get("stream")))
        if special is not None:
            return special
        headers = {"Content-Type": "text/event-stream", **script.headers}
        response = web.StreamResponse(status=200, headers=headers)
        await response.prepare(request)
        events = self._messages_events if _anthropic(request) else self._events
        async for data in events(script, body):
            self.bytes_sent += len(data)
            await response.write(data)
        if script.misbehave in ("stall", "hang_after_finish"):
            await self._closing.wait()
        elif script.misbehave == "reset":
            assert request.transport is not None
            request.transport.abort()
        return response

    async def _unstreamed(
        self, request: web.Request, script: Script, streamed: bool
    ) -> web.StreamResponse | None:
        if script.status != 200:
            return web.Response(status=script.status, headers=script.headers, body=script.error_body.encode())
        if script.misbehave == "slow_headers":
            await self._closing.wait()
            return web.Response(status=503)
        if script.misbehave == "html":
            return web.Response(text="<html>hello</html>", content_type="text/html")
        if script.misbehave == "redirect":
            return web.Response(status=307, headers={"Location": str(request.url)})
        if script.misbehave == "gzip_bomb":
            bomb = gzip.compress(b"data: " + bytes(64 << 20), 1)
            headers = {"Content-Type": "text/event-stream", "Content-Encoding": "gzip"}
            return web.Response(body=bomb, headers=headers)
        if _anthropic(request) and (script.misbehave == "plain_json" or not streamed):
            return web.json_response(anthropic_format.whole(script, "fake"))
        if script.misbehave == "plain_json":
            return web.json_response(_whole(script))
        return None

    async def _events(self, script: Script, body: Any) -> AsyncIterator[bytes]:
        if script.raw_events:
            for raw in script.raw_events:
                yield raw.encode()
            return
        model = str(body.get("model", ""))
        async for choice in self._choices(script):
            yield _event(model, choice)
        bad = _BAD_EVENTS.get(script.misbehave or "")
        if bad is not None:
            yield bad
        if script.misbehave in ("stall", "cut", "reset"):
            return
        if script.misbehave in ("endless", "huge_line", "trickle"):
            async for data in self._for_ever(script.misbehave, model):
                yield data
        for choice in _call_choices(script.calls):
            yield _event(model, choice)
        finish = script.finish or ("tool_calls" if script.calls else "stop")
        yield _event(model, {"index": 0, "delta": {}, "finish_reason": finish})
        if script.misbehave in ("no_done", "hang_after_finish"):
            return
        usage = {"prompt_tokens": 7, "completion_tokens": len(split(script.text))}
        yield _data({"object": "chat.completion.chunk", "choices": [], "usage": usage})
        yield b"data: [DONE]\n\n"

    async def _messages_events(self, script: Script, body: Any) -> AsyncIterator[bytes]:
        if script.raw_events:
            for raw in script.raw_events:
                yield raw.encode()
            return
        model = str(body.get("model", ""))
        async for data in anthropic_format.events(script, model):
            yield data
        if script.misbehave in ("stall", "cut", "reset"):
            return
        if script.misbehave in ("endless", "huge_line", "trickle"):
            async for data in self._for_ever(script.misbehave, model):
                ping = anthropic_format.event({"type": "ping"})
                piece = anthropic_format.endless_piece()
                yield {"endless": piece, "trickle": data + ping}.get(script.misbehave, data)
        for data in anthropic_format.closing(script):
            yield data

    async def _choices(self, script: Script) -> AsyncIterator[dict[str, Any]]:
        yield {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        for key, text in (("reasoning_content", script.reasoning), ("content", script.text)):
            for token in split(text):
                yield {"index": 0, "delta": {key: token}, "finish_reason": None}
                if script.rate_per_s:
                    due_s += 1 / script.rate_per_s
                    await asyncio.sleep(max(0.0, due_s - loop.time()))

    async def _for_ever(self, how: str, model: str) -> AsyncIterator[bytes]:
        if how == "huge_line":
            yield b"data: "
        while not self._closing.is_set():
            if how == "endless":
                token = {"index": 0, "delta": {"content": "x" * 1_000}, "finish_reason": None}
                yield _event(model, token)
            elif how == "huge_line":
                yield b"x" * 65_536
            else:
                yield b": still here\n"
                await asyncio.sleep(0.02)


_BAD_EVENTS = {
    "not_json": b"data: {this is not JSON\n\n",
    "wrong_shape": b'data: {"choices": [{"delta": {"content": 7}}]}\n\n',
    "error_event": b'data: {"error": {"message": "the model fell over", "code": 500}}\n\n',
}


async def _close_after(_: web.Request, response: web.StreamResponse) -> None:
    response.force_close()
    response.headers["Connection"] = "close"  # said as well: a client would use it for its next request


def _anthropic(request: web.Request) -> bool:
    return request.path.endswith("/messages")


def _data(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def _event(model: str, choice: dict[str, Any]) -> bytes:
    chunk = {"id": "chatcmpl-fake", "object": "chat.completion.chunk", "created": 1}
    return _data({**chunk, "model": model, "choices": [choice]})


def _call_choices(calls: tuple[Call, ...]) -> Iterator[dict[str, Any]]:
    """Each call in three fragments: its id and name, then its arguments in two halves."""
    for index, call in enumerate(calls):
        first: dict[str, Any] = {"index": index, "type": "function", "function": {"arguments": ""}}
        if call.id is not None:
            first["id"] = call.id
        if call.name is not None:
            first["function"]["name"] = call.name
        half = len(call.arguments) // 2
        rest = [
            {"index": index, "function": {"arguments": part}}
            for part in (call.arguments[:half], call.arguments[half:])
        ]
        for fragment in (first, *rest):
            yield {"index": 0, "delta": {"tool_calls": [fragment]}, "finish_reason": None}


def _whole(script: Script) -> dict[str, Any]:
    calls = [
        {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
        for c in script.calls
    ]
    message = {"role": "assistant", "content": script.text, "tool_calls": calls or None}
    finish = script.finish or ("tool_calls" if calls else "stop")
    return {
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 7, "completion_tokens": len(split(script.text))},
    }


@contextmanager
def running_model_server(keep_alive: bool = True) -> Iterator[FakeModelServer]:
    """The server on a thread with a loop of its own, for tests that have none."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="fake-model-server")
    thread.start()

    async def start() -> FakeModelServer:
        return await FakeModelServer(keep_alive=keep_alive).start()

    try:
        server = asyncio.run_coroutine_threadsafe(start(), loop).result(10)
        try:
            yield server
        finally:
            asyncio.run_coroutine_threadsafe(server.stop(), loop).result(10)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


async def _serve(port: int, rate_per_s: float, tokens: int) -> None:
    server = await FakeModelServer(rate_per_s, tokens).start(port)
    print(server.url, flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        await server.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="a fake model server on 127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--rate", type=float, default=0.0, help="tokens a second; 0: no pause")
    parser.add_argument("--tokens", type=int, default=0, help="of each answer; 0: cite the request")
    given = parser.parse_args()
    try:
        asyncio.run(_serve(given.port, given.rate, given.tokens))
    except KeyboardInterrupt:
        pass
