"""Liger's functions, each against what PyTorch computes."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from benchmarks.packages.case import At, Case, Cases, Checked, with_gradients

case = Cases()


def cases(device: str) -> list[Case]:
    """All of them."""
    from benchmarks.packages.cases import liger_losses

    return [*case.cases, *liger_losses.case.cases]


def _rms(x: torch.Tensor, w: torch.Tensor, eps: float = 1e-6, offset: float = 0.0) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * (w + offset)


def _rotated(x: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat((-b, a), -1)


@case("rms_norm")
def rms_norm(at: At) -> Checked:
    from liger_kernel.ops.rms_norm import LigerRMSNormFunction as Op

    x, w = at.randn(at.n(5, 4096), at.n(24, 4096)), at.randn(at.n(24, 4096))
    yield from with_gradients(lambda x, w: Op.apply(x, w, 1e-6, 0.0, "llama", False, None), _rms, x, w)
    yield from with_gradients(lambda x, w: Op.apply(x, w, 1e-6, 1.0, "gemma", False, True), lambda x, w: _rms(x, w, offset=1.0), x, w)


@case("rms_norm of many rows")
def rms_norm_block(at: At) -> Checked:
    from liger_kernel.ops.rms_norm import LigerRMSNormFunction as Op

    x, w = at.randn(at.n(4096 * 8, 65536), at.n(2, 128)), at.randn(at.n(2, 128))
    yield from with_gradients(lambda x, w: Op.apply(x, w, 1e-6, 0.0, "llama", False, None), _rms, x, w)


@case("layer_norm")
def layer_norm(at: At) -> Checked:
    from liger_kernel.ops.layer_norm import LigerLayerNormFunction as Op

    c = at.n(24, 4096)
    yield from with_gradients(
        lambda x, w, b: Op.apply(x, w, b, 1e-5), lambda x, w, b: F.layer_norm(x, (c,), w, b, 1e-5), at.randn(at.n(5, 4096), c), at.randn(c), at.randn(c)
    )


@case("group_norm")
def group_norm(at: At) -> Checked:
    from liger_kernel.ops.group_norm import LigerGroupNormFunction as Op

    c = at.n(4, 64)
    yield from with_gradients(
        lambda x, w, b: Op.apply(x, w, b, c, 2, 1e-5), lambda x, w, b: F.group_norm(x, 2, w, b, 1e-5), at.randn(2, c, at.n(12, 4096)), at.randn(c), at.randn(c)
    )


@case("fused_add_rms_norm")
def fused_add_rms_norm(at: At) -> Checked:
    from liger_kernel.ops.fused_add_rms_norm import LigerFusedAddRMSNormFunction as Op

    c = at.n(24, 4096)
    yield from with_gradients(
        lambda x, r, w: Op.apply(x, r, w, 1e-6, 0.0, "llama", False),
        lambda x, r, w: (_rms(x + r, w), x + r),
        at.randn(at.n(5, 4096), c),
        at.randn(at.n(5, 4096), c),
        at.randn(c),
    )


@case("modulated_rms_norm")
def modulated_rms_norm(at: At) -> Checked:
    from liger_kernel.ops.modulated_rms_norm import LigerModulatedRMSNormFunction as Op

    c, t = at.n(24, 1024), at.n(3, 512)
    yield from with_gradients(
        lambda x, w, scale, shift: Op.apply(x, w, scale, shift, 1e-6, 0.0, "llama", False),
        lambda x, w, scale, shift: _rms(x, w) * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1),
        at.randn(2, t, c),
        at.randn(c),
        at.randn(2, c),
        at.randn(2, c),
    )


@case("poly_norm")
def poly_norm(at: At) -> Checked:
    from liger_kernel.ops.poly_norm import LigerPolyNormFunction as Op

    def norm(x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)

    yield from with_gradients(
        lambda x, w, b: Op.apply(x, w, b, 1e-6, False),
        lambda x, w, b: w[0] * norm(x**3) + w[1] * norm(x**2) + w[2] * norm(x) + b,
        at.randn(at.n(5, 2048), at.n(24, 2048)),
        at.randn(3),
        at.randn(1)[0],
    )


@case("dyt")
def dyt(at: At) -> Checked:
    from liger_kernel.ops.dyt import LigerDyTFunction as Op

    c = at.n(24, 4096)
    yield from with_gradients(
        lambda x, a, g, b: Op.apply(x, a, g, b), lambda x, a, g, b: g * torch.tanh(a * x) + b, at.randn(at.n(5, 4096), c), at.randn(1), at.randn(c), at.randn(c)
    )


@case("softmax")
def softmax(at: At) -> Checked:
    from liger_kernel.ops.softmax import LigerSoftmaxFunction as Op

    yield from with_gradients(Op.apply, lambda x: x.softmax(-1), at.randn(at.n(5, 4096), at.n(24, 4096)))


@case("sparsemax")
def sparsemax(at: At) -> Checked:
    from liger_kernel.ops.sparsemax import LigerSparsemaxFunction as Op

    def oracle(x: torch.Tensor) -> torch.Tensor:
        z = x.sort(-1, descending=True).values
        k = torch.arange(1, x.shape[-1] + 1, device=x.device)
        total = z.cumsum(-1)
        size = (1 + k * z > total).sum(-1, keepdim=True)
        return (x - (total.gather(-1, size - 1) - 1) / size).clamp_min(0)

    yield from with_gradients(lambda x: Op.apply(x, -1), oracle, at.randn(at.n(5, 1024), at.n(24, 1024)))


@case("geglu")
def geglu(at: At) -> Checked:
    from liger_kernel.ops.geglu import LigerGELUMulFunction as Op

    shape = (at.n(5, 4096), at.n(24, 4096))
    yield from with_gradients(Op.apply, lambda a, b: F.gelu(a, approximate="tanh") * b, at.randn(*shape), at.randn(*shape))


@case("swiglu")
def swiglu(at: At) -> Checked:
    from liger_kernel.ops.swiglu import LigerSiLUMulFunction as Op

    shape = (at.n(5, 4096), at.n(24, 4096))
    yield from with_gradients(lambda a, b: Op.apply(a, b, 1.0, 1.0), lambda a, b: F.silu(a) * b, at.randn(*shape), at.randn(*shape))


@case("swiglu of one tensor")
def swiglu_fused(at: At) -> Checked:
    from liger_kernel.ops.swiglu import LigerFusedGateUpSiLUMulFunction as Op

    def oracle(y: torch.Tensor) -> torch.Tensor:
        a, b = y.chunk(2, -1)
        return F.silu(a) * b

    yield from with_gradients(lambda y: Op.apply(y, False), oracle, at.randn(at.n(5, 4096), at.n(48, 4096)))


@case("relu_squared")
def relu_squared(at: At) -> Checked:
    from liger_kernel.ops.relu_squared import LigerReLUSquaredFunction as Op

    yield from with_gradients(Op.apply, lambda x: F.relu(x) ** 2, at.randn(at.n(5, 4096), at.n(24, 4096)))


@case("rope")
def rope(at: At) -> Checked:
    from liger_kernel.ops.rope import LigerRopeFunction as Op

    t, d = at.n(3, 1024), at.n(8, 128)
    angle = at.randn(1, t, d // 2).repeat(1, 1, 2)
    cos, sin = angle.cos(), angle.sin()

    def oracle(q: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(x * cos.unsqueeze(1) + _rotated(x) * sin.unsqueeze(1) for x in (q, k))

    yield from with_gradients(lambda q, k: Op.apply(q, k, cos, sin), oracle, at.randn(2, 4, t, d), at.randn(2, 2, t, d))


@case("llama4_rope")
def llama4_rope(at: At) -> Checked:
    from liger_kernel.ops.llama4_rope import LigerLlama4RopeFunction as Op

    t, d = at.n(3, 1024), at.n(8, 128)
    freqs = torch.polar(torch.ones(t, d // 2, device=at.device), at.randn(t, d // 2))

    def oracle(q: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(torch.view_as_real(torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2)) * freqs[None, :, None]).flatten(3) for x in (q, k))

    yield from with_gradients(lambda q, k: Op.apply(q, k, freqs), oracle, at.randn(2, t, 4, d), at.randn(2, t, 2, d))


@case("qwen2vl_mrope")
def qwen2vl_mrope(at: At) -> Checked:
    from liger_kernel.ops.qwen2vl_mrope import LigerQwen2VLMRopeFunction as Op

    t, d = at.n(3, 1024), at.n(16, 128)
    parts = [d // 8, d // 4 - d // 8, d // 4]
    angle = at.randn(3, 2, t, d // 2).repeat(1, 1, 1, 2)
    cos, sin = angle.cos(), angle.sin()

    def mixed(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([m[i % 3] for i, m in enumerate(x.split(parts * 2, dim=-1))], dim=-1).unsqueeze(1)

    def oracle(q: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(x * mixed(cos) + _rotated(x) * mixed(sin) for x in (q, k))

    yield from with_gradients(lambda q, k: Op.apply(q, k, cos, sin, parts), oracle, at.randn(2, 4, t, d), at.randn(2, 2, t, d))


@case("embedding")
def embedding(at: At) -> Checked:
    from liger_kernel.ops.experimental.embedding import LigerEmbeddingFunction as Op

    at_rows = at.ints(at.n(10, 1000), at.n(6, 4096))
    yield from with_gradients(lambda w: Op.apply(w, at_rows), lambda w: w[at_rows], at.randn(at.n(10, 1000), at.n(24, 1024)))


@case("matmul of int8 and int2")
def mm_int8int2(at: At) -> Checked:
    from liger_kernel.ops.experimental.mm_int8int2 import matmul, unpack_weights

    m, k, n = at.n(4, 256), at.n(128, 1024), at.n(128, 1024)
    a, b = at.ints(20, m, k, low=-20, dtype=torch.int8), at.ints(256, k // 4, n, dtype=torch.uint8)
    want = a.cpu().to(torch.int32) @ unpack_weights(b, 2).cpu().to(torch.int32)
    yield "product", matmul(a, b), want.to(a.device)


@case("attention residuals")
def attn_res(at: At) -> Checked:
    from liger_kernel.ops.attn_res import LigerAttnResFunction as Op

    layers, rows, d = 3, at.n(4, 2048), at.n(16, 1024)

    def oracle(v: torch.Tensor, query: torch.Tensor, norm: torch.Tensor) -> torch.Tensor:
        scores = (_rms(v, norm) * query).sum(-1)
        return (scores.softmax(0).unsqueeze(-1) * v).sum(0)

    yield from with_gradients(lambda v, q, w: Op.apply(v, q, w, 1e-6), oracle, at.randn(layers, rows, d), at.randn(d), at.randn(d))


@case("multi_token_attention")
def multi_token_attention(at: At) -> Checked:
    from liger_kernel.ops.multi_token_attention import LigerMultiTokenAttentionFunction as Op

    t = at.n(6, 256)

    def oracle(scores: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        upper = torch.ones(t, t, device=scores.device).triu(1).bool()
        p = scores.masked_fill(upper, -1e9).softmax(-1)
        return F.conv2d(p, weight, None, padding=1).masked_fill(upper, 0.0)

    yield from with_gradients(lambda s, w: Op.apply(s, w, None, 1, 1, 1, 1, False), oracle, at.randn(1, 2, t, t), at.randn(2, 2, 3, 3))


@case("fused_neighborhood_attention")
def fused_neighborhood_attention(at: At) -> Checked:
    from liger_kernel.ops.fused_neighborhood_attention import LigerFusedNeighborhoodAttentionFunction as Op

    t, d = at.n(12, 512), at.n(16, 64)

    def oracle(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        i = torch.arange(t, device=q.device)
        near = (i[:, None] - i[None, :]).abs() <= 1
        p = (q @ k.transpose(-1, -2) / d**0.5).masked_fill(~near, float("-inf")).softmax(-1)
        return p @ v

    yield from with_gradients(lambda q, k, v: Op.apply(q, k, v, 3, 1, None), oracle, *(at.randn(1, 2, t, d) for _ in range(3)))


@case("tiled mlp", within=2e-2)
def mlp(at: At) -> Checked:
    from liger_kernel.ops.mlp import LigerMLPFunction as Op

    m, d, h = at.n(16, 512), at.n(32, 512), at.n(64, 1024)
    yield from with_gradients(
        lambda *a: Op.apply(*a, 1.0, 1.0),
        lambda x, g, u, w: (F.silu(x @ g.T) * (x @ u.T)) @ w.T,
        *(at.randn(*s, scale=0.2).to(torch.bfloat16) for s in ((1, m, d), (h, d), (h, d), (d, h))),
    )


@case("fused_moe", within=1e-2)
def fused_moe(at: At) -> Checked:
    from liger_kernel.ops.fused_moe import LigerFusedMoEFunction as Op

    rows, d, h, experts, k = at.n(8, 512), at.n(32, 256), at.n(32, 256), 4, 2
    x, up, down = at.randn(rows, d, scale=0.3), at.randn(experts, 2 * h, d, scale=0.3), at.randn(experts, d, h, scale=0.3)
    weights, chosen = at.randn(rows, experts).softmax(-1).topk(k)

    def oracle(x: torch.Tensor, up: torch.Tensor, down: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(x)
        for j in range(k):
            gate, value = torch.einsum("td,thd->th", x, up[chosen[:, j]]).chunk(2, -1)
            out = out + torch.einsum("th,tdh->td", F.silu(gate) * value, down[chosen[:, j]]) * weights[:, j, None]
        return out

    yield from with_gradients(lambda x, up, down, w: Op.apply(x, up, down, chosen, w), oracle, x, up, down, weights)


def _sinkhorn(z: torch.Tensor, rounds: int, eps: float) -> torch.Tensor:
    p = z.softmax(-1) + eps
    p = p / (p.sum(-2, keepdim=True) + eps)
    for _ in range(rounds - 1):
        p = p / (p.sum(-1, keepdim=True) + eps)
        p = p / (p.sum(-2, keepdim=True) + eps)
    return p


@case("mhc coefficients", within=1e-2)
def mhc_coeffs(at: At) -> Checked:
    from liger_kernel.ops.mhc import LigerMHCCoeffsFunction as Op

    rows, hc, c = at.n(4, 1024), 4, at.n(16, 256)

    def oracle(x: torch.Tensor, phi: torch.Tensor, b: torch.Tensor, pre: Any, post: Any, res: Any) -> tuple[torch.Tensor, ...]:
        flat = x.flatten(-2)
        mix = (flat @ phi) * torch.rsqrt(flat.pow(2).mean(-1, keepdim=True) + 1e-6)
        one = (mix[..., :hc] * pre + b[:hc]).sigmoid() + 1e-4
        two = (mix[..., hc : 2 * hc] * post + b[hc : 2 * hc]).sigmoid() * 2.0
        grid = (mix[..., 2 * hc :] * res + b[2 * hc :]).unflatten(-1, (hc, hc))
        return one, two, _sinkhorn(grid, 5, 1e-6)

    yield from with_gradients(
        lambda *a: Op.apply(*a, True, 5, 1e-6, 1e-4, 1e-6, 2.0),
        oracle,
        at.randn(rows, hc, c),
        at.randn(hc * c, 2 * hc + hc * hc, scale=0.1),
        at.randn(2 * hc + hc * hc),
        at.rand(1)[0],
        at.rand(1)[0],
        at.rand(1)[0],
    )


@case("mhc before and after")
def mhc_pre_post(at: At) -> Checked:
    from liger_kernel.ops.mhc import LigerMHCPostResFunction, LigerMHCPreFunction

    rows, hc, c = at.n(4, 1024), 4, at.n(16, 256)
    x, pre, post, res, f = at.randn(rows, hc, c), at.rand(rows, hc), at.rand(rows, hc), at.rand(rows, hc, hc), at.randn(rows, c)
    yield from with_gradients(LigerMHCPreFunction.apply, lambda x, h: (x * h.unsqueeze(-1)).sum(-2), x, pre)
    yield from with_gradients(
        LigerMHCPostResFunction.apply,
        lambda x, f, post, res: torch.einsum("...oi,...ic->...oc", res, x) + post.unsqueeze(-1) * f.unsqueeze(-2),
        x,
        f,
        post,
        res,
    )
