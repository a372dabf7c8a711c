"""A lineage replayed on a kernel that is tuned already: from that kernel's own naive end, so that nothing of it is kept by accident."""
from __future__ import annotations

from pathlib import Path

from kir.hardware.target import target
from kir.ir import nodes as n
from kir.ir.visit import statements
from kir.learning.optimize.plan import Setting
from kir.learning.optimize.starts import starts
from kir.lineage.crossing import cross
from kir.lineage.records.folder import Folder
from kir.problem import load_problem
from kir.surface.reading import load_expert

SKILLS = Path(__file__).parents[3] / "skills"


def tuned() -> n.Program:
    """A pipelined GEMM in TileLang."""
    return load_expert(str(SKILLS / "experts/gemm/tilelang.py"), SKILLS / "bindings/tilelang_gemm.toml").program


def test_the_hopper_lineage_is_carried_whole_to_a_tuned_gemm_in_tilelang() -> None:
    folder = Folder(SKILLS / "lineages" / "gemm_sm90")
    done = cross(folder.read(), folder, tuned())
    assert done.meets and done.undone.count("~") == 11
    assert len(done.steps) == 27 and all(each.carried for each in done.steps)
    assert {s.via for k in done.program.kernels for s in statements(k.body) if isinstance(s, n.Mma)} == {"wgmma"}


def test_a_search_begins_at_the_naive_end_too() -> None:
    problem = load_problem("gemm")
    found = starts(tuned(), Setting(problem, problem.shape("square"), target("h200"), "tilelang"), 300.0)
    assert found[0].name == "as it is" and found[1].name == "11 steps back"
    assert not any(isinstance(s, n.Mma) for k in found[1].program.kernels for s in statements(k.body))
