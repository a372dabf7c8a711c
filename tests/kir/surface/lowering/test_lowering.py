"""Tile programs and their threads: one meaning, no hazards, and code that compiles."""
from __future__ import annotations

import subprocess
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from kir.base.diagnostic import KirError
from kir.hardware.machine import toolkit
from kir.hardware.target import target
from kir.ir import nodes as n
from kir.ir.parser import parse_program
from kir.ir.paths import paths
from kir.ir.printer import program_text
from kir.ir.rules.verify import verify
from kir.ir.visit import statements, walk
from kir.rewrite.meaning import difference, draw, interpreted
from kir.surface import backend
from kir.surface.lowering import is_tiled, lowered, lowered_with_places
from tests.backends.cuda.host_cuda import agrees

HEAD = """kir 1
program p
  size N: i32
  in X: f32[64, 64] align 16
  in H: f16[64, 64] align 16
  in V: f32[N]
  in I: i32[64, 64]
  in J: i32[64]
  inout Y: f32[64, 64] align 16
  inout Z: f32[N]
  inout K: i32[64, 64]
  inout C: i32[64]
function more(a: f32, b: f32) -> f32
  let big = max(a, b)
  return big + min(a, b)
function best(a: f32, i: i32, b: f32, j: i32) -> f32, i32
  let take = b > a
  return select(take, b, a), select(take, j, i)
function linear(a: f32, b: f32, c: f32, d: f32) -> f32, f32
  return a * c, b * c + d
"""
BODIES = {
    "elementwise": "let x = X\nlet y = exp(x * 0.5) + 1.0\nY = select(y > 1.5, y, -x)",
    "a scalar for all": "let s = X[3, 5]\nY = X * s",
    "a store by one thread": "Y = 0.0\nY[3, 5] = X[1, 2] + 1.0\nlet y = Y[3, 5]\nY[4, 6] = y",
    "a row": "let x = X[g, 0 +: 64]\nY[g, 0 +: 64] = x * 2.0",
    "a tail": "let v = load(V[g * 256 +: 256] else 0.0 clip)\nZ[g * 256 +: 256] = v * 2.0 clip",
    "a mask": "let o = iota(256)\nlet m = o < N & o % 3 == 0\nlet v = load(V[o] where m else 0.0)\nZ[0 +: 256] = v + 1.0 where o < N",
    "steps": "let x = X[0 +: 32 step 2, 1 +: 16 step 3]\nY[0 +: 32, 0 +: 16] = x",
    "broadcasts": "let r = X[0, 0 +: 64]\nlet c = X[0 +: 64, 1]\nY = expand(c, axis=1) * r + expand(r, axis=0)",
    "a transposition": "let x = X\nY = trans(x, 1, 0)",
    "transposed reads": "Y = trans(X, 1, 0) + X",
    "reshapes": "let x = reshape(X, 16, 4, 64)\nlet s = reduce(x, axis=1, op=sum)\nY[0 +: 16, 0 +: 64] = s\n"
                "let f = reshape(X, 4096)\nlet q = reshape(trans(reshape(f, 32, 128), 1, 0), 64, 64)\nK = cast(q * 100.0, i32)",
    "join and split": "let a = X[0 +: 64, 0 +: 32]\nlet b = X[0 +: 64, 32 +: 32]\nlet j = join(a, b)\nlet p, q = split(j)\n"
                      "Y[0 +: 64, 0 +: 32] = p - q * 2.0\nY[0 +: 64, 32 +: 32] = q",
    "row sums": "let x = X\nlet s = reduce(x * x, axis=1, op=sum)\nY = x / expand(s, axis=1)",
    "column sums": "let x = X\nlet s = reduce(x, axis=0, op=sum, keep=true)\nY = x - s",
    "a maximum of all": "let m = reduce(reduce(X, axis=1, op=max), axis=0, op=max)\nlet k = reduce(reduce(I, axis=1, op=min), axis=0, op=min)\n"
                        "Y = X - m\nK = I + k",
    "nested reductions": "Y = exp(X - expand(reduce(X, axis=1, op=max), axis=1)) * reduce(V[0 +: 16], axis=0, op=sum)",
    "positions": "let a = reduce(X, axis=1, op=argmax)\nlet b = reduce(X, axis=0, op=argmin)\nK[0, 0 +: 64] = a\nK[1, 0 +: 64] = b",
    "other reductions": "K[0, 0 +: 64] = reduce(I, axis=1, op=xor)\nK[1, 0 +: 64] = reduce(I, axis=1, op=or)\nK[2, 0 +: 64] = reduce(I, axis=0, op=and)\n"
                        "Y[0, 0 +: 64] = reduce(X, axis=1, op=max_nan)\nY[1, 0 +: 64] = reduce(X, axis=0, op=prod)\n"
                        "let any = reduce(I > 2, axis=1, op=or)\nK[3, 0 +: 64] = cast(any, i32)",
    "a combine function": "Y[0, 0 +: 64] = reduce(X, axis=1, combine=more)",
    "a combine of pairs": "let v, k = reduce(X, broadcast(iota(64), 64, 64), axis=1, combine=best)\nY[0, 0 +: 64] = v\nK[0, 0 +: 64] = k",
    "scans": "Y = scan(X, axis=1, op=sum)\nK = scan(I, axis=0, op=max)",
    "scans from the end": "Y = scan(X, axis=1, op=sum, reverse=true)\nK[0, 0 +: 64] = scan(J, axis=0, op=sum, reverse=true)",
    "a scan of pairs": "let a, b = scan(X, X * 0.5, axis=0, combine=linear)\nY = b",
    "a gather in memory": "let j = J % 64\nY[0, 0 +: 64] = X[j, iota(64)]\nlet r = V[J]\nZ[0 +: 64] = r",
    "a gather of a tile": "let x = X * 2.0\nlet i = I % 64\nY = gather(x, i, axis=1)",
    "one element of a tile": "let x = X[0, 0 +: 64] * 2.0\nlet e = pick(x, 7)\nY = X + e",
    "tiles put together": "let c = cat(X[0 +: 32, 0 +: 64], X[0 +: 32, 0 +: 64] * 2.0, axis=0)\nY = c",
    "a histogram": "let h = histogram(J)\nC = h",
    "atomics": "atomic_add(&C[0], 1)\natomic_add(&C[J], broadcast(1, 64), J > 1)\nlet old = atomic_max(&C[9], 5)\nK[0, 0] = old",
    "dtypes": "let h = H\nlet f = cast(h, f32) * 2.0\nK = cast(f, i32) + cast(I > 1, i32)\nY = cast(cast(f, bf16), f32) + cast(cast(I, u8), f32)",
    "shared memory": "shared S: f32[64, 64] layout swizzle(2, 4, 3)\ncopy X -> S via vector(4)\nlet a = S\nS = trans(a, 1, 0) + 1.0\nY = S",
    "a shared value filled": "shared S: f32[64] = 3.0\nlet a = S\nS = a + X[0, 0 +: 64]\nY[0, 0 +: 64] = S[0 +: 64]",
    "asynchronous copies": "shared S: f16[2, 64, 64]\ncopy H -> S[0, 0 +: 64, 0 +: 64] via cp_async grouped {vector=8}\nasync_commit()\n"
                           "copy H -> S[1, 0 +: 64, 0 +: 64] via cp_async grouped {vector=8}\nasync_commit()\nasync_wait(1)\n"
                           "let a = S[0, 0 +: 64, 0 +: 64]\nasync_wait(0)\nY = cast(a, f32) + cast(trans(S[1, 0 +: 64, 0 +: 64], 1, 0), f32)",
    "loops": "fragment acc: f32[64, 64] = 0.0\nfor k in 0..4\n  acc = acc + X * cast(k, f32)\nY = acc",
    "loops over shared memory": "shared S: f32[64]\nfor k in 0..4\n  S = X[k, 0 +: 64] + 1.0\n  Y[k, 0 +: 64] = reduce(expand(S, axis=1) * X, axis=0, op=sum)",
    "branches": "register s: i32 = 0\nfor k in 0..5\n  if k % 2 == g\n    Y[k, 0 +: 64] = X[k, 0 +: 64]\n    s = s + k\n  else\n    Y[k, 0 +: 64] = 0.0\n"
                "K[0, 0 +: 64] = J + s",
    "a loop until": "shared n: i32 = 0\nlet stop = reduce(J, axis=0, op=max)\nwhile n < stop\n  Y[n, 0 +: 64] = X[n, 0 +: 64]\n  n = n + 1",
    "products": "fragment acc: f32[64, 64] = 0.0\nlet a = X\nmma acc += a * trans(X, 1, 0) via fma\nmma acc += cast(H, f32) * X via fma\nY = acc",
    "products of thirds": "fragment acc: f32[16, 16] = 1.0\nmma acc += H[0 +: 16, 0 +: 32] * H[0 +: 32, 0 +: 16] via fma\nY[0 +: 16, 0 +: 16] = acc",
    "products on tensor cores": "fragment acc: f32[64, 64] = 0.0\nlet a = H\nmma acc += a * trans(a, 1, 0)\nmma acc += cast(acc * 0.01, f16) * H\nY = acc",
    "attention": "fragment acc: f32[64, 64] = 0.0\nfragment top: f32[64] = -inf\nfragment total: f32[64] = 0.0\nfor j in 0..2\n"
                 "  fragment s: f32[64, 32] = 0.0\n  mma s += H * trans(H[j * 32 +: 32, 0 +: 64], 1, 0)\n"
                 "  let above = max(top, reduce(s, axis=1, op=max))\n  let p = exp(s - expand(above, axis=1))\n  let scale = exp(top - above)\n"
                 "  total = total * scale + reduce(p, axis=1, op=sum)\n  acc = acc * expand(scale, axis=1)\n  top = above\n"
                 "  mma acc += cast(p, f16) * H[j * 32 +: 32, 0 +: 64]\nY = acc / expand(total, axis=1)",
    "products in tf32": "fragment acc: f32[64, 64] = 0.0\nlet a = X\nmma acc += a * X via fma precision tf32\n"
                        "mma acc += select(expand(iota(64), axis=1) > iota(64), 1.0, 0.0) * X via fma precision tf32\nY = acc",
    "tf32": "Y = to_tf32(X, rounding=rn)",
    "elements of a fragment": "fragment f: f32[64, 64] = 0.0\nf = X * 2.0\nfor i in 0..64\n  for j in 0..8\n    Y[i, j] = f[i, j] + f[j, i]\n"
                              "Y[0, 9] = f[1, 2]\nif f[0, 0] > 0.0\n  Y[1, 9] = 1.0\nlet e = f[5, 6]\nY[2, 9] = e",
    "elements of a fragment that changes": "fragment f: f32[64, 64] = 0.0\nf = X\nfor i in 0..5\n  Y[i, 0] = f[i, i + 1]\n"
                                           "  f = f * 2.0\n  f[i + 1, 3] = f[i, 4]\nY[6, 0 +: 64] = f[2, 0 +: 64]",
    "a fragment filled from an element": "fragment f: f32[64, 64] = 3.0\nf = X\n"
                                         "fragment h: f32[64] = f[3, 4] + 1.0\nregister r: f32 = f[7, 7]\nY[0, 0 +: 64] = h * r",
    "a flat view": "view global F: f32[4096] at X\nlet o = iota(256)\nlet v = load(F[o * 2] where o % 5 > 0 else 1.0)\n"
                   "Z[0 +: 128] = reduce(reshape(v, 128, 2), axis=1, op=sum)",
    "parts of a fragment": "fragment f: f32[64, 64] = 0.0\nfor i in 0..4\n  f[i, 0 +: 64] = X[i, 0 +: 64]\nf[8 +: 8, 0 +: 64] = f[0 +: 8, 0 +: 64] * 2.0\n"
                           "Y = f",
    "warps": "shared S: f32[64, 64]\ncopy X -> S\nfor w in 0..4 parallel warp\n  let r = S[w * 16 +: 16, 0 +: 64]\n  let s = reduce(r, axis=1, op=sum)\n"
             "  Y[w * 16 +: 16, 0 +: 64] = r * expand(s, axis=1)",
    "threads between tiles": "shared S: f32[64]\nS = X[0, 0 +: 64]\nfor u in 0..64 parallel thread\n  Y[1, u] = S[63 - u]\nY[2, 0 +: 64] = S * 2.0\n"
                             "for v in 0..128 parallel thread\n  if v < 64\n    S[v] = X[5, v]\nY[3, 0 +: 64] = S",
    "odd extents": "let x = X[0 +: 48, 0 +: 20]\nY[0 +: 48, 0 +: 20] = x / expand(reduce(x * x, axis=1, op=sum), axis=1)",
}
MAY_DIFFER = "reassociated(threads)"


def program(body: str, threads: int = 128) -> n.Program:
    grid = "grid (g: 1)"
    return parse_program(f"{HEAD}kernel main {grid} threads {threads}\n{textwrap.indent(body, '  ')}\n", "p.kir")


@pytest.mark.parametrize(("what", "threads"), [*((what, 128) for what in BODIES), ("scans", 1), ("scans from the end", 1)])
def test_threads_compute_what_their_tiles_mean(what: str, threads: int) -> None:
    p = program(BODIES[what], threads)
    assert not verify(p)
    q = lowered(p)
    assert not verify(q) and parse_program(program_text(q)) == q
    assert is_tiled(p.kernels[0]) and not is_tiled(q.kernels[0])
    wanted = interpreted(p, {"N": 200})
    found = interpreted(q, {"N": 200}, checked=True)
    assert difference(wanted, found, MAY_DIFFER) == ""
    assert [f.message for f in found.errors] == []
    assert lowered(q) is q and lowered(p) == q


REFUSED = {
    "a sort": ("let x = sort(X[0, 0 +: 64], axis=0)\nY[0, 0 +: 64] = x", "main/0", "'sort' of a tile"),
    "roles": ("roles\n  role a warps 0..2\n    Y[0, 0 +: 64] = X[0, 0 +: 64]\n  role b warps 2..4\n    Y[1, 0] = 1.0\nY[2, 0] = 1.0", "main/0", "roles"),
    "a layout for others": ("fragment f: f32[16, 8] layout mma_c = 0.0\nY[0 +: 16, 0 +: 8] = f", "main/0", "32 threads, and the team has 128"),
    "too large a tile": ("let x = broadcast(X[0, 0], 64, 64, 64)\nlet y = x + 1.0\nK[0, 0] = 1", "main/0", "2048 elements a thread"),
    "some warps": ("for w in 0..2 parallel warp\n  Y[w, 0 +: 64] = X[w, 0 +: 64]", "main/0", "not 0..4"),
    "a part of a warp's threads": ("for w in 0..4 parallel warp\n  let r = X[w, 0 +: 64]\n  for u in 0..32 parallel thread\n    Y[w, u] = 1.0",
                                   "main/0/body/1", "threads of a warp"),
    "a scattered fragment": ("fragment f: f32[64] = 0.0\nf[J % 64] = X[0, 0 +: 64]\nY[0, 0 +: 64] = f", "main/1", "scattered store"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_has_no_form_for_threads_is_refused_with_its_place(what: str) -> None:
    body, anchor, words = REFUSED[what]
    with pytest.raises(KirError) as refused:
        lowered(program(body))
    found = refused.value.diagnostics[0]
    assert (found.id, found.anchor) == ("KIR-B030", anchor) and words in found.message and found.origin is not None


def test_new_statements_know_what_they_were_written_for() -> None:
    p = program("@first let x = X\nfor k in 0..2\n  @second Y[k, 0 +: 64] = reduce(x, axis=0, op=sum)")
    q, places = lowered_with_places(p)
    wanted = {path: s.label for path, s in paths(p)}
    for path, s in paths(q):
        if s.label in ("first", "second"):
            assert wanted[places[path]] == s.label
    assert {("main", 0), ("main", 1), ("main", 1, "body", 0)} <= set(places.values())


def test_what_a_product_gives_stays_in_registers_for_the_next() -> None:
    k = lowered(program(BODIES["attention"])).kernels[0]
    scratch = [s.buffer for s in k.body if isinstance(s, n.Alloc) and s.buffer.name.startswith("scratch_")]
    assert [b.dtype.name for b in scratch] == ["f16", "f16"], "operands pass through shared memory, rows and their maxima do not"
    calls = [x.fn for s in statements(k.body) for x in walk(s) if isinstance(x, n.Call)]
    assert "mma_sync" in calls and "ldmatrix" in calls and "shfl_xor" in calls


def every() -> n.Program:
    """One program of all bodies, a kernel each."""
    kernels = [replace(program(body).kernels[0], name=f"k{i}") for i, body in enumerate(BODIES.values())]
    return replace(program(BODIES["loops"]), kernels=tuple(kernels))


@pytest.mark.nvcc
def test_threads_of_every_body_compile_without_a_warning(tmp_path: Path) -> None:
    tools = toolkit()
    assert tools is not None
    emitted = backend("cuda").emit(every())
    (tmp_path / "every.cu").write_text(f"{emitted.text}\n{emitted.launch}")
    command = [str(tools.nvcc.path), "-ptx", "-arch=sm_80", "-std=c++17", "-O1", "-Werror", "all-warnings", "every.cu"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[:2000]


@pytest.mark.gxx
def test_threads_of_some_bodies_compute_the_same_as_a_program_of_the_host(tmp_path: Path) -> None:
    picked = ["row sums", "scans", "a histogram", "shared memory", "parts of a fragment", "products"]
    kernels = [replace(program(BODIES[b]).kernels[0], name=f"k{i}") for i, b in enumerate(picked)]
    p = replace(every(), kernels=tuple(kernels))
    agrees(p, tmp_path, draw(p, {"N": 200}), {"N": 200}, tolerance=1e-5)


ONE_THREAD = """kir 1
program inverse
  in X: f32[64, 64]
  out Y: f32[64, 64]
kernel main grid (g: 1) threads 1
  fragment a: f32[64, 64] = 0.0
  shared kept: f32[64, 64]
  mma a += X * trans(X, 1, 0) via fma
  a = 1.0 where expand(iota(64), axis=1) == iota(64)
  kept = a * 0.5
  copy kept -> Y
"""


@pytest.mark.nvcc
def test_large_tiles_of_one_thread_are_loops_that_compile(tmp_path: Path) -> None:
    """Written out element by element, no compiler ends with them."""
    p = parse_program(ONE_THREAD, "p.kir")
    agrees(p, tmp_path, draw(p, {}), {}, tolerance=2**-20)
    made = backend("cuda")
    assert made.compile(made.emit(p), target("sm_90a")).kernels[0].threads == 1


ODD_WARPS = """kir 1
program p
  in X: f16[64, 64]
  out Y: f32[64, 64]
kernel main grid () threads 128
  shared A: f16[64, 64]
  shared B: f16[64, 64]
  A[0 +: 64, 0 +: 64] = X[0 +: 64, 0 +: 64]
  B[0 +: 64, 0 +: 64] = X[0 +: 64, 0 +: 64]
  for w in 0..4 parallel warp
    let odd = w % 2
    if odd == 1
      fragment c: f32[16, 16] = 0.0
      mma c += A[w * 16 +: 16, 0 +: 16] * A[w * 16 - 16 +: 16, 0 +: 16] via mma_sync
      B[w * 16 +: 16, 0 +: 16] = cast(c, f16)
  Y[0 +: 64, 0 +: 64] = cast(B[0 +: 64, 0 +: 64], f32)
"""


def test_no_thread_waits_where_only_some_warps_are() -> None:
    text = backend("cuda").emit(parse_program(ODD_WARPS)).text
    before, _, rest = text.partition("if (odd")
    assert "__syncthreads" in before and "__syncthreads" not in rest.split("\n    }\n")[0]
    again = "      fragment d: f32[16, 16] = 0.0\n      mma d += A[w * 16 +: 16, 0 +: 16] * cast(c, f16) via mma_sync\n"
    passed = ODD_WARPS.replace("      B[w", f"{again}      B[w").replace("cast(c, f16)\n  Y", "cast(d, f16)\n  Y")
    with pytest.raises(KirError, match="only some warps are"):
        backend("cuda").emit(parse_program(passed))
    assert backend("cuda").emit(parse_program(passed.replace("if odd == 1", "if 1 == 1"))).text
