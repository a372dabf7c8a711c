"""The panel: what else computes a problem on this device. Runs in the panel's process only, where torch is.

A reference takes the problem's tensors (CUDA, in the problem's layouts) and values, and returns a function without arguments that gives the
outputs by name. What it does before returning is not timed: it may bring weights or inputs into the layout that it is best at.
"""
from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

Tensors = Mapping[str, Any]
Values = Mapping[str, Any]
Call = Callable[[], dict[str, Any]]
Reference = Callable[[Tensors, Values], Call]


def matmul(t: Tensors, v: Values) -> Call:
    """cuBLAS through torch."""
    import torch
    return lambda: {"C": torch.matmul(t["A"], t["B"])}


def _matmul_of(turn_a: bool, turn_b: bool) -> Reference:
    """cuBLAS through torch, operands turned as views: the layouts are its own."""
    def build(t: Tensors, v: Values) -> Call:
        import torch
        a, b = t["A"].t() if turn_a else t["A"], t["B"].t() if turn_b else t["B"]
        return lambda: {"C": torch.matmul(a, b)}
    return build


def conv2d(t: Tensors, v: Values) -> Call:
    """cuDNN on NHWC, as given: channels-last views."""
    import torch
    torch.backends.cudnn.benchmark = True
    x, w = t["X"].permute(0, 3, 1, 2), t["Wt"].permute(0, 3, 1, 2)
    return lambda: {"Y": torch.nn.functional.conv2d(x, w, padding=1).permute(0, 2, 3, 1)}


def conv2d_nchw(t: Tensors, v: Values) -> Call:
    """cuDNN on NCHW copies."""
    import torch
    torch.backends.cudnn.benchmark = True
    x, w = t["X"].permute(0, 3, 1, 2).contiguous(), t["Wt"].permute(0, 3, 1, 2).contiguous()
    return lambda: {"Y": torch.nn.functional.conv2d(x, w, padding=1).permute(0, 2, 3, 1)}


def _attention(backend: str) -> Reference:
    def build(t: Tensors, v: Values) -> Call:
        import torch
        from torch.nn.attention import SDPBackend, sdpa_kernel
        which = getattr(SDPBackend, backend)
        k, w = (x if x.dim() == 4 else x[:, None].expand_as(t["Q"]).contiguous() for x in (t["K"], t["V"]))

        def call() -> dict[str, Any]:
            with sdpa_kernel(which):
                return {"O": torch.nn.functional.scaled_dot_product_attention(t["Q"], k, w, is_causal=bool(v["causal"]))}
        return call
    return build


def flashinfer_attention(t: Tensors, v: Values) -> Call:
    """FlashInfer's ragged prefill over all sequences of the batch."""
    import flashinfer
    import torch
    batch, heads, length, width = t["Q"].shape
    q, k, w = (t[x].transpose(1, 2).reshape(batch * length, heads, width).contiguous() for x in ("Q", "K", "V"))
    starts = torch.arange(batch + 1, device=q.device, dtype=torch.int32) * length
    plan = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(torch.empty(256 << 20, dtype=torch.uint8, device=q.device), "NHD")
    plan.plan(starts, starts, heads, heads, width, causal=bool(v["causal"]), q_data_type=q.dtype)
    return lambda: {"O": plan.run(q, k, w).reshape(batch, length, heads, width).transpose(1, 2)}


def attention_grouped(t: Tensors, v: Values) -> Call:
    """PyTorch's attention, heads of Q sharing one of K and V."""
    import torch

    def call() -> dict[str, Any]:
        return {"O": torch.nn.functional.scaled_dot_product_attention(t["Q"], t["K"][:, None], t["V"][:, None], enable_gqa=True)}
    return call


def attention_any(t: Tensors, v: Values) -> Call:
    """Attention by whichever kernel PyTorch picks; keys and values may be of one head for all."""
    import torch

    def call() -> dict[str, Any]:
        q, k, w = (x if x.dim() == 4 else x[:, None].expand(-1, t["Q"].shape[1], -1, -1) for x in (t["Q"], t["K"], t["V"]))
        return {"O": torch.nn.functional.scaled_dot_product_attention(q, k, w, is_causal=bool(v["causal"]))}
    return call


def attention_sequences_first(t: Tensors, v: Values) -> Call:
    """The same of tensors [L, B, H, d]."""
    import torch

    def call() -> dict[str, Any]:
        made = torch.nn.functional.scaled_dot_product_attention(*(t[name].permute(1, 2, 0, 3) for name in "QKV"))
        return {"O": made.permute(2, 0, 1, 3)}
    return call


def linear(t: Tensors, v: Values) -> Call:
    """cuBLAS with transposed weights and a bias, through torch."""
    import torch
    return lambda: {"C": torch.nn.functional.linear(t["A"], t["B"], t["bias"])}


def addmm(t: Tensors, v: Values) -> Call:
    """cuBLAS with a bias, through torch."""
    import torch
    return lambda: {"C": torch.addmm(t["bias"], t["A"], t["B"])}


def bmm(t: Tensors, v: Values) -> Call:
    """cuBLAS on pairs of matrices, through torch."""
    import torch
    return lambda: {"C": torch.bmm(t["A"], t["B"])}


def matmul_of_groups(t: Tensors, v: Values) -> Call:
    """cuBLAS through torch, once for each group that has rows; which those are is known beforehand."""
    import torch
    ends = t["offsets"].tolist()
    parts = [(g, lo, hi) for g, (lo, hi) in enumerate(pairwise(ends)) if hi > lo]
    out = torch.empty(t["A"].shape[0], t["B"].shape[1], device=t["A"].device, dtype=t["A"].dtype)

    def call() -> dict[str, Any]:
        for g, lo, hi in parts:
            torch.mm(t["A"][lo:hi], t["B"][g].t(), out=out[lo:hi])
        return {"C": out}
    return call


def grouped_mm(t: Tensors, v: Values) -> Call:
    """torch's own product of groups, which takes bf16."""
    import torch
    ends = t["offsets"][1:].clone()
    return lambda: {"C": torch._grouped_mm(t["A"], t["B"].transpose(-2, -1), offs=ends)}


def scaled_mm(t: Tensors, v: Values) -> Call:
    """torch's product of fp8 with scales a tile, as cuBLASLt computes it on Hopper."""
    import torch
    return lambda: {"C": torch._scaled_mm(t["A"], t["B"].t(), scale_a=t["SA"].t(), scale_b=t["SB"].t(), out_dtype=torch.bfloat16)}


def layer_norm(t: Tensors, v: Values) -> Call:
    """torch's LayerNorm."""
    import torch
    return lambda: {"Y": torch.nn.functional.layer_norm(t["X"], (t["X"].shape[-1],), t["W"], t["B"], v["eps"])}


def _gems(name: str, build: Callable[[Any, Tensors, Values], Call]) -> Reference:
    """A kernel of FlagGems, as its own function launches it, autotuner included."""
    def reference(t: Tensors, v: Values) -> Call:
        return build(importlib.import_module("flag_gems"), t, v)
    reference.__doc__ = f"FlagGems' {name}, in Triton."
    return reference


def _gems_grouped(gems: Any, t: Tensors, v: Values) -> Call:
    import torch
    groups, rows, depth = t["A"].shape
    a, ends = t["A"].reshape(groups * rows, depth), torch.arange(1, groups + 1, device=t["A"].device, dtype=torch.int32) * rows
    product = importlib.import_module("flag_gems.ops.group_gemm").group_mm
    return lambda: {"C": product(a, t["B"], ends).reshape(groups, rows, -1)}


def _gems_attention(gems: Any, t: Tensors, v: Values) -> Call:
    grouped = t["K"].dim() == 3
    q, k, w = (t["Q"], t["K"][:, None], t["V"][:, None]) if grouped else (t["Q"], t["K"], t["V"])
    forward = importlib.import_module("flag_gems.ops.attention").scaled_dot_product_attention_forward
    return lambda: {"O": forward(q, k, w, is_causal=bool(v["causal"]), enable_gqa=grouped)[0]}


def _gems_fused_norm(gems: Any, t: Tensors, v: Values) -> Call:
    def call() -> dict[str, Any]:
        gems.fused_add_rms_norm(t["X"], t["R"], [t["X"].shape[-1]], t["W"], v["eps"])
        return {"X": t["X"], "R": t["R"]}
    return call


def softmax(t: Tensors, v: Values) -> Call:
    """torch's softmax."""
    import torch
    return lambda: {"Y": torch.softmax(t["X"], dim=-1)}


def rms_norm(t: Tensors, v: Values) -> Call:
    """torch's fused RMSNorm."""
    import torch
    return lambda: {"Y": torch.nn.functional.rms_norm(t["X"], (t["X"].shape[-1],), t["W"], v["eps"])}


def fused_add_rms_norm(t: Tensors, v: Values) -> Call:
    """FlashInfer's fused sum and RMSNorm: it writes both over what it read, as the problem does."""
    import flashinfer

    def call() -> dict[str, Any]:
        flashinfer.fused_add_rmsnorm(t["X"], t["R"], t["W"], v["eps"])
        return {"X": t["X"], "R": t["R"]}
    return call


def cumsum(t: Tensors, v: Values) -> Call:
    """torch's prefix sums along the rows."""
    import torch
    return lambda: {"Y": torch.cumsum(t["X"], dim=-1)}


def transposed(t: Tensors, v: Values) -> Call:
    """torch's copy of the transposed view."""
    return lambda: {"Y": t["X"].t().contiguous()}


def top_k(t: Tensors, v: Values) -> Call:
    """torch's selection."""
    import torch

    def call() -> dict[str, Any]:
        values, index = torch.topk(t["X"], int(v["K"]), dim=-1, sorted=False)
        return {"V": values, "I": index.to(torch.int32)}
    return call


def flashinfer_top_k(t: Tensors, v: Values) -> Call:
    """FlashInfer's radix selection."""
    import flashinfer
    import torch

    def call() -> dict[str, Any]:
        values, index = flashinfer.top_k(t["X"], int(v["K"]))
        return {"V": values, "I": index.to(torch.int32)}
    return call


def fla_gated_delta(t: Tensors, v: Values) -> Call:
    """FLA's chunked rule. On Hopper it goes by kernels in TileLang, and without a word by some that take a hundred times as long where TileLang is
    installed and cannot be imported: that is no reference, and is refused."""
    import torch
    if importlib.util.find_spec("tilelang") is not None:
        importlib.import_module("tilelang")
    rule = importlib.import_module("fla.ops.gated_delta_rule").chunk_gated_delta_rule

    def call() -> dict[str, Any]:
        with torch.no_grad():
            return {"o": rule(t["q"], t["k"], t["v"], t["g"], t["beta"])[0]}
    return call


QLA_HEAD = 128
"""FlashQLA's Hopper kernels assert that both head dimensions are this."""


def qla_gated_delta(t: Tensors, v: Values) -> Call:
    """FlashQLA's chunked rule. Smaller heads are padded with zeros beforehand, which changes no output: zeros add nothing to a product of
    keys and queries, and further columns of the state do not touch the first. The outputs' padding is dropped in the timed call."""
    import torch
    rule = importlib.import_module("flash_qla").chunk_gated_delta_rule
    width = t["q"].shape[-1]
    if width > QLA_HEAD or t["v"].shape[-1] > QLA_HEAD:
        raise ValueError(f"FlashQLA takes heads of {QLA_HEAD}, the problem's have {width} and {t['v'].shape[-1]}")
    q, k, w = (torch.nn.functional.pad(t[x], (0, QLA_HEAD - t[x].shape[-1])).contiguous() for x in ("q", "k", "v"))

    def call() -> dict[str, Any]:
        with torch.no_grad():
            out = rule(q, k, w, t["g"], t["beta"], scale=width**-0.5)
        return {"o": (out[0] if isinstance(out, tuple) else out)[..., : t["v"].shape[-1]]}
    return call


COMPILED_REFERENCE = "the file's own Model, torch.compile"
"""The name of the model of a file as torch compiles it: for who runs a file that is trusted, since a compiler runs programs."""


def of_file(path: str, text: str, device: str = "cuda", compiled: bool = False) -> Reference:
    """The model of a file in the form of KernelBench, eager or as torch compiles it, in the precision that its dtypes declare. It runs the file: confine
    first. It is made once for one set of tensors."""
    import torch

    from kir.problem.model_run import ModelFile
    from kir.problem.model_source import ModelSource
    file = ModelFile(ModelSource(path, text))
    made: list[tuple[Tensors, Call]] = []

    def build(t: Tensors, v: Values) -> Call:
        if not (made and made[0][0] is t):
            made[:] = [(t, call_of(t, v))]
        return made[0][1]

    def call_of(t: Tensors, v: Values) -> Call:
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
        built = file.built(v["sizes"], 0)
        model = built.model.to(device)
        with torch.no_grad():
            for x, name in zip(model.state_dict().values(), built.state, strict=True):
                x.copy_(t[name].reshape(x.shape))
        given = built.arguments({k: t[k].reshape(x.shape) for k, x in built.given.items()})
        run = torch.compile(model) if compiled else model

        def call() -> dict[str, Any]:
            with torch.no_grad():
                out = run(*given)
            return {"out": out if out.dim() else out.reshape(1)}
        return call
    return build


REFERENCES: Mapping[str, Reference] = {
    "torch.matmul": matmul,
    "torch.matmul (B given as [N, K])": _matmul_of(False, True),
    "torch.matmul (A given as [K, M])": _matmul_of(True, False),
    "torch.matmul (A given as [K, M] and B as [N, K])": _matmul_of(True, True),
    "torch.nn.functional.conv2d": conv2d,
    "torch.nn.functional.conv2d (NCHW)": conv2d_nchw,
    "torch.nn.functional.scaled_dot_product_attention": _attention("FLASH_ATTENTION"),
    "torch.nn.functional.scaled_dot_product_attention (cuDNN)": _attention("CUDNN_ATTENTION"),
    "flashinfer.BatchPrefillWithRaggedKVCacheWrapper": flashinfer_attention,
    "torch.softmax": softmax,
    "torch.nn.functional.rms_norm": rms_norm,
    "flashinfer.fused_add_rmsnorm": fused_add_rms_norm,
    "torch.cumsum": cumsum,
    "torch.Tensor.t": transposed,
    "torch.topk": top_k,
    "flashinfer.top_k": flashinfer_top_k,
    "fla.ops.gated_delta_rule.chunk_gated_delta_rule": fla_gated_delta,
    "flash_qla.chunk_gated_delta_rule": qla_gated_delta,
    "torch.addmm": addmm,
    "torch.nn.functional.linear": linear,
    "torch.nn.functional.scaled_dot_product_attention (any kernel)": attention_any,
    "torch.nn.functional.scaled_dot_product_attention (sequences first)": attention_sequences_first,
    "torch.bmm": bmm,
    "torch.matmul (a loop over groups)": matmul_of_groups,
    "torch._grouped_mm": grouped_mm,
    "torch._scaled_mm (scales a tile)": scaled_mm,
    "torch.nn.functional.layer_norm": layer_norm,
    "torch.nn.functional.scaled_dot_product_attention (grouped heads)": attention_grouped,
    "flag_gems.mm": _gems("mm", lambda g, t, v: lambda: {"C": g.mm(t["A"], t["B"])}),
    "flag_gems.addmm": _gems("addmm", lambda g, t, v: lambda: {"C": g.addmm(t["bias"], t["A"], t["B"])}),
    "flag_gems.bmm": _gems("bmm", lambda g, t, v: lambda: {"C": g.bmm(t["A"], t["B"])}),
    "flag_gems.group_mm": _gems("group_mm", _gems_grouped),
    "flag_gems.scaled_dot_product_attention": _gems("attention", _gems_attention),
    "flag_gems.rms_norm": _gems("rms_norm", lambda g, t, v: lambda: {"Y": g.rms_norm_forward(t["X"], [t["X"].shape[-1]], t["W"], v["eps"])[0]}),
    "flag_gems.layer_norm": _gems("layer_norm", lambda g, t, v: lambda: {"Y": g.layer_norm(t["X"], [t["X"].shape[-1]], t["W"], t["B"], v["eps"])[0]}),
    "flag_gems.softmax": _gems("softmax", lambda g, t, v: lambda: {"Y": g.softmax(t["X"], -1)}),
    "flag_gems.fused_add_rms_norm": _gems("fused_add_rms_norm", _gems_fused_norm),
}
"""Every reference that a problem may name."""
