"""The server for agents, asked by the protocol's own client over standard input and output and over HTTP."""
from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kir.base.diagnostic import KirError, UsageError
from kir.base.store import claimed
from kir.faces.agents.calling import MOST_TEXT, Call, Kept, Refused, _errors, short
from kir.faces.agents.tools import TOOLS
from tests.command_line import called
from tests.users.own_kernels import laid

pytestmark = pytest.mark.mcp
SERVE = "from kir.faces.cli import main; main()"
RACY = """kir 1
program racy
  in X: f32[64]
  out Y: f32[64]
kernel main grid (b: 1) threads 64
  shared s: f32[64]
  for t in 0..64 parallel thread
    s[t] = X[t]
    Y[t] = s[63 - t]
"""

OPAQUE = """kir 1
program open
  out Y: f32[64]
kernel main grid (b: 1) threads 64
  opaque cuda reads nothing writes Y because "a call" text "count();"
"""


def asked(folder: Path, what: Callable[[Any], Awaitable[None]]) -> None:
    """Ask a server over standard input and output."""
    from mcp import Client, StdioServerParameters

    async def main() -> None:
        environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
        async with Client(StdioServerParameters(command=sys.executable, args=["-c", SERVE, "mcp", "--folder", str(folder)], env=environment)) as client:
            await what(client)
    asyncio.run(asyncio.wait_for(main(), 200))


def test_every_tool_has_a_schema_of_what_it_takes_and_gives(tmp_path: Path) -> None:
    async def what(client: Any) -> None:
        tools = {t.name: t for t in (await client.list_tools()).tools}
        assert list(tools) == [f.__name__ for f in TOOLS]
        for t in tools.values():
            assert t.description and t.output_schema and all("type" in p or "anyOf" in p or "enum" in p for p in t.input_schema["properties"].values())
        assert tools["opt"].input_schema["required"] == ["file", "pipeline"] and "ctx" not in tools["opt"].input_schema["properties"]
        assert "parse" in client.instructions
    asked(tmp_path, what)


def test_a_kernel_is_read_checked_and_rewritten_by_an_agent(tmp_path: Path) -> None:
    laid(tmp_path, "softmax with a scale (Triton)")
    (tmp_path / "racy.kir").write_text(RACY, encoding="utf-8")
    (tmp_path / "opaque.kir").write_text(OPAQUE, encoding="utf-8")
    beats: list[str] = []

    async def beat(progress: float, total: float | None, message: str | None) -> None:
        beats.append(message or "")

    async def what(client: Any) -> None:
        read = await client.call_tool("parse", {"file": "scaled.py"}, progress_callback=beat)
        program = read.structured_content
        assert not read.is_error and program["text"].startswith("kir 1") and "KIR-S060" in program["notes"][0]
        whole = await client.read_resource(program["resource"])
        assert whole.contents[0].text == program["text"]
        ran = (await client.call_tool("run", {"file": "racy.kir"})).structured_content
        assert not ran["ok"] and any("race" in f or "ordered" in f or "s[" in f for f in ran["findings"])
        seen = (await client.call_tool("glance", {"file": "racy.kir", "seconds": 5})).structured_content
        assert seen["computes"]["text"].startswith("kir 1") and not seen["naive"] and seen["bound_by"] and "KIR-S015" in seen["notes"][0]
        decided = (await client.call_tool("check", {"file": "racy.kir"})).structured_content
        assert decided["verdict"] == "refuted" and decided["kinds"]["race"] == "refuted" and "KIR-Y002" in decided["findings"][0]
        open_ = (await client.call_tool("check", {"file": "opaque.kir"})).structured_content
        assert open_["verdict"] == "undecided" and open_["findings"] == ["not decided: not followed (opaque.kir:5): it is kept as text: a call"]
        fine = (await client.call_tool("check", {"file": "scaled.py"})).structured_content
        assert fine["verdict"] == "proved" and "KIR-S060" in fine["notes"][0]
        assert [f.partition(":")[0] for f in fine["findings"]] == ["KIR-Y002 not at all sizes"], "its rows begin at a product of 32 bits"
        again = await client.call_tool("opt", {"file": "scaled.py", "pipeline": "no-such-pass"})
        assert again.is_error and "KIR-X002" in again.content[0].text
        misnamed = await client.call_tool("opt", {"file": "scaled.py", "pipeline": "unroll", "emits": "cuda"})
        assert misnamed.is_error and misnamed.content[0].text.startswith("KIR-C002 opt has no argument 'emits'; did you mean 'emit'?")
        mistyped = await client.call_tool("sites", {"file": "scaled.py", "only": ["tile"]})
        assert mistyped.is_error and mistyped.content[0].text == """KIR-C002 sites: 'only': input should be a valid string, not ["tile"]"""
        lacking = await client.call_tool("explain", {"what": "KIR-S060"})
        assert lacking.is_error and "explain needs the argument 'id'" in lacking.content[0].text and "needs: id (required)" in lacking.content[0].text
        told = (await client.call_tool("explain", {"id": "KIR-S060"})).structured_content
        assert "binding" in told["text"]
        page = (await client.call_tool("explain", {"id": "your-own-kernel"})).structured_content
        assert page["text"].startswith("# Your own kernel") and "characters more: read the resource" in page["text"]
        assert len((await client.read_resource(page["resource"])).contents[0].text) > len(page["text"])
        skill = await client.read_resource("kir://skill")
        assert "name: kir" in skill.contents[0].text
        with pytest.raises(Exception, match="no answer of this server"):
            await client.read_resource("kir://program/0000")
    asked(tmp_path, what)
    assert all(" s" in b for b in beats)


def test_a_call_that_is_cancelled_ends_its_process(tmp_path: Path) -> None:
    async def main() -> None:
        told: list[str] = []

        async def progress(seconds: float, text: str) -> None:
            told.append(text)
        call = Call(Kept(), progress, tmp_path)
        task = asyncio.create_task(call.command("lineage", str(Path("skills/experts/softmax/softmax.kir").resolve()), "-o", "out", "--problem", "softmax"))
        while not told:
            await asyncio.sleep(0.05)
        began = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert time.monotonic() - began < 20 and told[0].endswith(": 1 s")
    asyncio.run(main())


def test_two_calls_do_not_write_to_one_folder(tmp_path: Path) -> None:
    async def main() -> None:
        async def progress(seconds: float, text: str) -> None:
            return None
        call = Call(Kept(), progress, tmp_path)
        async with call.alone(Path("out")):
            with pytest.raises(Refused, match="another call is writing to"):
                async with call.alone(tmp_path / "out"):
                    pass
        async with call.alone(Path("out")):
            pass
    asyncio.run(main())


def test_answers_are_small() -> None:
    assert short("x" * 10) == "x" * 10
    long = short("x" * (MOST_TEXT + 5))
    assert long.endswith("5 characters more: read the resource") and len(long) < MOST_TEXT + 60
    kept = Kept()
    for k in range(300):
        kept.keep("text", str(k))
    assert len(kept.programs) == 256 and "0" not in kept.programs and "299" in kept.programs


@contextmanager
def serving(folder: Path) -> Iterator[int]:
    """A server over HTTP on a port of its own, which it says."""
    process = subprocess.Popen([sys.executable, "-c", SERVE, "mcp", "--folder", str(folder), "--port", "0"], stderr=subprocess.PIPE, text=True,
                               env={**os.environ, "PYTHONPATH": str(Path.cwd())})
    try:
        assert process.stderr is not None
        said = re.fullmatch(r"http://127.0.0.1:(\d+)/mcp \(Control-C ends it\)\n", process.stderr.readline())
        assert said is not None
        port = int(said[1])
        for line in process.stderr:
            if "running on" in line:
                break
        assert process.poll() is None
        yield port
    finally:
        process.terminate()
        process.wait(20)


def test_the_server_answers_over_http_and_a_port_in_use_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():  # the package keeps what is standard error when it is imported, for every server that it starts later
        from mcp import Client

    (tmp_path / "racy.kir").write_text(RACY, encoding="utf-8")
    with serving(tmp_path) as port:
        async def main() -> None:
            async with Client(f"http://127.0.0.1:{port}/mcp") as client:
                ran = (await client.call_tool("run", {"file": "racy.kir"})).structured_content
                assert not ran["ok"] and ran["findings"]
        asyncio.run(asyncio.wait_for(main(), 100))
        code, _, err = called(capsys, "mcp", "--port", str(port))
        assert code == 2 and "KIR-C009" in err
    code, _, err = called(capsys, "mcp", "--folder", str(tmp_path / "nowhere"))
    assert code == 2 and "KIR-C006" in err


def test_a_faster_kernel_is_forecast_searched_and_made_of_a_card(tmp_path: Path) -> None:
    (tmp_path / "naive.kir").write_text(Path("skills/problems/transpose/naive.kir").read_text(encoding="utf-8"), encoding="utf-8")
    beats: list[str] = []

    async def beat(progress: float, total: float | None, message: str | None) -> None:
        beats.append(message or "")

    async def what(client: Any) -> None:
        found = (await client.call_tool("sites", {"file": "naive.kir"})).structured_content
        step = next(p["step"] for p in found["places"] if not p["refused"])
        seen = (await client.call_tool("forecast", {"a": "naive.kir", "step": step, "shape": "M=2048,N=2048"})).structured_content
        assert seen["low"] <= seen["speedup"] <= seen["high"] and seen["model"] and 0 <= seen["fails"] <= 1
        softmax = str(Path("skills/problems/softmax/naive.kir").resolve())
        used = (await client.call_tool("skills_apply", {"card": "approximate-intrinsic.store", "file": softmax})).structured_content
        assert "approximate-intrinsic" in used["pipeline"] and used["program"]["text"].startswith("kir 1")
        fits = (await client.call_tool("skills_search", {"words": "tile", "file": "naive.kir"})).structured_content["cards"]
        assert fits and "pays: " in fits[0]["here"] and "@" in fits[0]["here"], "what each would bring there"
        nowhere = await client.call_tool("skills_apply", {"card": "approximate-intrinsic.store", "file": "naive.kir"})
        assert nowhere.is_error and "KIR-S025" in nowhere.content[0].text
        best = (await client.call_tool("optimize", {"output": "fast.cu", "file": "naive.kir", "problem": "transpose", "surface": "cuda", "candidates": 1,
                                                    "seconds": 2, "compile": False}, progress_callback=beat)).structured_content
        assert best["kind"] == "modelled" and best["speedup"] >= 1 and best["of_limit"] > 0
        assert not best["file"] or "__global__" in (tmp_path / best["file"]).read_text(encoding="utf-8")
    asked(tmp_path, what)
    assert beats


def test_what_a_command_says_of_its_progress_is_told_and_no_error() -> None:
    async def main() -> None:
        stream, now = asyncio.StreamReader(), ["kir lineage"]
        stream.feed_data(b'{"progress": 3, "total": 9, "doing": "walking back"}\nwarning: x\n{"progress": broken\n')
        stream.feed_eof()
        assert await _errors(stream, now) == 'warning: x\n{"progress": broken\n' and now == ["walking back, 3 of 9"]
    asyncio.run(main())


def test_two_agents_do_not_walk_in_one_folder_at_once_and_nothing_is_lost(tmp_path: Path) -> None:
    (tmp_path / "naive.kir").write_text(Path("skills/problems/transpose/naive.kir").read_text(encoding="utf-8"), encoding="utf-8")

    async def what(client: Any) -> None:
        walk = {"file": "naive.kir", "problem": "transpose"}
        with claimed(tmp_path / "naive.lineage"):
            refused = await client.call_tool("lineage", walk)
        assert refused.is_error and "KIR-C010" in refused.content[0].text
    asked(tmp_path, what)
    assert [p.name for p in tmp_path.iterdir()] == ["naive.kir"]


def test_a_claim_ends_with_the_process_that_holds_it(tmp_path: Path) -> None:
    code = f"from kir.base.store import claimed; from pathlib import Path\nwith claimed(Path({str(tmp_path / 'out')!r})):\n print('held', flush=True); input()"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    with pytest.raises(KirError, match="KIR-C010") as refused, claimed(tmp_path / "out"):
        pass
    assert f"process {process.pid}" in refused.value.diagnostics[0].message
    process.kill()
    process.wait(20)
    with claimed(tmp_path / "out"), pytest.raises(KirError), claimed(tmp_path / "out"):
        pass
    assert not list(tmp_path.iterdir())


def test_without_the_package_the_way_to_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kir.faces.agents.server import made

    monkeypatch.setitem(sys.modules, "mcp.server", None)
    with pytest.raises(UsageError) as refused:
        made(tmp_path, "0")
    assert refused.value.diagnostics[0].id == "KIR-C008" and "kernel-lineage[mcp]" in refused.value.diagnostics[0].attempt
