"""The page's server, for this machine alone: its state, and the few things that a click does."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable
from html import escape
from importlib import resources
from typing import Any

from kir.base.diagnostic import KirError, usage
from kir.faces.explore.session import Session
from kir.hardware.target import DEVICES


def made(session: Session) -> Any:
    """The application. What changes the session asks for the key that the page was given, so that no other page of the browser can. Raises
    :class:`UsageError` KIR-C008 where Starlette is not installed."""
    try:
        from starlette.applications import Starlette
        from starlette.concurrency import run_in_threadpool
        from starlette.responses import HTMLResponse, JSONResponse
        from starlette.routing import Route
    except ImportError as absent:
        raise usage("KIR-C008", "the package starlette is not installed", attempt="pip install 'kernel-lineage[explore]'") from absent
    key = secrets.token_urlsafe(16)
    html = _page().replace("KEY", key)

    async def page(request: Any) -> Any:
        return HTMLResponse(html)

    def answer(work: Callable[[dict[str, Any]], Any], changes: bool = False) -> Any:
        async def endpoint(request: Any) -> Any:
            if changes and request.headers.get("x-kir") != key:
                return JSONResponse({"error": ["this page is of another session: load it again"]}, 403)
            try:
                given = await request.json() if changes else dict(request.query_params)
                return JSONResponse(await run_in_threadpool(work, given if isinstance(given, dict) else {}))
            except KirError as refused:
                return JSONResponse({"error": [str(d) for d in refused.diagnostics]}, 422)
            except ValueError:
                return JSONResponse({"error": ["this is no request of the page"]}, 400)
        return endpoint
    looks: dict[str, Callable[[dict[str, Any]], Any]] = {
        "state": lambda given: session.state(), "sites": lambda given: session.sites(), "pictures": lambda given: session.pictures(),
        "machine": lambda given: session.machine(str(given.get("surface", "")))}
    changes: dict[str, Callable[[dict[str, Any]], Any]] = {
        "apply": lambda given: session.apply(str(given.get("step", ""))), "undo": lambda given: session.undo(), "redo": lambda given: session.redo(),
        "go": lambda given: session.go(int(given.get("place", 0))), "hazards": lambda given: session.hazards(),
        "set": lambda given: session.set(str(given.get("sizes", "")), str(given.get("device", "")))}
    return Starlette(routes=[Route("/", page), *(Route(f"/{name}", answer(work)) for name, work in looks.items()),
                             *(Route(f"/{name}", answer(work, True), methods=["POST"]) for name, work in changes.items())])


def _page() -> str:
    """The page with its style and its script inside it, and the names of devices that may be modelled."""
    package = resources.files("kir.faces.explore")
    style = (resources.files("kir.faces.report") / "style.css").read_text(encoding="utf-8") + (package / "page.css").read_text(encoding="utf-8")
    devices = "".join(f"<option>{escape(name)}</option>" for name in DEVICES)
    html = (package / "page.html").read_text(encoding="utf-8").replace("/*STYLE*/", style).replace("<!--DEVICES-->", devices)
    return html.replace("/*SCRIPT*/", (package / "page.js").read_text(encoding="utf-8"))


def serve(session: Session, port: int, told: Callable[[str], None]) -> None:
    """Serve until interrupted; `told` is given the address. Raises :class:`UsageError` KIR-C009 for a port in use."""
    app = made(session)
    import uvicorn

    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            held.bind(("127.0.0.1", port))
        except OSError as taken:
            raise usage("KIR-C009", f"port {port} cannot be had: {(taken.strerror or '').lower()}", attempt="--port with another number") from taken
        held.listen(128)  # who asks at once waits, and is not refused
        told(f"http://127.0.0.1:{held.getsockname()[1]}/")
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[held])
