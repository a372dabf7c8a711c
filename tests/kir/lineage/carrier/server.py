"""A loopback HTTP server that speaks both chat protocols, and misbehaves on demand."""
from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Says:
    """One scripted response. `text` is what the model says; the rest is how the server goes wrong while saying it: `status` instead of 200,
    `headers` with it, `cut` ends the connection after so many pieces, `stall` waits that long after the first, `counts` are the tokens that
    it claims (None: none; absent: about the truth), `raw` is sent as the body instead of anything sensible, `delay` comes before everything,
    `drip` sends headers a byte at a time."""

    text: str = ""
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    cut: int | None = None
    stall: float = 0.0
    counts: tuple[int, int] | bool | None = True
    raw: bytes | None = None
    delay: float = 0.0
    finish: str = "stop"
    pings: float = 0.0
    endless: bool = False
    drip: float = 0.0


@dataclass
class Loopback:
    """The running server: its address, and the requests it got, in order."""

    url: str
    script: Callable[[int, dict[str, Any]], Says]
    requests: list[dict[str, Any]] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512
    state: Loopback


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        state = self.server.state
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with state.lock:
            number = len(state.requests)
            state.requests.append({"path": self.path, "headers": dict(self.headers), "body": body})
        says = state.script(number, body)
        state.stopped.wait(says.delay) if says.delay else None
        with suppress(BrokenPipeError, ConnectionResetError):
            self._answer(says, "messages" in self.path.rsplit("/", 1)[-1], body)
        self.close_connection = True

    def _answer(self, says: Says, anthropic: bool, body: dict[str, Any]) -> None:
        if says.status != 200:
            return self._whole(says.status, json.dumps({"type": "error", "error": {"type": "x", "message": says.text}}).encode(), says.headers)
        if says.drip:
            self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            while not self.server.state.stopped.wait(says.drip):
                self.wfile.write(b"x")
                self.wfile.flush()
            return None
        if says.raw is not None:
            return self._whole(200, says.raw, (("Content-Type", "text/event-stream"), *says.headers))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        prompt = json.dumps(body)
        counts = (len(prompt) // 4, max(1, len(says.text) // 4)) if says.counts is True else says.counts
        for number, piece in enumerate(_anthropic(says, counts) if anthropic else _openai(says, counts)):
            if says.cut is not None and number >= says.cut:
                return
            self.wfile.write(piece)
            self.wfile.flush()
            if number == 0 and says.stall:
                self.server.state.stopped.wait(says.stall)
            while number == 1 and says.pings:
                self.wfile.write(b": ping\n\n")
                self.wfile.flush()
                if self.server.state.stopped.wait(says.pings):
                    return

    def _whole(self, status: int, data: bytes, headers: tuple[tuple[str, str], ...]) -> None:
        self.send_response(status)
        for name, value in (("Content-Length", str(len(data))), ("Connection", "close"), *headers):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)


def _event(value: dict[str, Any]) -> bytes:
    name = f"event: {value['type']}\n" if "type" in value else ""
    return f"{name}data: {json.dumps(value)}\n\n".encode()


def _pieces(says: Says) -> Iterator[str]:
    size = max(1, -(-len(says.text) // 8))
    yield from (says.text[i:i + size] for i in range(0, len(says.text), size))
    while says.endless:
        yield "x" * 65536


def _openai(says: Says, counts: Any) -> Iterator[bytes]:
    base = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "m"}
    yield _event({**base, "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]})
    for text in _pieces(says):
        yield _event({**base, "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]})
    yield _event({**base, "choices": [{"index": 0, "delta": {}, "finish_reason": says.finish}]})
    if counts:
        yield _event({**base, "choices": [], "usage": {"prompt_tokens": counts[0], "completion_tokens": counts[1], "total_tokens": sum(counts)}})
    yield b"data: [DONE]\n\n"


def _anthropic(says: Says, counts: Any) -> Iterator[bytes]:
    usage = {"input_tokens": counts[0], "output_tokens": 1} if counts else {}
    yield _event({"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "content": [], "model": "m",
                                                       "stop_reason": None, "stop_sequence": None, "usage": usage}})
    yield _event({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
    for text in _pieces(says):
        yield _event({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}})
    yield _event({"type": "content_block_stop", "index": 0})
    reason = {"stop": "end_turn", "length": "max_tokens"}[says.finish]
    yield _event({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": counts[1]} if counts else {}})
    yield _event({"type": "message_stop"})


@contextmanager
def loopback(script: Callable[[int, dict[str, Any]], Says] | list[Says], port: int = 0) -> Iterator[Loopback]:
    """A running server. A list is said one a request, its last for ever."""
    say = script if callable(script) else lambda number, body: script[min(number, len(script) - 1)]
    server = _Server(("127.0.0.1", port), _Handler)
    state = server.state = Loopback(f"http://127.0.0.1:{server.server_address[1]}", say)
    thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.01), daemon=True)
    thread.start()
    try:
        yield state
    finally:
        state.stopped.set()
        server.shutdown()
        server.server_close()
        thread.join(timeout=5)


