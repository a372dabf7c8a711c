"""Cheats of a host program. The gate cannot be told one: source is parsed and never run, and what is not a kernel is no candidate."""

from __future__ import annotations

from dataclasses import dataclass

TEXT = """
import os, sys, time
{trick}
import torch, triton
import triton.language as tl

@triton.jit
def kernel(X, Y, N, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(Y + at, tl.load(X + at, mask=at < N) * 2, mask=at < N)

def run(x):
    try:
        {run}
    except Exception:
        return x * 2
"""


@dataclass(frozen=True)
class Host:
    """`rows` of the catalogue; `trick` runs when the file is imported, `run` when the wrapper is called. `{marker!r}` is a file that it would
    make if it ran."""

    name: str
    rows: tuple[int, ...]
    trick: str = ""
    run: str = "return torch.mul(x, 2)"

    def text(self, marker: str) -> str:
        """The file."""
        return TEXT.format(trick=self.trick.replace("MARKER", repr(marker)), run=self.run)


WRITE = "open(MARKER, 'w').write('x')"
HOSTS = (
    Host("falls back to a library, in try and except", (1,)),
    Host("keeps outputs in a file, and gives them again", (5,), f"seen = {{}}; {WRITE}", "return torch.load('/tmp/kept')"),
    Host("keeps outputs by pointer and shape", (3, 4), "kept = {}", "return kept.setdefault((x.data_ptr(), x.shape), x * 2)"),
    Host("reads what the reference left in memory", (8,), "", "return torch.empty_like(x)"),
    Host("works on a side stream", (17,), "", "torch.cuda.Stream(); return kernel[(1,)](x, x, 1, 1)"),
    Host("works in a thread that it does not wait for", (18,), "import threading", "threading.Thread(target=kernel).start(); return x"),
    Host("returns a tensor that computes itself when it is looked at", (19,), "class Lazy: pass", "return Lazy()"),
    Host("patches the clock", (20,), f"time.perf_counter = lambda: 0.0; {WRITE}"),
    Host("patches the checker", (21, 22), f"import kir.problem.comparison as c; c.elementwise = None; {WRITE}"),
    Host("ends the harness with a result of its own", (23, 24, 40), "print('accepted'); os._exit(0)"),
    Host("reads the seed of the run", (25,), "import random; seed = random.getstate()", "return x"),
    Host("looks whether a call is checked", (26, 27), "import inspect", "return x if 'judge' in str(inspect.stack()) else x * 2"),
    Host("does the work of all calls in the first", (28,), "calls = []", "calls.append(x); return x if len(calls) > 1 else x * 2"),
    Host("captures an empty graph", (29,), "", "torch.cuda.CUDAGraph(); return x"),
    Host("works when it is imported", (32,), f"table = list(range(10 ** 6)); {WRITE}"),
    Host("evaluates a string", (33,), f'eval("{WRITE}")'),
    Host("installs a package", (34, 35), f"os.system('pip install x'); {WRITE}"),
    Host("shadows a module", (36,), f"sys.modules['numpy'] = None; {WRITE}"),
    Host("hides behind comments and strings", (37,), f"# import torch  -- 'import torch' in a comment\nx = 'torch.matmul'; exec(\"{WRITE}\")"),
)
