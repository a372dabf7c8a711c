"""``python -m benchmarks.optimize.rivals K N NAME ...`` calls FlagGems' kernels of instances with every Nth configuration of their autotuners, from the Kth."""

from __future__ import annotations

import gc
import sys
from typing import Any

from benchmarks.optimize.instances import INSTANCES
from kir.gate.gpu.references import REFERENCES


def main(words: list[str]) -> int:
    """Compile a share of the configurations by calling the kernels once; what one of them refuses is left."""
    import flag_gems  # noqa: F401  # it registers its autotuners
    import torch
    import triton

    share, of = int(words[0]), int(words[1])
    for tuner in [x for x in gc.get_objects() if isinstance(x, triton.runtime.Autotuner)]:
        tuner.configs = tuner.configs[share::of] or tuner.configs[:1]
    seen = set()
    for one in INSTANCES:
        problem = one.posed()
        if one.name not in words[2:] or (one.rival, one.problem) in seen:
            continue
        seen.add((one.rival, one.problem))
        kinds: dict[str, Any] = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}
        tensors = {t.name: torch.zeros(problem.tensor_shape(t, one.shape), dtype=kinds[problem.tensor_dtype(t)], device="cuda")
                   for t in problem.spec.tensors if t.role != "out"}
        try:
            REFERENCES[one.rival](tensors, dict(problem.values(one.shape)))()
            torch.cuda.synchronize()
        except Exception as fault:  # another library's code: the panel says later why it does not run
            print(one.name, type(fault).__name__, fault, file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
