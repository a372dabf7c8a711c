"""A kernel for Hopper that somebody wrote by hand: read, with what its tensor maps describe from the binding, and run."""
from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kir.analysis.normal.regions import raised
from kir.interp import run
from kir.ir import nodes as n
from kir.ir.binding import Binding
from kir.ir.bindings.specialize import specialize
from kir.ir.visit import statements
from kir.surface import frontend

SOURCE = Path(__file__).parent / "kernels" / "hopper_gemm.cu"
BINDING = """kernel = "gemm_nt"
sizes = ["M", "N", "K"]
facts = ["M % 128 == 0", "N % 32 == 0", "K % 64 == 0", "M >= 128", "N >= 32", "K >= 64", "M <= 65536", "N <= 65536", "K <= 65536"]
grid = ["N // 32", "M // 128"]
metas = { threads_x = 384 }
options = { target = "sm_90a" }
[arrays]
sA = [3, 128, 64]
sB = [3, 32, 64]
d = [2, 8]
[tensors]
A = { shape = ["M", "K"], dtype = "bf16" }
B = { shape = ["N", "K"], dtype = "bf16" }
C = { shape = ["M", "N"], dtype = "bf16" }
[maps]
map_a = { of = "A", box = [128, 64], swizzle = 128 }
map_b = { of = "B", box = [32, 64], swizzle = 128 }
"""


def generic(binding: Binding) -> n.Program:
    """The kernel as the frontend reads it under a binding."""
    made: n.Program = frontend("cuda").instantiate(SOURCE, "gemm_nt", binding)  # type: ignore[attr-defined]  # beyond the protocol
    return made


def reasons(p: n.Program) -> str:
    """Why statements are opaque."""
    return "; ".join(s.reason for k in p.kernels for s in statements(k.body) if isinstance(s, n.Opaque))


def test_it_is_read_whole_and_multiplies() -> None:
    binding = Binding.parse(BINDING)
    p = raised(specialize(generic(binding), binding))
    assert reasons(p) == ""
    (roles,) = (s for s in p.kernels[0].body if isinstance(s, n.Roles))
    assert [(r.name, r.lo, r.hi, r.registers) for r in roles.roles] == [("producer", 0, 4, 40), ("consumer", 4, 12, 232)]
    assert {(q.name, q.role) for q in p.params if isinstance(q.of, n.Buffer)} == {("A", "in"), ("B", "in"), ("C", "out")}
    sizes = {"M": 128, "N": 32, "K": 256}  # the ring of three wraps
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, (sizes[x], 256)).astype(np.float32) for x in "MN")
    import ml_dtypes
    inputs = {"A": a.astype(ml_dtypes.bfloat16), "B": b.astype(ml_dtypes.bfloat16)}
    done = run(p, inputs, sizes, mode="check")
    assert done.errors == ()
    assert np.array_equal(done.outputs["C"].astype(np.float32), (a @ b.T).astype(ml_dtypes.bfloat16).astype(np.float32))


WRONG = {
    "no map": ("map_b = { of = \"B\", box = [32, 64], swizzle = 128 }\n", "", "only the binding says what it describes"),
    "no tensor": ("B = { shape = [\"N\", \"K\"], dtype = \"bf16\" }\n", "", "whose shape and dtype no binding says"),
    "another box": ("box = [32, 64]", "box = [32, 32]", "no whole part of 'sB'"),
    "flat": ("sA = [3, 128, 64]\n", "", "no whole part of 'sA'"),
    "another swizzle": ("box = [32, 64], swizzle = 128", "box = [32, 32], swizzle = 64", "with a swizzle in one place and without in another"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_the_binding_says_wrongly_is_refused_where_it_shows(what: str) -> None:
    old, new, words = WRONG[what]
    text = BINDING.replace(old, new)
    assert text != BINDING
    assert words in reasons(generic(Binding.parse(text)))
