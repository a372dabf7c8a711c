"""A cache policy is changed where the access stands, also where the source moved its pointers meanwhile; everything else stays."""
from __future__ import annotations

from pathlib import Path

import pytest

from kir.backends.triton import BACKEND
from kir.base.diagnostic import KirError
from kir.ir.binding import Binding, Tensor
from kir.rewrite import run as run_pipeline
from kir.surface.edits import edit_source
from kir.surface.reading import load_expert

SOURCE = '''\
import triton
import triton.language as tl


@triton.jit
def moved(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x_ptr += row * BLOCK  # the row's own
    y_ptr += row * BLOCK
    cols = tl.arange(0, BLOCK)
    x = tl.load(  # read
        x_ptr + cols, mask=cols + row * BLOCK < n,  # inside
        other=0.0)
    tl.store(y_ptr + cols, x * 2.0, mask=cols + row * BLOCK < n)
'''
BINDING = Binding(kernel="moved", sizes=["N"], facts=["N >= 1", "N <= 65536"], grid=["ceildiv(N, 128)"], metas={"BLOCK": 128},
                  scalars={"n": "N"}, options={"num_warps": 4},
                  tensors={"x_ptr": Tensor(name="X", shape=["N"], dtype="f32"),
                           "y_ptr": Tensor(name="Y", shape=["N"], dtype="f32")})


def test_a_policy_is_written_into_the_access(tmp_path: Path) -> None:
    path = tmp_path / "moved.py"
    path.write_text(SOURCE)
    (tmp_path / "binding.toml").write_text(BINDING.text())
    old = load_expert(f"{path}::moved", tmp_path / "binding.toml").program
    for step, found, made in (
        ("cache-policy{buffer=X policy=cg}", "        other=0.0)\n", '        other=0.0, cache_modifier=".cg")\n'),
        ("cache-policy{buffer=Y policy=cs}", "BLOCK < n)\n", 'BLOCK < n, cache_modifier=".cs")\n'),
    ):
        edit = edit_source("triton", path, "moved", BINDING, old, run_pipeline(old, step).program)
        assert edit.level == "statement" and edit.after == made.join(SOURCE.rsplit(found, 1)), edit.diff()
        assert edit.undone() == SOURCE


def test_policies_of_one_access() -> None:
    assert BACKEND.with_cache_policy("tl.store(p, v)", "cs") == 'tl.store(p, v, cache_modifier=".cs")'
    assert BACKEND.with_cache_policy('x = tl.load(p, m, cache_modifier=".ca", other=0)', "") == "x = tl.load(p, m, other=0)"
    assert BACKEND.with_cache_policy('tl.store(p, v, mask=m, eviction_policy="evict_last",)', "cg") == 'tl.store(p, v, mask=m, cache_modifier=".cg",)'
    assert BACKEND.with_cache_policy("é = tl.load(p, mask=é) + 1", "cg") == 'é = tl.load(p, mask=é, cache_modifier=".cg") + 1'
    for several in ("tl.store(p, tl.load(q))", "x = tl.load(p, m, 0, (), '', '.cg')", "x = tl.load(p, **options)", "x ="):
        assert BACKEND.with_cache_policy(several, "cg") is None
    for access, policy in (("x = tl.load(p)", "nc"), ("x = tl.load(p)", "cs"), ("tl.store(p, v)", "ca")):
        with pytest.raises(KirError, match="KIR-B008"):
            BACKEND.with_cache_policy(access, policy)
