"""Replies as they come over the wire: server-sent events, cut off at a size and at a deadline. Used for both protocols."""
from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

from kir.base.dataclass import dataclass

MOST_BYTES = 2 << 20
"""Bytes of one reply on the wire, after which it is cut off."""

Kind = Literal["key", "model", "request", "limit", "server", "network", "cut", "silent", "late", "long", "form"]


class Failure(Exception):
    """A call that gave no reply. `kind` says what is to be done: `key`, `model` and `request` are final; `limit`, `server` and `network` may
    be tried again; `cut`, `silent`, `late`, `long` and `form` came after the server had begun, and may have cost something."""

    def __init__(self, kind: Kind, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.kind: Kind = kind
        self.message = message
        self.retry_after = retry_after

    @property
    def begun(self) -> bool:
        """Whether the server had begun to reply, so that it may charge."""
        return self.kind in ("cut", "silent", "late", "long", "form")

    @property
    def passing(self) -> bool:
        """Whether another try may do better."""
        return self.kind in ("limit", "server", "network", "cut", "silent")


@dataclass(frozen=True)
class Counted:
    """A whole reply: its text, the tokens that the server says it took (None where it does not), and why it ended."""

    text: str
    input: int | None
    output: int | None
    finish: str = ""


def events(pieces: Iterable[bytes], late: Callable[[], bool]) -> Iterator[dict[str, Any]]:
    """The JSON objects of the `data:` lines. Raises Failure: `late` past the deadline, `long` past `MOST_BYTES`, `form` for what is no UTF-8,
    no JSON, or no event stream."""
    held, total = b"", 0
    for piece in pieces:
        if late():
            raise Failure("late", "the reply took longer than one call may")
        total += len(piece)
        if total > MOST_BYTES:
            raise Failure("long", f"the reply is longer than {MOST_BYTES} bytes")
        *lines, held = (held + piece).split(b"\n")
        for line in lines:
            if (event := _event(line.rstrip(b"\r"))) is not None:
                yield event
    if (event := _event(held.rstrip(b"\r"))) is not None:
        yield event


def _event(line: bytes) -> dict[str, Any] | None:
    if not line.startswith(b"data:") or line[5:].strip() in (b"[DONE]", b""):
        if line[:1] in (b"{", b"<"):
            raise Failure("form", "the reply is no stream of events")
        return None
    try:
        value = json.loads(line[5:].decode("utf-8"))
    except UnicodeDecodeError:
        raise Failure("form", "the reply is not UTF-8") from None
    except (ValueError, RecursionError):
        raise Failure("form", "an event of the reply is no JSON") from None
    if not isinstance(value, dict):
        raise Failure("form", "an event of the reply is no JSON object")
    return value


def openai_reply(stream: Iterable[dict[str, Any]]) -> Counted:
    """A chat completion put together from its chunks. Raises Failure `cut` when it does not come to an end, `server` for an error event."""
    parts: list[str] = []
    finish = ""
    used: dict[str, Any] = {}
    for event in stream:
        _no_error(event)
        for choice in _list(event, "choices"):
            text = _dict(choice, "delta").get("content")
            parts += [text] if isinstance(text, str) else []
            finish = str(choice.get("finish_reason") or finish)
        used = _dict(event, "usage") or used
    if not finish:
        raise Failure("cut", "the reply was cut off in the middle")
    return Counted(_joined(parts), _count(used, "prompt_tokens"), _count(used, "completion_tokens"), finish)


def anthropic_reply(stream: Iterable[dict[str, Any]]) -> Counted:
    """A message put together from its events. Raises Failure as `openai_reply`."""
    parts: list[str] = []
    finish, ended = "", False
    input: int | None = None
    output: int | None = None
    for event in stream:
        _no_error(event)
        kind = event.get("type")
        if kind == "message_start":
            used = _dict(_dict(event, "message"), "usage")
            counts = [_count(used, name) for name in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")]
            input = sum(c for c in counts if c is not None) if counts[0] is not None else None
        elif kind == "content_block_delta":
            text = _dict(event, "delta").get("text")
            parts += [text] if isinstance(text, str) else []
        elif kind == "message_delta":
            finish = str(_dict(event, "delta").get("stop_reason") or finish)
            output = _count(_dict(event, "usage"), "output_tokens")
        elif kind == "message_stop":
            ended = True
    if not ended:
        raise Failure("cut", "the reply was cut off in the middle")
    return Counted(_joined(parts), input, output, finish)


def _joined(parts: list[str]) -> str:
    """The text, with halves of characters that JSON can spell and no text can hold made visible."""
    return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _no_error(event: dict[str, Any]) -> None:
    if event.get("type") == "error" or event.get("error"):
        said = _dict(event, "error").get("message") or event.get("error") or "no reason given"
        raise Failure("cut", f"the server ended the reply with an error: {str(said)[:300]}")


def _dict(value: Any, key: str) -> dict[str, Any]:
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def _list(value: dict[str, Any], key: str) -> list[dict[str, Any]]:
    found = value.get(key)
    return [x for x in found if isinstance(x, dict)] if isinstance(found, list) else []


def _count(used: dict[str, Any], key: str) -> int | None:
    found = used.get(key)
    return found if isinstance(found, int) and not isinstance(found, bool) else None
