"""Programs, rows and data that the tests of forecasts share: small, and the same every time."""
from __future__ import annotations

import numpy as np

from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.learning.forecast.training import Rows

NAMES = ("log t.total", "log t.dram", "log t.issue", "log n.For", "share t.dram", "at t.total", "log s.spills", "limit shared", "mix n.For", "mix n.Let")
USED = 8


def copying(threads: int = 128, times: int = 1, name: str = "copied") -> Program:
    """A program that copies a tensor, `times` over, with so many threads a CTA."""
    return parse_program(f"""kir 1
program {name}
  size N: i32
  in X: f32[N]
  out Y: f32[N]
kernel main grid (b: (N + {threads - 1}) // {threads}) threads {threads}
  for t in 0..{threads} parallel thread
    let i = b * {threads} + t
    if i < N
      for k in 0..{times}
        Y[i] = X[i]
""", name)


def rows(seed: int = 0, families: int = 8, each: int = 120) -> Rows:
    """Pairs whose speedup is the analytic one, bent, and off by an amount that one feature tells; failures that another tells."""
    r = np.random.default_rng(seed)
    count = families * each
    family = np.array([f"family {i % families}" for i in range(count)], dtype=object)
    seen = r.normal(size=(count, len(NAMES)))
    seen[:, NAMES.index("limit shared")] = r.uniform(0, 1.5, count)
    seen[:, NAMES.index("log s.spills")] = np.nan
    turned = seen.copy()
    for i, name in enumerate(NAMES):
        if name.startswith("log "):
            turned[:, i] = -seen[:, i]
    wide = np.where(seen[:, NAMES.index("share t.dram")] > 0, 0.5, 0.03)
    measured = 0.6 * seen[:, 0] * np.log(2) + 0.4 * seen[:, 1] + wide * r.standard_t(3, count)
    fault = seen[:, NAMES.index("limit shared")] + 0.1 * r.normal(size=count) > 1.2
    code, back = seen.copy(), turned.copy()
    code[:, NAMES.index("log s.spills")] = r.normal(size=count)
    back[:, NAMES.index("log s.spills")] = -code[:, NAMES.index("log s.spills")]
    return Rows(NAMES, USED, seen, turned, code, back, np.where(fault, np.nan, measured), fault, family,
                {"data": "d" * 64, "families": [], "devices": ["h200"]})
