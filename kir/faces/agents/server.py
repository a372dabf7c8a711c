"""The server: tools with typed schemas, progress and cancelling, and programs, cards, reports and pages as resources."""

from __future__ import annotations

import inspect
import json
import socket
import sys
import typing
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

import kir.skills
from kir.base.diagnostic import did_you_mean, usage
from kir.faces.agents.calling import Call, Kept, Refused
from kir.faces.agents.tools import TOOLS
from kir.faces.api.pages import page as page_of

INSTRUCTIONS = """KIR reads GPU kernels (CUDA C++, Triton, TileLang) as programs, finds hazards on the CPU, applies checked optimizing passes, and
walks an expert kernel back to the naive program. Begin with `parse` of FILE::KERNEL; `run` with check finds races; `sites` lists steps, `opt`
applies them, `gate` judges the result. Every refusal has an id that `explain` explains. Numbers called modelled come from a cost model."""


def made(folder: Path, version: str, log: str = "WARNING") -> Any:
    """The server over a folder, which paths are relative to. Raises :class:`UsageError` KIR-C008 where the extra `mcp` is not installed."""
    try:
        from mcp.server import MCPServer
        from mcp.server.mcpserver import Context
        from mcp.server.mcpserver.exceptions import ResourceNotFoundError, ToolError
    except ImportError as absent:
        raise usage("KIR-C008", "the package mcp is not installed", attempt="pip install 'kernel-lineage[mcp]'") from absent

    class Server(MCPServer):  # type: ignore[misc]  # of a package without types
        """One that says which arguments a tool takes; others would be left out without a word."""

        async def call_tool(self, name: str, arguments: dict[str, Any], context: Any = None) -> Any:
            if wrong := misnamed(name, arguments):
                raise ToolError(wrong)
            return await super().call_tool(name, arguments, context)
    server = Server("kir", instructions=INSTRUCTIONS, version=version, log_level=log)
    kept = Kept()
    for tool in TOOLS:
        server.add_tool(_tool(tool, kept, folder, Context, ToolError))

    async def silent(seconds: float, text: str) -> None:
        return None

    def program(hash: str) -> str:
        """A program that an earlier answer named, whole."""
        if hash not in kept.programs:
            raise ResourceNotFoundError(f"no answer of this server named a program {hash}")
        return kept.programs[hash]

    def report(name: str) -> str:
        """The report of a lineage that this server walked: a page of HTML."""
        path = kept.reports.get(name)
        if path is None or not path.is_file():
            raise ResourceNotFoundError(f"this server walked no lineage {name}")
        return path.read_text(encoding="utf-8")

    async def card(name: str) -> str:
        """A skill card: when the step is sound, what it brought, what can go wrong."""
        try:
            return str((await Call(kept, silent, folder).command("skills", "show", name))["prose"])
        except Refused as said:
            raise ResourceNotFoundError(str(said)) from said

    def skill() -> str:
        """How an agent uses KIR."""
        return (Path(next(iter(kir.skills.__path__))) / "agent" / "SKILL.md").read_text(encoding="utf-8")

    def page(name: str) -> str:
        """A page of the documentation, whole."""
        found = page_of(name)
        if found is None:
            raise ResourceNotFoundError(f"there is no page {name}")
        return found.read_text(encoding="utf-8")
    for uri, f, kind in (("kir://program/{hash}", program, "text/plain"), ("kir://report/{name}", report, "text/html"),
                         ("kir://card/{name}", card, "text/markdown"), ("kir://skill", skill, "text/markdown"), ("kir://page/{name}", page, "text/markdown")):
        server.resource(uri, mime_type=kind)(f)
    return server


def misnamed(tool: str, given: Mapping[str, Any]) -> str:
    """What is wrong with the names and types of a call's arguments; "" for nothing, and for a tool that there is not."""
    found = next((each for each in TOOLS if each.__name__ == tool), None)
    own = [p for p in inspect.signature(found).parameters.values() if p.name != "call"] if found is not None else []
    names, needed = [p.name for p in own], [p.name for p in own if p.default is p.empty]
    unknown, missing = [x for x in given if x not in names], [x for x in needed if x not in given]
    if found is None:
        return ""
    hints = typing.get_type_hints(found, include_extras=True)
    wrong = [bad for x, value in given.items() if x in names and (bad := _mistyped(x, hints[x], value))]
    if not (unknown or missing):
        return f"KIR-C002 {tool}: {'; '.join(wrong)}" if wrong else ""
    said = [f"{tool} has no argument '{x}'; {did_you_mean(x, names)}".removesuffix("; ") for x in unknown]
    said += [f"{tool} needs the argument '{x}'" for x in missing]
    return f"KIR-C002 {'; '.join(said)}\n  needs: {', '.join(f'{x} (required)' if x in needed else x for x in names)}"


def _mistyped(name: str, hint: Any, value: object) -> str:
    """What is wrong with an argument's type; "" for nothing."""
    try:
        TypeAdapter(hint).validate_python(value)
    except ValidationError as bad:
        said = bad.errors(include_url=False)[0]["msg"]
        return f"'{name}': {said[:1].lower()}{said[1:]}, not {json.dumps(value, default=str)}"
    return ""


def _tool(tool: Callable[..., Awaitable[Any]], kept: Kept, folder: Path, context: Any, failure: Any) -> Any:
    """A tool as the server takes it: with the request's context in the place of its call."""
    hints = typing.get_type_hints(tool, include_extras=True)
    signature = inspect.signature(tool)
    own = [p.replace(annotation=hints[p.name]) for p in signature.parameters.values() if p.name != "call"]

    async def called(**given: Any) -> Any:
        ctx = given.pop("ctx")

        async def progress(seconds: float, text: str) -> None:
            await ctx.report_progress(seconds, None, text)
        try:
            return await tool(Call(kept, progress, folder), **given)
        except Refused as said:
            raise failure(str(said)) from said
    wrapped: Any = called
    wrapped.__name__, wrapped.__doc__ = tool.__name__, tool.__doc__
    wrapped.__signature__ = signature.replace(
        parameters=[*own, inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=context)], return_annotation=hints["return"])
    wrapped.__annotations__ = {**{k: v for k, v in hints.items() if k != "call"}, "ctx": context}
    return wrapped


def serve(folder: Path, version: str, port: int | None = None) -> None:
    """Serve over standard input and output, or on a port of this machine (0: a free one; never another machine's). Raises :class:`UsageError` KIR-C009 for a
    port in use."""
    server = made(folder, version, "WARNING" if port is None else "INFO")  # over a port, what it is asked
    if port is None:
        server.run("stdio")
        return
    with socket.socket() as probe:
        try:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
        except OSError as taken:
            raise usage("KIR-C009", f"port {port} cannot be had: {(taken.strerror or '').lower()}", attempt="--port with another number") from taken
        port = probe.getsockname()[1]
    print(f"http://127.0.0.1:{port}/mcp (Control-C ends it)", file=sys.stderr, flush=True)
    server.run("streamable-http", host="127.0.0.1", port=port)
