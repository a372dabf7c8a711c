"""KIR: a compiler-style rewrite framework for GPU kernels.

    import kir
    k = kir.read("softmax.py")                 # `kir.Kernel`; its binding is found where its launch is
    kir.run(k), kir.check(k)                   # on the CPU, the second as a suspicious machine would
    kir.sites(k), kir.apply(k, "tile{extent=64}"), kir.undo(k)
    kir.prove(k)                               # hazards for every size
    kir.judge(k, problem="softmax")            # the gate
    kir.diff(k, other), kir.emit(k, "cuda"), kir.walk(k), kir.explain("KIR-P520"), kir.save(k, "k.kir")
    kir.optimize(k)                            # a faster one, searched for under a budget; its `speedup`, `steps`, `kernel`
    kir.forecast(k, other, {"M": 4096, "N": 4096})   # what the change is likely to bring, before it is measured

These are loaded when they are first asked for (`kir.faces.api`).

Order: base, hardware, ir, analysis, interp, problem, rewrite, surface, gate, lineage, learning, faces.
"""

import importlib

__version__ = "0.1.0"
_OFFERED = ("Difference", "Faster", "Kernel", "KirError", "Ran", "Site", "Walked", "apply", "check", "diff", "emit", "explain", "forecast", "judge", "optimize",
            "prove", "read", "run", "save", "sites", "undo", "walk")


def __getattr__(name: str) -> object:
    if name in _OFFERED:
        return getattr(importlib.import_module(f"kir.faces.api.{'optimizing' if name in ('Faster', 'optimize') else 'kernels'}"), name)
    raise AttributeError(f"module 'kir' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*(name for name in globals() if name.startswith("__")), *_OFFERED])
