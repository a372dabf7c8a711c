"""FLA's modules and small operators, each against what PyTorch computes."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from benchmarks.packages.case import At, Cases, Checked, with_gradients

case = Cases()


@case("activations")
def activations(at: At) -> Checked:
    from fla.modules import activations as ops

    shape = (at.n(3, 1024), at.n(20, 2048))
    yield from with_gradients(ops.sigmoid, torch.sigmoid, at.randn(*shape))
    yield from with_gradients(lambda x: ops.logsigmoid(x, 2.0), lambda x: F.logsigmoid(x) / 2.0, at.randn(*shape))
    yield from with_gradients(ops.swish, F.silu, at.randn(*shape))
    yield from with_gradients(ops.swiglu, lambda x, y: F.silu(x) * y, at.randn(*shape), at.randn(*shape))


@case("glu")
def glu(at: At) -> Checked:
    from fla.modules.activations import ops

    shape = (at.n(3, 1024), at.n(20, 2048))
    yield from with_gradients(ops.sigmoidglu, lambda x, y: torch.sigmoid(x) * y, at.randn(*shape), at.randn(*shape))
    w = at.randn(at.n(8, 512), shape[1])
    yield from with_gradients(
        lambda x, y, w: ops.swiglu_linear(x, y, w, None), lambda x, y, w: F.linear(F.silu(x) * y, w), at.randn(*shape), at.randn(*shape), w
    )


@case("l2norm")
def l2norm(at: At) -> Checked:
    from fla.modules.l2norm import l2norm as made

    for d in (at.n(16, 128), 1024):
        yield from with_gradients(made, lambda x: x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + 1e-6), at.randn(at.n(6, 2048), d))


@case("layer_norm")
def layer_norm(at: At) -> Checked:
    from fla.modules.layernorm import group_norm, layer_norm, layer_norm_linear, rms_norm, rms_norm_linear

    rows, d = at.n(6, 2048), at.n(32, 1024)
    x, w, b, r = at.randn(rows, d), at.randn(d), at.randn(d), at.randn(rows, d)
    yield from with_gradients(layer_norm, lambda x, w, b: F.layer_norm(x, (d,), w, b, 1e-5), x, w, b)
    yield from with_gradients(lambda x, w, b, r: layer_norm(x, w, b, r), lambda x, w, b, r: F.layer_norm(x + r, (d,), w, b, 1e-5), x, w, b, r)
    yield from with_gradients(lambda x, w: rms_norm(x, w, None), lambda x, w: F.rms_norm(x, (d,), w, 1e-5), x, w)
    yield from with_gradients(lambda x, w, b: group_norm(x, w, b, num_groups=2), lambda x, w, b: F.group_norm(x, 2, w, b, 1e-5), x, w, b)
    lw = at.randn(at.n(8, 512), d)
    yield from with_gradients(
        lambda x, w, b, lw: layer_norm_linear(x, w, b, lw, None), lambda x, w, b, lw: F.linear(F.layer_norm(x, (d,), w, b, 1e-5), lw), x, w, b, lw
    )
    yield from with_gradients(lambda x, w, lw: rms_norm_linear(x, w, None, lw, None), lambda x, w, lw: F.linear(F.rms_norm(x, (d,), w, 1e-5), lw), x, w, lw)


@case("wide layer_norm")
def wide_layer_norm(at: At) -> Checked:
    from fla.modules.layernorm import rms_norm

    d = 1024
    yield from with_gradients(lambda x, w: rms_norm(x, w, None), lambda x, w: F.rms_norm(x, (d,), w, 1e-5), at.randn(at.n(3, 2048), d), at.randn(d))


@case("norm with gate")
def norm_gated(at: At) -> Checked:
    from fla.modules.fused_norm_gate import layer_norm_gated, rms_norm_gated

    for d in (at.n(32, 128), 1024):
        x, g, w, b = at.randn(at.n(5, 2048), d), at.randn(at.n(5, 2048), d), at.randn(d), at.randn(d)
        yield from with_gradients(
            lambda x, g, w, b: layer_norm_gated(x, g, w, b), lambda x, g, w, b, d=d: F.layer_norm(x, (d,), w, b, 1e-5) * F.silu(g), x, g, w, b
        )
        yield from with_gradients(
            lambda x, g, w: rms_norm_gated(x, g, w, None, activation="sigmoid"), lambda x, g, w, d=d: F.rms_norm(x, (d,), w, 1e-5) * g.sigmoid(), x, g, w
        )


@case("gated norm of Mamba")
def layernorm_gated(at: At) -> Checked:
    from fla.modules.layernorm_gated import rmsnorm_fn

    d = at.n(32, 1024)
    x, z, w = at.randn(at.n(5, 2048), d), at.randn(at.n(5, 2048), d), at.randn(d)
    yield from with_gradients(lambda x, w, z: rmsnorm_fn(x, w, None, z=z, eps=1e-5), lambda x, w, z: F.rms_norm(x, (d,), w, 1e-5) * F.silu(z), x, w, z)


@case("short convolution")
def causal_conv1d(at: At) -> Checked:
    from fla.modules.conv import causal_conv1d as made

    t, d, w = at.n(12, 512), at.n(16, 256), 4

    def oracle(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return F.silu(F.conv1d(F.pad(x.transpose(1, 2), (w - 1, 0)), weight.unsqueeze(1), bias, groups=d)).transpose(1, 2)

    yield from with_gradients(lambda x, k, b: made(x, k, b, activation="silu")[0], oracle, at.randn(2, t, d), at.randn(d, w), at.randn(d))


@case("one step of a short convolution")
def causal_conv1d_update(at: At) -> Checked:
    from fla.modules.convolution import causal_conv1d_update as made

    d, w = at.n(16, 256), 4
    x, cache, weight = at.randn(2, 1, d), at.randn(2, d, w), at.randn(d, w)
    want = F.silu((torch.cat((cache[..., 1:], x.transpose(1, 2)), -1) * weight).sum(-1)).unsqueeze(1)
    yield "step", made(x, cache.clone(), None, weight, None, "silu")[0], want


@case("token_shift")
def token_shift(at: At) -> Checked:
    from fla.modules.token_shift import token_shift as made

    yield from with_gradients(made, lambda x: F.pad(x, (0, 0, 1, -1)) - x, at.randn(2, at.n(9, 512), at.n(16, 256)))


@case("rotary")
def rotary(at: At) -> Checked:
    from fla.modules.rotary import rotary_embedding

    t, d = at.n(6, 512), at.n(16, 64)
    angle = at.randn(t, d // 2)
    cos, sin = angle.cos(), angle.sin()

    def oracle(x: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, -1)
        c, s = cos[None, :, None], sin[None, :, None]
        return torch.cat((a * c - b * s, a * s + b * c), -1)

    yield from with_gradients(lambda x: rotary_embedding(x, cos, sin), oracle, at.randn(1, t, 2, d))


@case("cross_entropy_loss")
def cross_entropy(at: At) -> Checked:
    from fla.modules.fused_cross_entropy import cross_entropy_loss

    rows, v = at.n(6, 1024), at.n(24, 8192)
    y = at.ints(v, rows)
    yield from with_gradients(lambda x: cross_entropy_loss(x, y)[0], lambda x: F.cross_entropy(x, y, reduction="none"), at.randn(rows, v))


@case("fused_linear_cross_entropy", within=1e-2)
def linear_cross_entropy(at: At) -> Checked:
    from fla.modules.fused_linear_cross_entropy import fused_linear_cross_entropy_loss

    rows, d, v = at.n(8, 512), at.n(16, 256), at.n(24, 8192)
    y = at.ints(v, rows)
    yield from with_gradients(
        lambda x, w: fused_linear_cross_entropy_loss(x, y, w), lambda x, w: F.cross_entropy(x @ w.T, y), at.randn(rows, d), at.randn(v, d, scale=0.3)
    )


@case("fused_kl_div", within=1e-2)
def kl_div(at: At) -> Checked:
    from fla.modules.fused_kl_div import fused_kl_div_loss

    rows, d, v = at.n(8, 512), at.n(16, 256), at.n(24, 8192)
    tx, tw = at.randn(rows, d), at.randn(v, d, scale=0.3)
    yield from with_gradients(
        lambda x, w: fused_kl_div_loss(x, tx, w, tw),
        lambda x, w: F.kl_div((x @ w.T).log_softmax(-1), (tx @ tw.T).softmax(-1), reduction="batchmean"),
        at.randn(rows, d),
        at.randn(v, d, scale=0.3),
    )


@case("cumsum")
def cumsum(at: At) -> Checked:
    from fla.ops.utils import chunk_global_cumsum, chunk_local_cumsum

    t, h, d = at.n(40, 1024), 2, at.n(16, 64)
    for x in (at.randn(1, t, h), at.randn(1, t, h, d)):
        yield "over all", chunk_global_cumsum(x), x.cumsum(1)
        yield "reversed", chunk_global_cumsum(x, reverse=True), x.flip(1).cumsum(1).flip(1)
        want = torch.cat([c.cumsum(1) for c in x.split(16, 1)], 1)
        yield "in chunks", chunk_local_cumsum(x, 16), want


@case("softmax and logsumexp")
def softmax(at: At) -> Checked:
    from fla.ops.utils import logsumexp_fwd, softmax_bwd, softmax_fwd

    x, d = at.randn(at.n(5, 1024), at.n(24, 2048)), at.randn(at.n(5, 1024), at.n(24, 2048))
    p = x.softmax(-1)
    yield "softmax", softmax_fwd(x), p
    yield "gradient", softmax_bwd(p, d), p * (d - (p * d).sum(-1, keepdim=True))
    yield "logsumexp", logsumexp_fwd(x), x.logsumexp(-1)


@case("matmul", within=1e-2)
def matmul(at: At) -> Checked:
    from fla.ops.utils import addmm
    from fla.ops.utils.matmul import matmul as made

    a, b, c = at.randn(at.n(20, 512), at.n(32, 512)), at.randn(at.n(32, 512), at.n(24, 512)), at.randn(at.n(20, 512), at.n(24, 512))
    yield "product", made(a, b), a @ b
    yield "product and sum", addmm(c, a, b), c + a @ b


@case("solve_tril", within=1e-2)
def solve_tril(at: At) -> Checked:
    from fla.ops.utils import solve_tril as made

    t, h = at.n(64, 512), 1
    for c in (16, 32, 64):
        a = at.randn(1, t, h, c, scale=0.1)
        rows = torch.arange(t, device=at.device) % c
        a = a * (torch.arange(c, device=at.device)[None, None, None] < rows[None, :, None, None])
        blocks = a.transpose(1, 2).reshape(1, h, t // c, c, c)
        want = torch.linalg.inv(torch.eye(c, device=at.device) + blocks).reshape(1, h, t, c).transpose(1, 2)
        yield f"of {c}", made(a), want


@case("mean_pooling")
def mean_pooling(at: At) -> Checked:
    from fla.ops.utils import mean_pooling as made

    t = at.n(32, 1024)
    yield from with_gradients(lambda x: made(x, 16), lambda x: x.reshape(1, t // 16, 16, 2, -1).mean(2), at.randn(1, t, 2, at.n(16, 64)))


@case("pack and unpack")
def packing(at: At) -> Checked:
    from fla.ops.utils import pack_sequence, unpack_sequence

    x = at.randn(2, at.n(6, 256), at.n(16, 64))
    t = x.shape[1]
    ends = torch.tensor([0, t - 2, 2 * t - 3], dtype=torch.int32, device=at.device)
    packed = torch.cat([x[0, 2:], x[1, 1:]])
    got = pack_sequence(x, ends, padding_side="left")
    yield "packed", got, packed.reshape(got.shape)
    again = unpack_sequence(got, ends, padding_side="left")
    want = torch.zeros(2, t - 1, x.shape[2], device=at.device)
    want[0, 1:], want[1] = x[0, 2:], x[1, 1:]
    yield "unpacked", again, want


@case("beta of a gate")
def beta_sigmoid(at: At) -> Checked:
    from fla.ops.common.gate import fused_beta_sigmoid

    yield from with_gradients(lambda x: fused_beta_sigmoid(x, 2.0), lambda x: 2.0 * x.sigmoid(), at.randn(2, at.n(9, 512), 4))


@case("sinkhorn")
def sinkhorn(at: At) -> Checked:
    from fla.ops.utils.sinkhorn import sinkhorn as made
    from fla.ops.utils.sinkhorn.naive import naive_sinkhorn

    yield from with_gradients(lambda x: made(x, 3), lambda x: naive_sinkhorn(x, 3), at.randn(2, at.n(3, 256), 4, 4))


@case("grpo", within=1e-2)
def grpo(at: At) -> Checked:
    from fla.modules.grpo import fused_grpo_loss
    from fla.modules.grpo.ops import grpo_loss_torch

    b, t, v = 2, at.n(5, 128), at.n(24, 4096)
    ids, mask = at.ints(v, b, t), torch.ones(b, t, dtype=torch.int64, device=at.device)
    ref, advantages = at.randn(b, t), at.randn(b)
    yield from with_gradients(
        lambda x: fused_grpo_loss(x, ref, ids, advantages, 0.1, mask), lambda x: grpo_loss_torch(x, ref, ids, advantages, 0.1, mask), at.randn(b, t + 1, v)
    )
