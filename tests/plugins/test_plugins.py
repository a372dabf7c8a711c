"""A third party's passes: found through metadata, held to the conformance suite, and isolated when broken."""
from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of installed packages: what an installer writes, without building anything."""
    folder = tmp_path_factory.mktemp("site")
    for plugin, version in (("sample", "1.2.3"), ("broken", "0.0.1")):
        package, name = f"kir_{plugin}", f"kir-{plugin}"
        shutil.copytree(HERE / plugin / package, folder / package)
        info = folder / f"{package}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(f"[kir.passes]\n{plugin} = {package}\n")
    return folder


def ask(site: Path, code: str) -> object:
    """The JSON that a fresh interpreter prints, with the plugins installed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(site)])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, cwd=site, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_plugin_adds_a_pass_that_runs_and_is_named_in_the_trace(site: Path) -> None:
    answer = ask(site, """
import json
from kir.ir.parser import parse_program
from kir.rewrite import pass_names, run
import kir_sample.reverse_loop as module
from kir.rewrite.conformance.box import box_of
box = box_of(module.__doc__, "reverse-loop")
trace = run(box.before, box.pipeline)
print(json.dumps([("reverse-loop" in pass_names()), dict(trace.steps[0].provenance)]))
""")
    assert isinstance(answer, list)
    assert answer[0] is True
    assert (answer[1]["distribution"], answer[1]["version"], answer[1]["module"]) == ("kir-sample", "1.2.3", "kir_sample.reverse_loop")


def test_the_sample_conforms(site: Path) -> None:
    cases = site / "kir_sample" / "cases" / "reverse_loop.toml"
    assert ask(site, f"""
import json
from pathlib import Path
from kir.rewrite.conformance.suite import conform
print(json.dumps([str(d) for d in conform("reverse-loop", Path({str(cases)!r}))]))
""") == []


def test_a_pass_whose_directions_are_no_inverses_does_not_conform(site: Path) -> None:
    found = ask(site, """
import json
from kir.rewrite.conformance.suite import conform
print(json.dumps(sorted({d.id for d in conform("lossy")})))
""")
    assert found == ["KIR-R006", "KIR-R014"]


def test_broken_plugins_are_reported_and_disturb_nothing(site: Path) -> None:
    answer = ask(site, """
import json
from kir.base.diagnostic import KirError
from kir.base.registry import registry
from kir.rewrite import pass_class, passes
ids = []
for name in ("fails-to-import", "no-pass"):
    try:
        pass_class(name)
    except KirError as bad:
        ids.append(bad.diagnostics[0].id)
_, broken = registry("kir.passes").load_all()
print(json.dumps([ids, [b.name for b in broken], [c.name for c in passes()]]))
""")
    assert isinstance(answer, list)
    ids, broken, usable = answer
    assert ids == ["KIR-X003", "KIR-R008"]
    assert broken == ["fails-to-import"]
    assert {"unroll", "raster-l2", "reverse-loop"} <= set(usable)
    assert not {"fails-to-import", "no-pass"} & set(usable)
