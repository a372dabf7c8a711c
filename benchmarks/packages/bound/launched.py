"""Two functions of one kernel, launched on a GPU with the arguments that were prepared: the package's own, and the one that KIR wrote."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.packages.bound.prepared import Row
from benchmarks.packages.originals import original

BESIDE = 1 << 14
"""Elements of each tensor's memory after what a kernel is said to reach."""
WITHIN = 2e-3
"""The largest difference that counts as right, as a share of the largest value: orders of sums may differ."""


AGAIN = 4
"""How often a kernel is launched again to see whether it agrees with itself."""


def launched(place: str, ready: Row, folder: Path) -> Row:
    """What came of one kernel: `state` is `equal`, `differs`, `idle` (it left its memory as it was), `unsteady` (the package's own kernel does not
    agree with itself: it is given overlapping memory, or its order of sums is open), `unfit` (the package's own kernel is none under what was found for
    it) or `failed`, with `reason`. Both are compiled before the device is asked for, so that nobody waits for a compiler."""
    import torch

    from kir.hardware.device.turns import Turns
    from kir.learning.corpus.measured import compare, copied

    path, kernel = Path(place.partition("::")[0]), place.partition("::")[2]
    out, whose = {k: ready[k] for k in ("hash", "sizes", "binding")}, "unfit"
    try:
        theirs, grid, options = original(path, kernel), tuple(ready["grid"]), ready["options"]
        given = arguments(theirs, ready)
        theirs.warmup(**given, **options, grid=grid)
        with Turns.of().beside():
            theirs[grid](**copied(given), **options)
            torch.cuda.synchronize()
        whose = "failed"
        ours = written(ready, kernel, folder)
        ours.warmup(**given, **options, grid=grid)
        made = compare(given, lambda v: theirs[grid](**v, **options), lambda v: ours[grid](**v, **options))
        right = made["equal"] or made["difference"] <= WITHIN * max(made["scale"], 1e-3)
        if right:
            state = "equal" if _changes(given, lambda v: ours[grid](**v, **options)) else "idle"
        else:
            state = "differs" if _steady(given, lambda v: theirs[grid](**v, **options)) else "unsteady"
    except Exception as bad:  # whatever a package's module, Triton or the device says
        said = [line.strip() for line in str(bad).splitlines() if line.strip(" ^")]
        return {**out, "state": whose, "reason": f"{type(bad).__name__}: {' .. '.join(dict.fromkeys([*said[:1], *said[-1:]]))}"[:300]}
    return {**out, "state": state, "reason": "" if right else f"{made['difference']:.3g} of {made['scale']:.3g}", "measured": made}


def written(ready: Row, kernel: str, folder: Path) -> Any:
    """The kernel that KIR wrote, as a function that Triton compiles; its source is kept in `folder`."""
    name = f"kir_again_{ready['hash']}"
    path = folder / f"{name}.py"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(ready["text"], encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return getattr(module, kernel)


def _changes(given: Mapping[str, Any], run: Any) -> bool:
    """Whether a launch leaves its memory otherwise than it was."""
    from kir.hardware.device.turns import Turns
    from kir.learning.corpus.measured import copied, difference

    with Turns.of().beside():
        after = copied(given)
        run(after)
        return not difference(given, after)["equal"]


def _steady(given: Mapping[str, Any], run: Any) -> bool:
    """Whether a few launches leave the same."""
    from kir.hardware.device.turns import Turns
    from kir.learning.corpus.measured import copied, difference

    with Turns.of().beside():
        first = copied(given)
        run(first)
        for _ in range(AGAIN):
            other = copied(given)
            run(other)
            gap = difference(first, other)
            if not gap["equal"] and gap["difference"] > WITHIN * max(gap["scale"], 1e-3):
                return False
    return True


def arguments(fn: Any, ready: Row) -> Row:
    """The arguments by the parameters' names. Raises LookupError for a parameter that nothing says anything of."""
    import torch
    import triton.language as tl

    from kir.learning.corpus.launch import DTYPES, TRITON

    torches = {ir: getattr(torch, name) for name, ir in DTYPES.items() if hasattr(torch, name)}
    words: dict[str, Any] = {ir: getattr(tl, name, None) for name, ir in TRITON.items()}
    words |= {"f16": tl.float16, "bf16": tl.bfloat16, "f32": tl.float32, "f64": tl.float64}
    chance = torch.Generator(device="cuda").manual_seed(17)
    out: Row = {}
    for p in fn.params:
        said = ready["arguments"].get(p.name)
        if said is None:
            if not p.has_default and p.is_constexpr:
                raise LookupError(f"nothing says what '{p.name}' is")
            if not p.has_default:
                out[p.name] = 1  # the kernel never reads it
        elif "tensor" in said:
            out[p.name] = _filled(torch, torches[said["tensor"]], said["elements"] + BESIDE, chance)
        else:
            out[p.name] = words.get(said["dtype"]) or said["dtype"] if "dtype" in said else said["value"]
    return out


def _filled(torch: Any, dtype: Any, count: int, chance: Any) -> Any:
    """Memory filled by chance: normal values, or zeros and ones."""
    if dtype.is_floating_point:
        return torch.randn(count, device="cuda", generator=chance).to(dtype)
    return torch.randint(0, 2, (count,), device="cuda", generator=chance).to(dtype)
