"""``python -m benchmarks.optimize.calls PACKAGE [--processes N] [--only NAME,NAME] [--done FILE] [--known WORD,WORD]``: calls of a package's functions at
sizes of models that are trained today, forward and backward, once each. Run under ``kir capture --package PACKAGE -o FOLDER --``, it leaves what
``kir optimize FOLDER --package PACKAGE`` begins with; those named in FILE are not made again, and those of functions that are known come last. Needs a GPU.

A call that its package refuses here is named on standard error, and the others go on. Several processes share the calls and the GPUs, and take turns on each
where a tuner times.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kir.hardware import machine

ROWS, WIDTH, VOCABULARY = 8192, 4096, 32000
"""Tokens of a batch, features, and words."""
WARM, TIMED = 5, 25
"""Milliseconds for which a tuner warms a configuration, and for which it times it."""


def _liger() -> Mapping[str, Callable[[Any], Any]]:
    """Liger's functions of rows, gates, positions and losses."""
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
        "softmax of words": lambda new: f.liger_softmax(new(2048, 2 * VOCABULARY)), "relu_squared": lambda new: f.liger_relu_squared(new(ROWS, 11008)),
        "rope": lambda new: f.liger_rope(new(2, 32, 4096, 128), new(2, 8, 4096, 128), new(1, 4096, 128, grad=False), new(1, 4096, 128, grad=False)),
        "qwen2vl_mrope": lambda new: f.liger_qwen2vl_mrope(new(2, 32, 4096, 128), new(2, 8, 4096, 128), new(3, 2, 4096, 128, grad=False),
                                                           new(3, 2, 4096, 128, grad=False), [16, 24, 24]),
        "poly_norm": with_rows(f.liger_poly_norm, lambda new: new(3), lambda new: new(1)),
        "attn_res": lambda new: f.liger_attn_res(new(4, 2, 2048, WIDTH), new(WIDTH), new(WIDTH)),
        "multi_token_attention": lambda new: f.liger_multi_token_attention(new(2, 8, 1024, 1024), new(8, 8, 3, 3), None, 1, 1),
        "embedding": lambda new: importlib.import_module("liger_kernel.ops.experimental.embedding").LigerEmbeddingFunction.apply(
            new(VOCABULARY, WIDTH), new.whole(ROWS, VOCABULARY)),
        "linear_cross_entropy": lambda new: f.liger_fused_linear_cross_entropy(new(ROWS, WIDTH), new(VOCABULARY, WIDTH), new.whole(ROWS, VOCABULARY)),
    }


def _gems() -> Mapping[str, Callable[[Any], Any]]:
    """FlagGems' reductions, norms, losses, pictures, copies and products: what has kernels of its own in its files."""
    g, bf16 = importlib.import_module("flag_gems"), importlib.import_module("torch").bfloat16

    def rows(name: str, *more: Any, width: int = WIDTH, count: int = 1, wide: bool = False) -> Callable[[Any], Any]:
        return lambda new: getattr(g, name)(*(new(ROWS, width, grad=False, wide=wide) for _ in range(count)), *more)

    def shaped(name: str, *shapes: tuple[int, ...], more: tuple[Any, ...] = (), **named: Any) -> Callable[[Any], Any]:
        return lambda new: getattr(g, name)(*(new(*shape, grad=False) for shape in shapes), *more, **named)

    def words(new: Any) -> Any:
        return new.whole(ROWS, VOCABULARY)

    maps = (32, 64, 112, 112)
    return {
        **{name: rows(name, -1) for name in ("softmax", "log_softmax", "cumsum", "argmax", "argmin", "cummax", "cummin", "_safe_softmax")},
        **{name: rows(name) for name in ("sum", "mean", "max", "min", "prod", "amax", "vector_norm", "aminmax", "all", "any", "count_nonzero", "std", "var")},
        **{name: rows(name) for name in ("absolute", "arcsinh", "hardsigmoid", "i0", "logit", "relu6", "selu", "softshrink", "special_i0e", "special_i1",
                                         "alias_copy", "t_copy", "tril", "triu", "trace", "round", "lift_fresh_copy", "conj_physical")},
        **{f"{name} of rows": rows(name, [-1]) for name in ("sum_dim", "mean_dim", "amax", "var_mean", "vector_norm", "all_dims", "any_dims", "std")},
        **{f"{name} of columns": rows(name, [0]) for name in ("sum_dim", "mean_dim", "amax", "vector_norm", "std")},
        **{f"{name} of axis": rows(name, -1) for name in ("max_dim", "min_dim", "prod_dim", "all_dim", "any_dim", "aminmax")},
        **{f"{name} along columns": rows(name, 0) for name in ("softmax", "log_softmax", "argmax", "argmin", "cumsum", "prod_dim", "max_dim", "min_dim")},
        **{f"{name} of two": rows(name, count=2) for name in ("hypot", "fmin", "mse_loss", "soft_margin_loss")},
        "vector_norm 1": rows("vector_norm", 1, [-1]), "vector_norm inf": rows("vector_norm", float("inf"), [-1]),
        "vector_norm 0": rows("vector_norm", 0, [-1]),
        "softmax_backward": rows("softmax_backward", -1, bf16, count=2), "log_softmax_backward": rows("log_softmax_backward", -1, bf16, count=2),
        "softmax_backward along columns": rows("softmax_backward", 0, bf16, count=2),
        "scaled_softmax": shaped("scaled_softmax_forward", (4, 16, 2048, 2048), more=(0.125,)),
        "scaled_softmax_backward": shaped("scaled_softmax_backward", (4, 16, 2048, 2048), (4, 16, 2048, 2048), more=(0.125,)),
        "layer_norm": lambda new: g.layer_norm(new(ROWS, WIDTH, grad=False), [WIDTH], new(WIDTH, grad=False), new(WIDTH, grad=False)),
        "layer_norm wide": lambda new: g.layer_norm(new(2048, 20480, grad=False), [20480], new(20480, grad=False), new(20480, grad=False)),
        "layer_norm_backward": lambda new: g.layer_norm_backward(*(new(ROWS, WIDTH, grad=False) for _ in range(2)), [WIDTH], *(new(
            ROWS, 1, grad=False, wide=True) for _ in range(2)), new(WIDTH, grad=False), new(WIDTH, grad=False), [True, True, True]),
        "rms_norm": lambda new: g.rms_norm(new(ROWS, WIDTH, grad=False), [WIDTH], new(WIDTH, grad=False)),
        "rms_norm_backward": lambda new: g.rms_norm_backward(*(new(ROWS, WIDTH, grad=False) for _ in range(2)), new(ROWS, grad=False, wide=True), [WIDTH], new(
            WIDTH, grad=False)),
        "skip_layer_norm": lambda new: g.skip_layer_norm(*(new(ROWS, WIDTH, grad=False) for _ in range(2)), [WIDTH], *(new(WIDTH, grad=False) for _ in "wb")),
        "group_norm": lambda new: g.group_norm(new(64, 256, 1024, grad=False), new(256, grad=False), new(256, grad=False), 64, 256, 1024, 32, 1e-5),
        "group_norm_backward": lambda new: g.group_norm_backward(*(new(64, 256, 1024, grad=False) for _ in range(2)), *(new(
            64, 32, grad=False) for _ in range(2)), new(256, grad=False), 64, 256, 1024, 32, [True, True, True]),
        "batch_norm": lambda new: g.batch_norm(new(*maps, grad=False), *(new(64, grad=False) for _ in range(4)), True),
        "batch_norm_backward": lambda new: g.batch_norm_backward(*(new(*maps, grad=False) for _ in range(2)), *(new(64, grad=False) for _ in range(3)), *(new(
            64, grad=False, wide=True) for _ in range(2)), True, 1e-5, [True, True, True]),
        "instance_norm": lambda new: g.instance_norm(new(32, 64, 4096, grad=False), new(64, grad=False), new(64, grad=False)),
        "weight_norm": shaped("weight_norm", (WIDTH, WIDTH), (WIDTH, 1)), "weight_norm of the last": shaped("weight_norm", (WIDTH, WIDTH), (WIDTH,), more=(1,)),
        "fused_add_rms_norm": lambda new: g.fused_add_rms_norm(new(ROWS, WIDTH, grad=False), new(ROWS, WIDTH, grad=False), [WIDTH], new(WIDTH, grad=False)),
        "geglu": rows("geglu", width=11008), "swiglu": rows("swiglu", width=11008), "reglu": rows("reglu", width=11008),
        "dgeglu": shaped("dgeglu", (ROWS, 5504), (ROWS, 11008)), "dswiglu": shaped("dswiglu", (ROWS, 5504), (ROWS, 11008)),
        "dreglu": shaped("dreglu", (ROWS, 5504), (ROWS, 11008)), "prelu": shaped("prelu", (32, 64, 4096), (64,)),
        "dropout": rows("dropout", 0.1), "dropout_backward": lambda new: g.dropout_backward(new(ROWS, WIDTH, grad=False), new.flags(ROWS, WIDTH), 1.1),
        "rrelu_with_noise_backward": rows("rrelu_with_noise_backward", 0.1, 0.3, True, count=3),
        "cross_entropy_loss": lambda new: g.cross_entropy_loss(new(ROWS, VOCABULARY), words(new)),
        "cross_entropy_loss smooth": lambda new: g.cross_entropy_loss(new(ROWS, VOCABULARY), words(new), label_smoothing=0.1),
        "nll_loss": lambda new: g.nll_loss_forward(new(ROWS, VOCABULARY, grad=False), words(new)),
        "nll_loss2d": lambda new: g.nll_loss2d_forward(new(16, 32, 512, 512, grad=False), new.whole(16 * 512 * 512, 32).view(16, 512, 512)),
        "margin_ranking_loss": lambda new: g.margin_ranking_loss(*(new(ROWS * WIDTH, grad=False) for _ in range(3)), 0.5),
        "embedding": lambda new: g.embedding(new(VOCABULARY, WIDTH, grad=False), words(new)),
        "embedding_backward": lambda new: g.embedding_backward(new(ROWS, WIDTH, grad=False), words(new), VOCABULARY),
        "embedding_dense_backward": lambda new: g.embedding_dense_backward(new(ROWS, WIDTH, grad=False), words(new), VOCABULARY, -1, False),
        "index_select": lambda new: g.index_select(new(VOCABULARY, WIDTH, grad=False), 0, words(new)),
        "one_hot": lambda new: g.one_hot(new.whole(ROWS, 1024), 1024), "bincount": lambda new: g.bincount(new.whole(ROWS * 512, VOCABULARY)),
        "max_pool2d": shaped("max_pool2d_with_indices", maps, more=([3, 3], [2, 2], [1, 1])),
        "avg_pool2d": shaped("avg_pool2d", maps, more=([3, 3], [2, 2], [1, 1])),
        "avg_pool2d_backward": shaped("avg_pool2d_backward", (32, 64, 56, 56), maps, more=([3, 3], [2, 2], [1, 1], False, True, None)),
        "upsample_nearest1d": shaped("upsample_nearest1d", (32, 64, 4096), more=([8192],)),
        "upsample_linear1d": shaped("upsample_linear1d", (32, 64, 4096), more=(
            [8192], False)),
        "upsample_nearest2d": shaped("upsample_nearest2d", (16, 64, 64, 64), more=([128, 128],)),
        "upsample_nearest3d": shaped("upsample_nearest3d", (4, 32, 32, 32, 32), more=([64, 64, 64],)),
        "upsample_bicubic2d": shaped("upsample_bicubic2d", (8, 32, 64, 64), more=([128, 128], False)),
        "_upsample_nearest_exact1d": shaped("_upsample_nearest_exact1d", (32, 64, 4096), more=([8192],)),
        "pixel_unshuffle": shaped("pixel_unshuffle", (16, 16, 256, 256), more=(2,)),
        "reflection_pad1d": shaped("reflection_pad1d", (32, 64, 4096), more=([3, 3],)),
        "reflection_pad2d": shaped("reflection_pad2d", maps, more=([1, 1, 1, 1],)),
        "replication_pad1d": shaped("replication_pad1d", (32, 64, 4096), more=([3, 3],)),
        "replication_pad3d": shaped("replication_pad3d", (4, 16, 32, 64, 64), more=([1] * 6,)), "roll": rows("roll", 7, 1),
        "slice_scatter": shaped("slice_scatter", (ROWS, WIDTH), (ROWS, 2048), more=(1, 0, 2048, 1)),
        "select_scatter": shaped("select_scatter", (ROWS, WIDTH), (ROWS,), more=(1, 5)), "select_backward": shaped("select_backward", (ROWS,), more=(
            [ROWS, WIDTH], 1, 5)),
        "slice_backward": shaped("slice_backward", (ROWS, 2048), more=([ROWS, WIDTH], 1, 0, 2048, 1)),
        "cat": lambda new: g.cat([new(ROWS, WIDTH, grad=False) for _ in range(3)], 1),
        "stack": lambda new: g.stack([new(ROWS, WIDTH, grad=False) for _ in "abc"]),
        "hstack": lambda new: g.hstack([new(ROWS, WIDTH, grad=False) for _ in range(3)]), "vstack": lambda new: g.vstack([new(
            ROWS, WIDTH, grad=False) for _ in range(3)]),
        "diag": shaped("diag", (ROWS,)), "diag of a square": shaped("diag", (ROWS, ROWS)), "eye_m": lambda new: g.eye_m(ROWS, WIDTH, device="cuda"),
        "arange": lambda new: g.arange(ROWS * WIDTH, device="cuda"), "linspace": lambda new: g.linspace(0, 1, ROWS * WIDTH, device="cuda"),
        "logspace": lambda new: g.logspace(0, 1, ROWS * WIDTH, device="cuda"), "zeros": lambda new: g.zeros([ROWS, WIDTH], device="cuda"),
        "kron": shaped("kron", (64, 64), (64, 64)), "dot": shaped("dot", (ROWS * WIDTH,), (ROWS * WIDTH,)),
        "vdot": shaped("vdot", (ROWS * WIDTH,), (ROWS * WIDTH,)),
        "addr": shaped("addr", (ROWS, WIDTH), (ROWS,), (WIDTH,)), "addmv": shaped("addmv", (ROWS,), (ROWS, WIDTH), (WIDTH,)),
        "outer": shaped("outer", (ROWS,), (WIDTH,)),
        "mm": shaped("mm", (4096, WIDTH), (WIDTH, WIDTH)), "addmm": shaped("addmm", (WIDTH,), (4096, WIDTH), (WIDTH, WIDTH)),
        "bmm": shaped("bmm", (16, 1024, 1024), (16, 1024, 1024)), "baddbmm": shaped("baddbmm", (16, 1024, 1024), (16, 1024, 1024), (16, 1024, 1024)),
        "mv": shaped("mv", (ROWS, WIDTH), (WIDTH,)), "per_token_group_quant_fp8": shaped("per_token_group_quant_fp8", (ROWS, WIDTH), more=(128,)),
        "moe_sum": shaped("moe_sum", (ROWS, 8, 2048), (ROWS, 2048)), "topk": rows("topk", 8, width=1024), "hadamard_transform": rows("hadamard_transform"),
        "apply_rotary_pos_emb": lambda new: g.apply_rotary_pos_emb(new(2, 4096, 32, 128, grad=False), new(2, 4096, 8, 128, grad=False), *(new(
            4096, 64, grad=False) for _ in range(2))),
        "rwkv_ka_fusion": shaped("rwkv_ka_fusion", (ROWS, WIDTH), (WIDTH,), (ROWS, WIDTH), (WIDTH,), more=(64, 64)),
        "unfold_backward": shaped("unfold_backward", (256, 127, 64), more=([256, 4096], 1, 64, 32)),
        "quantile": rows("quantile", 0.5, -1, width=1024, wide=True),
        "depthwise": shaped("_conv_depthwise2d", (32, 64, 56, 56), (64, 1, 3, 3), more=([3, 3], None, [1, 1], [1, 1], [1, 1])),
    }


def _fla() -> Mapping[str, Callable[[Any], Any]]:
    """FLA's modules of rows, and its recurrences in chunks and in steps."""
    m = importlib.import_module("fla.modules")
    norms, act = importlib.import_module("fla.modules.l2norm"), importlib.import_module("fla.modules.activations")

    def of(place: str, name: str) -> Callable[..., Any]:
        return lambda *given, **named: getattr(importlib.import_module(f"fla.{place}"), name)(*given, **named)

    def heads(new: Any, count: int, tokens: int = 2048, width: int = 128) -> list[Any]:
        return [new(4, tokens, 16, width) for _ in range(count)]

    def forget(x: Any) -> Any:
        return x.float().sigmoid().log().to(x.dtype)

    def in_heads(place: str, name: str, *gates: str, tokens: int = 2048, width: int = 128, **named: Any) -> Callable[[Any], Any]:
        """Queries, keys and values, then gates: `forget` a head or `forgets` an element, `open` or `opens` between 0 and 1, `more` as the keys."""

        def call(new: Any) -> Any:
            q, k, v = heads(new, 3, tokens, width)
            k = k / k.float().norm(dim=-1, keepdim=True).to(k.dtype)
            made = []
            for gate in gates:
                x = new(4, tokens, 16) if gate in ("forget", "open") else new(4, tokens, 16, width)
                made.append(forget(x) if "forget" in gate else x.sigmoid() if "open" in gate else x)
            return of(place, name)(q, k, v, *made, **named)

        return call

    return {
        "rms_norm": lambda new: new.module(m.RMSNorm(WIDTH))(new(ROWS, WIDTH)), "layer_norm": lambda new: new.module(m.LayerNorm(WIDTH))(new(ROWS, WIDTH)),
        "gated_rms_norm": lambda new: new.module(m.FusedRMSNormGated(WIDTH))(new(ROWS, WIDTH), new(ROWS, WIDTH)),
        "group_norm": lambda new: new.module(m.GroupNorm(32, WIDTH))(new(4, 2048, WIDTH)), "l2norm": lambda new: norms.l2norm(new(ROWS * 32, 128)),
        "swiglu": lambda new: act.swiglu(new(ROWS, 11008), new(ROWS, 11008)), "swish": lambda new: act.swish(new(ROWS, 11008)),
        "logsigmoid": lambda new: act.logsigmoid(new(ROWS, WIDTH)), "sqrelu": lambda new: act.sqrelu(new(ROWS, WIDTH)),
        "cross_entropy": lambda new: new.module(m.FusedCrossEntropyLoss())(new(ROWS, VOCABULARY), new.whole(ROWS, VOCABULARY)),
        "rotary": lambda new: new.module(m.RotaryEmbedding(128))(new(4, 2048, 32, 128), new(4, 2048, 32, 128)),
        "token_shift": lambda new: of("modules.token_shift", "token_shift")(new(4, 2048, WIDTH)),
        "short_convolution": lambda new: new.module(m.ShortConvolution(WIDTH, 4, activation="silu"))(new(4, 2048, WIDTH)),
        "local_cumsum": lambda new: of("ops.utils.cumsum", "chunk_local_cumsum")(new(4, 8192, 32), 64),
        "local_cumsum of vectors": lambda new: of("ops.utils.cumsum", "chunk_local_cumsum")(new(4, 2048, 16, 128), 64),
        "global_cumsum": lambda new: of("ops.utils.cumsum", "chunk_global_cumsum")(new(4, 8192, 32)),
        "global_cumsum of vectors": lambda new: of("ops.utils.cumsum", "chunk_global_cumsum")(new(4, 2048, 16, 128)),
        "mean_pooling": lambda new: of("ops.utils.pooling", "mean_pooling")(new(4, 2048, 16, 128), 64),
        "logsumexp": lambda new: of("ops.utils.logsumexp", "logsumexp_fwd")(new(ROWS, WIDTH, grad=False)),
        "softmax": lambda new: of("ops.utils.softmax", "softmax_fwd")(new(ROWS, 2048, grad=False)),
        "fused_addcmul": lambda new: of("ops.rwkv7.fused_addcmul", "fused_addcmul_rwkv7")(new(4, 2048, WIDTH), new(4, 2048, WIDTH), *(new(
            1, 1, WIDTH) for _ in range(6))),
        "k_update": lambda new: of("ops.rwkv7.fused_k_update", "fused_k_rwkv7")(new(4, 2048, WIDTH), new(4, 2048, WIDTH), new(WIDTH)),
        "hgrn": lambda new: of("ops.hgrn", "chunk_hgrn")(new(4, 2048, 2048), forget(new(4, 2048, 2048))),
        "hgrn in steps": lambda new: of("ops.hgrn", "fused_recurrent_hgrn")(new(4, 2048, 2048), forget(new(4, 2048, 2048))),
        "simple_gla": in_heads("ops.simple_gla", "chunk_simple_gla", "forget"),
        "linear_attn": in_heads("ops.linear_attn", "chunk_linear_attn", normalize=False),
        "delta_rule": in_heads("ops.delta_rule", "chunk_delta_rule", "open"), "retention": in_heads("ops.retention", "chunk_retention"),
        "gated_delta_rule": in_heads("ops.gated_delta_rule", "chunk_gated_delta_rule", "forget", "open"), "gla": in_heads("ops.gla", "chunk_gla", "forgets"),
        "gla in steps": in_heads("ops.gla", "fused_recurrent_gla", "forgets", tokens=256),
        "delta_rule in steps": in_heads("ops.delta_rule", "fused_recurrent_delta_rule", "open", tokens=256),
        "gated_delta_rule in steps": lambda new: of("ops.gated_delta_rule", "fused_recurrent_gated_delta_rule")(
            *(new(4, 256, 16, 128, grad=False) for _ in "qkv"), forget(new(4, 256, 16, grad=False)), new(4, 256, 16, grad=False).sigmoid()),
        "forgetting_attn": in_heads("ops.forgetting_attn", "parallel_forgetting_attn", "forget"), "attn": in_heads("ops.attn", "parallel_attn"),
        "gsa": lambda new: of("ops.gsa", "chunk_gsa")(*heads(new, 3), new(4, 2048, 16, 64), forget(new(4, 2048, 16, 64))),
        "based": lambda new: of("ops.based", "parallel_based")(*(new(4, 2048, 16, 16) for _ in "qk"), new(4, 2048, 16, 128)),
        "rwkv6": lambda new: of("ops.rwkv6", "chunk_rwkv6")(*heads(new, 3, width=64), forget(new(4, 2048, 16, 64)), new(16, 64)),
        "kda": in_heads("ops.kda", "chunk_kda", "forgets", "open"),
    }


class New:
    """Makes tensors of a call, in bfloat16, on the device."""

    def __call__(self, *shape: int, grad: bool = True, wide: bool = False) -> Any:
        """Normal numbers; with `wide` in f32."""
        import torch

        return torch.randn(*shape, device="cuda", dtype=torch.float32 if wide else torch.bfloat16).requires_grad_(grad)

    def flags(self, *shape: int) -> Any:
        """True or false."""
        import torch

        return torch.rand(*shape, device="cuda") < 0.9

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
    given = {"--processes": "1", "--only": "", "--done": "", "--known": ""}
    package, rest = words[:1], words[1:]
    while len(rest) > 1 and rest[0] in given:
        given[rest[0]], rest = rest[1], rest[2:]
    if not package or package[0] not in CALLS or rest:
        print(__doc__, file=sys.stderr)
        return 2
    only, processes, done = [x for x in given["--only"].split(",") if x], int(given["--processes"]), Path(given["--done"] or os.devnull)
    names = [name for name in only or CALLS[package[0]]() if name not in (done.read_text(encoding="utf-8").splitlines() if done.is_file() else ())]
    known = given["--known"].split(",")
    names.sort(key=lambda name: bare(name.split(" ")[0]) in known)
    if processes > 1 and names:
        shares = [names[k::processes] for k in range(min(processes, len(names)))]
        command = [sys.executable, "-m", "benchmarks.optimize.calls", package[0], "--done", str(done), "--only"]
        gpus = [x for x in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if x] or [str(gpu.index) for gpu in machine.gpus()] or [""]
        begun = [subprocess.Popen([*command, ",".join(share)], env={**os.environ, "CUDA_VISIBLE_DEVICES": gpus[k % len(gpus)]}) for k,
        share in enumerate(shares)]
        return max(each.wait() for each in begun)
    return _called(package[0], names, done)


def bare(name: str) -> str:
    """A function's name, or that of the file that its kernels are in, as one is told from others."""
    return name.replace("_", "").lower()


def _called(package: str, names: list[str], done: Path) -> int:
    """Make the calls, and note in a file which were made, also those that their package refused."""
    if not names:
        return 0
    import torch

    _in_turn()
    made, known = 0, CALLS[package]()
    for name in names:
        try:
            torch.manual_seed(0)
            out = known[name](New())
            first = out[0] if isinstance(out, (list, tuple)) else out
            if getattr(first, "requires_grad", False):
                first.float().square().mean().backward()
            torch.cuda.synchronize()
            made += 1
        except Exception as fault:  # another library's code
            print(f"{name}: {type(fault).__name__}: {fault}"[:300], file=sys.stderr)
        with done.open("a", encoding="utf-8") as file:
            file.write(name + "\n")
    return 0 if made else 1


def _in_turn() -> None:
    """Tuners time alone on the GPU, whatever other processes do there; a configuration is compiled before that, for which nobody need wait."""
    from triton import testing

    from kir.hardware.device.turns import Turns
    from kir.learning.packages.trial import compiling

    turns, inner = Turns.of(), testing.do_bench

    def timed(call: Callable[[], Any], *more: Any, **options: Any) -> Any:
        with compiling():
            call()
        with turns.alone():
            return inner(call, *more, **{**options, "warmup": WARM, "rep": TIMED})

    testing.do_bench = timed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
