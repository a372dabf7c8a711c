"""What a model's forward calls, one operator after the other, as data: below autograd and modules, compound operators taken apart.

Runs where the model's file runs (`kir.problem.model_child`): torch is here.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch._decomp import get_decompositions
from torch.utils._python_dispatch import TorchDispatchMode

from kir.base.diagnostic import Origin, error

DTYPES = {torch.float64: "f64", torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.int64: "i64", torch.int32: "i32",
          torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8", torch.bool: "bool"}
COMPOUND = (
    "native_layer_norm", "native_group_norm", "native_batch_norm", "_native_batch_norm_legit_no_training", "_native_batch_norm_legit",
    "_softmax", "_log_softmax", "addmm", "baddbmm", "addmv", "mv", "dot", "gelu", "silu", "mish", "hardswish", "hardsigmoid", "hardtanh",
    "softplus", "elu", "leaky_relu", "log_sigmoid_forward", "nll_loss_forward", "mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy",
    "binary_cross_entropy_with_logits", "linalg_vector_norm", "norm", "logsumexp", "addcmul", "addcdiv", "rsub", "threshold", "triu", "tril", "std",
    "celu", "selu", "softshrink", "hardshrink", "rms_norm", "_fused_rms_norm", "soft_margin_loss", "margin_ranking_loss", "xlogy", "glu", "lerp", "logit",
    "nansum", "std_mean", "aminmax", "frac", "trace", "squeeze", "diag_embed", "new_zeros", "new_full", "new_ones", "zeros_like", "ones_like", "dist",
    "relu6", "cosine_similarity", "im2col", "unfold", "index_add", "_adaptive_avg_pool2d", "special_entr", "heaviside", "floor_divide", "roll", "rot90",
)
"""Operators that torch itself takes apart into simpler ones."""


@cache
def _parts() -> Mapping[Any, Callable[..., Any]]:
    known = [getattr(torch.ops.aten, name) for name in COMPOUND if hasattr(torch.ops.aten, name)]
    found: Mapping[Any, Callable[..., Any]] = get_decompositions(known)
    return found


class Recording(TorchDispatchMode):  # type: ignore[misc]  # torch leaves the class untyped
    """Records while it is entered. Every tensor has a number; one that an operator writes gets a new one."""

    def __init__(self, where: Origin) -> None:
        super().__init__()
        self.where, self.rows = where, list[dict[str, Any]]()
        self.numbers: dict[int, int] = {}
        self.held: list[Any] = []  # a tensor that lives keeps its id
        self.count = 0
        self.seen_through: set[int] = set()

    def named(self, x: Any) -> int:
        """A new number for a tensor."""
        self.held.append(x)
        self.numbers[id(x)] = self.count
        self.count += 1
        return self.count - 1

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        given = dict(kwargs or {})
        if (simpler := _parts().get(func)) is not None:
            with self:
                made = simpler(*args, **given)
            if made is not NotImplemented:
                return made
        out = func(*args, **given)
        name = str(func)
        written = [a for a, s in zip(args, func._schema.arguments, strict=False) if s.alias_info is not None and s.alias_info.is_write]
        if written and (len(written) != 1 or written[0] is not out or id(written[0]) in self.seen_through):
            raise error("KIR-G918", f"forward writes over memory that other tensors share ({name})", origin=self.where,
                        needs="a forward without operators in place")
        told = [self._told(a) for a in args], {k: self._told(v) for k, v in given.items()}
        if not written and not isinstance(out, (list, tuple)) and func.is_view:
            self.seen_through |= {id(a) for a in args if isinstance(a, torch.Tensor)} | {id(out)}
        several = list(out) if isinstance(out, (list, tuple)) else [out]
        made_rows = [{"id": self.named(x), "shape": list(x.shape), "dtype": DTYPES.get(x.dtype, str(x.dtype))} if isinstance(x, torch.Tensor) else None
                     for x in several]
        self.rows.append({"op": name.removeprefix("aten."), "args": told[0], "words": told[1], "out": made_rows})
        return out

    def _told(self, x: Any) -> Any:
        if isinstance(x, torch.Tensor):
            if id(x) not in self.numbers:
                if x.numel() == 1 and x.device.type != "meta":
                    return x.item()
                raise error("KIR-G918", "forward uses a tensor that is neither an input nor a state of the model", origin=self.where,
                            needs="constants as buffers of the model")
            return {"tensor": self.numbers[id(x)]}
        if isinstance(x, (list, tuple)):
            return [self._told(y) for y in x]
        if isinstance(x, torch.dtype):
            return {"dtype": DTYPES.get(x, str(x))}
        return x if isinstance(x, (int, float, str, bool, type(None))) else str(x)


def recorded(model: Any, given: Sequence[Any], inputs: Mapping[str, Any], where: Origin) -> dict[str, Any]:
    """The call `model(*given)`: `inputs` by number and name, the operators in order, and the number of what it returns. Raises KirError KIR-G918."""
    recording = Recording(where)
    numbers = {name: recording.named(x) for name, x in inputs.items()}
    with torch.no_grad(), recording:
        out = model(*given)
    if id(out) not in recording.numbers:
        raise error("KIR-G918", "forward returns what no operator made", origin=where, needs="a forward that computes something")
    rows = [{"id": numbers[name], "name": name, "shape": list(x.shape), "dtype": DTYPES[x.dtype]} for name, x in inputs.items()]
    return {"inputs": rows, "calls": recording.rows, "result": recording.numbers[id(out)]}
