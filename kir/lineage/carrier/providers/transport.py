"""The two protocols, through their own clients (extra `llm`): the client makes the request, the bytes of its reply are read here.

No redirect is followed: a key goes to the endpoint of the settings and nowhere else.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from kir.base.diagnostic import error
from kir.lineage.carrier.providers.provider import Request
from kir.lineage.carrier.providers.settings import Endpoint
from kir.lineage.carrier.providers.stream import Counted, Failure, anthropic_reply, events, openai_reply

HEADERS = {"Accept-Encoding": "identity"}


class Transport(Protocol):
    """Sends one request and reads its reply. Raises Failure."""

    def __call__(self, request: Request, late: Callable[[], bool], seconds: float) -> Counted: ...


def transport(protocol: str, endpoint: Endpoint, key: str) -> Transport:
    """The transport of a protocol. Raises KirError KIR-H301 when its client is not installed."""
    try:
        return _openai(endpoint, key) if protocol == "openai" else _anthropic(endpoint, key)
    except ImportError as bad:
        raise error("KIR-H301", f"the client '{protocol}' is not installed ({bad})", attempt="pip install 'kernel-lineage[llm]'") from None


def _openai(endpoint: Endpoint, key: str) -> Transport:
    import openai
    client = openai.OpenAI(api_key=key or "none", base_url=endpoint.endpoint or None, max_retries=0,
                           http_client=openai.DefaultHttpxClient(follow_redirects=False))

    def ask(request: Request, late: Callable[[], bool], seconds: float) -> Counted:
        messages = [{"role": "system", "content": request.system}, *({"role": m.role, "content": m.text} for m in request.messages)]
        options: dict[str, Any] = {endpoint.tokens_as: endpoint.max_tokens, "stream_options": {"include_usage": True}}
        if endpoint.temperature is not None:
            options["temperature"] = endpoint.temperature
        with _failures(openai, key):
            waiting = openai.Timeout(min(endpoint.time.silence, seconds), connect=min(endpoint.time.connect, seconds))
            with client.chat.completions.with_streaming_response.create(
                    model=endpoint.model, messages=messages, stream=True, extra_headers=HEADERS, timeout=waiting, **options) as response, _begun(openai):
                return openai_reply(events(response.iter_bytes(), late))
    return ask


def _anthropic(endpoint: Endpoint, key: str) -> Transport:
    import anthropic
    client = anthropic.Anthropic(api_key=key or "none", base_url=endpoint.endpoint or None, max_retries=0,
                                 http_client=anthropic.DefaultHttpxClient(follow_redirects=False))

    def ask(request: Request, late: Callable[[], bool], seconds: float) -> Counted:
        messages = [{"role": m.role, "content": m.text} for m in request.messages]
        options: dict[str, Any] = {} if endpoint.temperature is None else {"temperature": endpoint.temperature}
        with _failures(anthropic, key):
            waiting = anthropic.Timeout(min(endpoint.time.silence, seconds), connect=min(endpoint.time.connect, seconds))
            with client.messages.with_streaming_response.create(
                    model=endpoint.model, system=request.system, messages=messages, max_tokens=endpoint.max_tokens, stream=True,
                    extra_headers=HEADERS, timeout=waiting, **options) as response, _begun(anthropic):
                return anthropic_reply(events(response.iter_bytes(), late))
    return ask


@contextmanager
def _begun(client: Any) -> Iterator[None]:
    """What goes wrong once the reply has begun: silence, or a connection that ends."""
    try:
        yield
    except (Failure, client.APIStatusError):
        raise
    except Exception as bad:
        names = [c.__name__ for c in type(bad).__mro__]
        if any("Timeout" in name for name in names):
            raise Failure("silent", "the server fell silent in the middle of its reply") from None
        raise Failure("cut", f"the connection broke off in the middle of the reply ({type(bad).__name__})") from None


@contextmanager
def _failures(client: Any, key: str) -> Iterator[None]:
    """A client's errors as failures of ours; the key never appears in a message."""
    def plain(bad: Exception) -> str:
        text = " ".join(str(bad).split())[:400]
        return text.replace(key, "***") if key else text
    try:
        yield
    except Failure as known:
        raise Failure(known.kind, known.message.replace(key, "***") if key else known.message, known.retry_after) from None
    except client.APIStatusError as bad:
        status = int(bad.status_code)
        after = _seconds(bad.response.headers.get("retry-after"))
        kind = {401: "key", 403: "key", 404: "model", 408: "server", 409: "server", 429: "limit"}.get(status, "server" if status >= 500 else "request")
        raise Failure(kind, f"HTTP {status}: {plain(bad)}", after) from None  # type: ignore[arg-type]  # one of the kinds, by the table
    except client.APITimeoutError:
        raise Failure("network", "the server did not answer in time") from None
    except client.APIConnectionError as bad:
        cause = bad.__cause__ or bad
        raise Failure("network", f"the server cannot be reached ({type(cause).__name__}: {plain(cause if isinstance(cause, Exception) else bad)})") from None
    except (UnicodeError, ValueError, TypeError) as bad:
        raise Failure("request", f"the request cannot be made: {plain(bad)}") from None


def _seconds(text: str | None) -> float | None:
    """The value of a `retry-after` header that counts seconds; None for a date or nothing."""
    try:
        return max(0.0, float(text)) if text is not None else None
    except ValueError:
        return None
