"""Which values of a thread loop all threads agree on."""
from __future__ import annotations

from kir.analysis.uniform import varying
from kir.ir import nodes as n
from kir.ir.parser import parse_program


def known(body: str) -> dict[str, frozenset[str]]:
    """The names that vary before each labeled statement of a thread loop's body."""
    lines = "\n".join(f"    {line}" for line in body.strip("\n").splitlines())
    p = parse_program(f"""kir 1
program p
  size N: i32
  in X: f32[N]
  out Y: f32[N]
kernel main grid (b: 1) threads 32
  shared slots: f32[32]
  for t in 0..32 parallel thread
{lines}
""", "p.kir")
    loop = p.kernels[0].body[-1]
    assert isinstance(loop, n.For)
    out: dict[str, frozenset[str]] = {}
    for path, names in varying(loop).items():
        block: n.Block = loop.body
        for k in range(3, len(path), 2):
            s = block[int(path[k - 2])]
            block = s.body if isinstance(s, n.For) else s.then if isinstance(s, n.If) else ()
        label = block[int(path[-1])].label
        if label is not None:
            out[label] = names
    return out


def test_what_is_made_of_the_thread_varies() -> None:
    found = known("""
let a = N * 2
let c = t + a
@here Y[c] = X[a]
""")
    assert found["here"] == {"t", "c"}


def test_a_scalar_set_anew_is_the_same_for_all_again() -> None:
    found = known("""
register x: f32 = X[t]
@before slots[t] = x
barrier()
x = 0.0
for u in 0..32
  @fold x = x + slots[u]
@after Y[t] = x
""")
    assert "x" in found["before"]
    assert "x" not in found["fold"]
    assert "x" not in found["after"]


def test_what_only_some_threads_write_varies_and_names_end_with_their_block() -> None:
    found = known("""
register x: f32 = 0.0
if t < 16
  let inner = X[t]
  x = 1.0
@after Y[t] = x
""")
    assert found["after"] == {"t", "x"}


def test_what_a_later_iteration_reads_varies_from_the_first_on() -> None:
    found = known("""
register x: f32 = 0.0
for k in 0..4
  @head Y[k] = x
  x = X[t]
""")
    assert "x" in found["head"]


def test_a_shuffle_gives_each_lane_its_own() -> None:
    found = known("""
register x: f32 = 1.0
let other = shfl_xor(x, 1)
@after Y[t] = other
""")
    assert "other" in found["after"]
