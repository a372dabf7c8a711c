"""``python -m benchmarks.optimize.calls PACKAGE [--processes N] [--only NAME,NAME]``: calls of a package's functions at sizes of models that are trained
today, forward and backward, once each. Run under ``kir capture --package PACKAGE -o FOLDER --``, it leaves what ``kir optimize FOLDER --package PACKAGE``
begins with. Needs a GPU.

A call that its package refuses here is named on standard error, and the others go on. Several processes share the calls, and take turns on the GPU where a
tuner times.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

ROWS, WIDTH, VOCABULARY = 8192, 4096, 32000
"""Tokens of a batch, features, and words."""


def _liger() -> Mapping[str, Callable[[Any], Any]]:
    """Liger's functions of rows, gates and losses."""
    f = importlib.import_module("liger_kernel.transformers.functional")

    def with_rows(call: Callable[..., Any], *more: Callable[[Any], Any], count: int = 1, width: int = WIDTH) -> Callable[[Any], Any]:
        return lambda new: call(*(new(ROWS, width) for _ in range(count)), *(x(new) for x in more))

    weight, one = (lambda new: new(WIDTH)), (lambda new: 1e-6)
    return {
        "rms_norm": with_rows(f.liger_rms_norm, weight, one), "layer_norm": with_rows(f.liger_layer_norm, weight, weight, one),
        "swiglu": with_rows(f.liger_swiglu, count=2, width=11008), "geglu": with_rows(f.liger_geglu, count=2, width=11008),
        "group_norm": lambda new: f.liger_group_norm(new(64, 256, 1024), new(256), new(256), 256, 32, 1e-6),
        "cross_entropy": lambda new: f.liger_cross_entropy(new(ROWS, VOCABULARY), new.whole(ROWS, VOCABULARY)),
        "fused_add_rms_norm": with_rows(f.liger_fused_add_rms_norm, weight, one, count=2), "dyt": with_rows(f.liger_dyt, lambda new: new(1), weight, weight),
        "softmax": with_rows(f.liger_softmax), "sparsemax": with_rows(f.liger_sparsemax),
        "kl_div": lambda new: f.liger_kl_div(new(ROWS, WIDTH).log_softmax(-1), new(ROWS, WIDTH).softmax(-1)),
        "jsd": lambda new: f.liger_jsd(new(2048, WIDTH).log_softmax(-1), new(2048, WIDTH).log_softmax(-1)),
        "tvd": lambda new: f.liger_tvd(new(ROWS, WIDTH).softmax(-1), new(ROWS, WIDTH).softmax(-1)),
    }


def _gems() -> Mapping[str, Callable[[Any], Any]]:
    """FlagGems' reductions, norms and products."""
    g = importlib.import_module("flag_gems")

    def rows(name: str, *more: Any, width: int = WIDTH) -> Callable[[Any], Any]:
        return lambda new: getattr(g, name)(new(ROWS, width, grad=False), *more)

    return {
        **{name: rows(name, -1) for name in ("softmax", "log_softmax", "cumsum", "argmax", "argmin")},
        **{name: rows(name) for name in ("sum", "mean", "max", "min", "prod", "amax", "vector_norm")},
        **{name: rows(name) for name in ("gelu", "silu", "sigmoid", "tanh", "relu", "rsqrt", "exp")},
        **{f"{name} of rows": rows(name, [-1]) for name in ("sum_dim", "mean_dim", "amax", "var_mean", "vector_norm")},
        **{f"{name} of axis": rows(name, -1) for name in ("max_dim", "min_dim", "prod_dim")},
        "layer_norm": lambda new: g.layer_norm(new(ROWS, WIDTH, grad=False), [WIDTH], new(WIDTH, grad=False), new(WIDTH, grad=False)),
        "rms_norm": lambda new: g.rms_norm(new(ROWS, WIDTH, grad=False), [WIDTH], new(WIDTH, grad=False)),
        "group_norm": lambda new: g.group_norm(new(64, 256, 1024, grad=False), new(256, grad=False), new(256, grad=False), 64, 256, 1024, 32, 1e-5),
        "fused_add_rms_norm": lambda new: g.fused_add_rms_norm(new(ROWS, WIDTH, grad=False), new(ROWS, WIDTH, grad=False), [WIDTH], new(WIDTH, grad=False)),
        "mm": lambda new: g.mm(new(4096, WIDTH, grad=False), new(WIDTH, WIDTH, grad=False)),
        "bmm": lambda new: g.bmm(new(16, 1024, 1024, grad=False), new(16, 1024, 1024, grad=False)),
        "mv": lambda new: g.mv(new(ROWS, WIDTH, grad=False), new(WIDTH, grad=False)),
    }


def _fla() -> Mapping[str, Callable[[Any], Any]]:
    """FLA's modules of rows."""
    m = importlib.import_module("fla.modules")
    norms, act = importlib.import_module("fla.modules.l2norm"), importlib.import_module("fla.modules.activations")
    return {
        "rms_norm": lambda new: new.module(m.RMSNorm(WIDTH))(new(ROWS, WIDTH)), "layer_norm": lambda new: new.module(m.LayerNorm(WIDTH))(new(ROWS, WIDTH)),
        "gated_rms_norm": lambda new: new.module(m.FusedRMSNormGated(WIDTH))(new(ROWS, WIDTH), new(ROWS, WIDTH)),
        "group_norm": lambda new: new.module(m.GroupNorm(32, WIDTH))(new(4, 2048, WIDTH)), "l2norm": lambda new: norms.l2norm(new(ROWS * 32, 128)),
        "swiglu": lambda new: act.swiglu(new(ROWS, 11008), new(ROWS, 11008)), "swish": lambda new: act.swish(new(ROWS, 11008)),
        "logsigmoid": lambda new: act.logsigmoid(new(ROWS, WIDTH)), "sqrelu": lambda new: act.sqrelu(new(ROWS, WIDTH)),
        "cross_entropy": lambda new: new.module(m.FusedCrossEntropyLoss())(new(ROWS, VOCABULARY), new.whole(ROWS, VOCABULARY)),
        "rotary": lambda new: new.module(m.RotaryEmbedding(128))(new(4, 2048, 32, 128), new(4, 2048, 32, 128)),
    }


class New:
    """Makes tensors of a call, in bfloat16, on the device."""

    def __call__(self, *shape: int, grad: bool = True) -> Any:
        import torch

        return torch.randn(*shape, device="cuda", dtype=torch.bfloat16).requires_grad_(grad)

    def whole(self, count: int, below: int) -> Any:
        """Whole numbers."""
        import torch

        return torch.randint(0, below, (count,), device="cuda")

    def module(self, made: Any) -> Any:
        """A module on the device."""
        import torch

        return made.to(device="cuda", dtype=torch.bfloat16)


CALLS = {"liger_kernel": _liger, "flag_gems": _gems, "fla": _fla}


def main(words: list[str]) -> int:
    """Call what is named; 2 for no such package, 1 where nothing ran."""
    given = {"--processes": "1", "--only": ""}
    package, rest = words[:1], words[1:]
    while len(rest) > 1 and rest[0] in given:
        given[rest[0]], rest = rest[1], rest[2:]
    if not package or package[0] not in CALLS or rest:
        print(__doc__, file=sys.stderr)
        return 2
    only, processes = [x for x in given["--only"].split(",") if x], int(given["--processes"])
    if processes > 1:
        names = only or list(CALLS[package[0]]())
        shares = [names[k::processes] for k in range(min(processes, len(names)))]
        command = [sys.executable, "-m", "benchmarks.optimize.calls", package[0], "--only"]
        return max(each.wait() for each in [subprocess.Popen([*command, ",".join(share)]) for share in shares])
    return _called(package[0], only)


def _called(package: str, only: list[str]) -> int:
    import torch

    _in_turn()
    done = 0
    for name, call in CALLS[package]().items():
        if only and name not in only:
            continue
        try:
            torch.manual_seed(0)
            out = call(New())
            first = out[0] if isinstance(out, (list, tuple)) else out
            if first.requires_grad:
                first.float().square().mean().backward()
            torch.cuda.synchronize()
            done += 1
        except Exception as fault:  # another library's code
            print(f"{name}: {type(fault).__name__}: {fault}"[:300], file=sys.stderr)
    return 0 if done else 1


def _in_turn() -> None:
    """Tuners time alone on the GPU, whatever other processes do there; a configuration is compiled before that."""
    from triton import testing

    from kir.hardware.device.turns import Turns

    turns, inner = Turns.of(), testing.do_bench

    def timed(call: Callable[[], Any], *more: Any, **options: Any) -> Any:
        with turns.beside():
            call()
        with turns.alone():
            return inner(call, *more, **options)

    testing.do_bench = timed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
