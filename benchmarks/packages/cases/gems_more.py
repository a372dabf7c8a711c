"""FlagGems' functions for which PyTorch has no samples, each against what PyTorch computes."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from benchmarks.packages.case import At, Cases, Checked, with_gradients

case = Cases()


@case("gelu_and_mul")
def gelu_and_mul(at: At) -> Checked:
    import flag_gems

    shape = (at.n(3, 1024), at.n(20, 4096))
    yield from with_gradients(lambda a, b: flag_gems.gelu_and_mul(a, b, "none"), lambda a, b: F.gelu(a) * b, at.randn(*shape), at.randn(*shape))


@case("silu_and_mul")
def silu_and_mul(at: At) -> Checked:
    import flag_gems

    shape = (at.n(3, 1024), at.n(20, 4096))
    yield from with_gradients(flag_gems.silu_and_mul, lambda a, b: F.silu(a) * b, at.randn(*shape), at.randn(*shape))


@case("skip_layer_norm")
def skip_layer_norm(at: At) -> Checked:
    import flag_gems

    c = at.n(20, 4096)
    x, r, w, b = at.randn(at.n(3, 1024), c), at.randn(at.n(3, 1024), c), at.randn(c), at.randn(c)
    yield "norm", flag_gems.skip_layer_norm(x.clone(), r.clone(), (c,), w, b), F.layer_norm(x + r, (c,), w, b)


@case("fused_add_rms_norm")
def fused_add_rms_norm(at: At) -> Checked:
    import flag_gems

    c = at.n(20, 4096)
    x, r, w = at.randn(at.n(3, 1024), c), at.randn(at.n(3, 1024), c), at.randn(c)
    got = flag_gems.fused_add_rms_norm(x.clone(), r.clone(), (c,), w, 1e-6)
    s = x + r
    yield "norm", got[0], s * torch.rsqrt(s.pow(2).mean(-1, keepdim=True) + 1e-6) * w
    yield "sum", got[1], s


@case("instance_norm")
def instance_norm(at: At) -> Checked:
    import flag_gems

    c = at.n(3, 64)
    yield from with_gradients(
        lambda x, w, b: flag_gems.instance_norm(x, w, b),
        lambda x, w, b: F.instance_norm(x, None, None, w, b),
        at.randn(2, c, at.n(20, 4096)),
        at.randn(c),
        at.randn(c),
    )


@case("rms_norm")
def rms_norm(at: At) -> Checked:
    import flag_gems

    c = at.n(20, 4096)
    yield from with_gradients(
        lambda x, w: flag_gems.rms_norm(x, (c,), w, 1e-6), lambda x, w: F.rms_norm(x, (c,), w, 1e-6), at.randn(at.n(3, 1024), c), at.randn(c)
    )


@case("cross_entropy_loss")
def cross_entropy_loss(at: At) -> Checked:
    import flag_gems

    rows, v = at.n(6, 1024), at.n(20, 8192)
    y, w = at.ints(v, rows), at.rand(v)
    probabilities = at.randn(rows, v).softmax(-1)
    yield from with_gradients(lambda x: flag_gems.cross_entropy_loss(x, y), lambda x: F.cross_entropy(x, y), at.randn(rows, v))
    yield from with_gradients(
        lambda x: flag_gems.cross_entropy_loss(x, y, w, 0, -100, 0.1),
        lambda x: F.cross_entropy(x, y, w, reduction="none", label_smoothing=0.1),
        at.randn(rows, v),
    )
    yield from with_gradients(lambda x: flag_gems.cross_entropy_loss(x, probabilities), lambda x: F.cross_entropy(x, probabilities), at.randn(rows, v))


@case("apply_rotary_pos_emb")
def rotary(at: At) -> Checked:
    import flag_gems

    t, d = at.n(5, 512), at.n(16, 128)
    q, k, angle = at.randn(t, 4, d), at.randn(t, 2, d), at.randn(t, d // 2)
    cos, sin = angle.cos(), angle.sin()

    def oracle(x: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, -1)
        c, s = cos.unsqueeze(1), sin.unsqueeze(1)
        return torch.cat((a * c - b * s, b * c + a * s), -1)

    got = flag_gems.apply_rotary_pos_emb(q.clone(), k.clone(), cos, sin)
    yield "q", got[0], oracle(q)
    yield "k", got[1], oracle(k)


@case("topk_softmax")
def topk_softmax(at: At) -> Checked:
    import flag_gems

    rows, experts, k = at.n(5, 1024), 8, 2
    gates = at.randn(rows, experts)
    weights, ids = torch.empty(rows, k, device=at.device), torch.empty(rows, k, device=at.device, dtype=torch.int32)
    rows_of = torch.empty(rows, k, device=at.device, dtype=torch.int32)
    flag_gems.topk_softmax(weights, ids, rows_of, gates)
    want = gates.softmax(-1).topk(k)
    yield "weights", weights, want.values
    yield "experts", ids.long(), want.indices


@case("bincount")
def bincount(at: At) -> Checked:
    import flag_gems

    x = at.ints(7, at.n(40, 100000))
    yield "counts", flag_gems.bincount(x), torch.bincount(x)


@case("moe_sum")
def moe_sum(at: At) -> Checked:
    import flag_gems

    x = at.randn(at.n(4, 512), 2, at.n(20, 1024))
    out = torch.empty(x.shape[0], x.shape[2], device=at.device)
    flag_gems.moe_sum(x, out)
    yield "sum", out, x.sum(1)


@case("outer")
def outer(at: At) -> Checked:
    import flag_gems

    yield from with_gradients(flag_gems.outer, torch.outer, at.randn(at.n(7, 1024)), at.randn(at.n(9, 1024)))


@case("weight_norm")
def weight_norm(at: At) -> Checked:
    import flag_gems

    v, g = at.randn(at.n(6, 512), at.n(10, 512)), at.rand(at.n(6, 512), 1)
    yield from with_gradients(lambda v, g: flag_gems.weight_norm(v, g, 0), lambda v, g: torch._weight_norm(v, g, 0), v, g)
