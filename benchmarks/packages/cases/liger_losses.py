"""Liger's losses, each against what PyTorch computes."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from benchmarks.packages.case import At, Cases, Checked, with_gradients

case = Cases()


def _labels(at: At, rows: int, classes: int) -> torch.Tensor:
    out = at.ints(classes, rows)
    out[0] = -100
    return out


@case("cross_entropy")
def cross_entropy(at: At) -> Checked:
    from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction as Op

    rows, v = at.n(6, 2048), at.n(40, 32000)
    y, w = _labels(at, rows, v), at.rand(v)
    yield from with_gradients(lambda x: Op.apply(x, y, None)[0], lambda x: F.cross_entropy(x, y), at.randn(rows, v))
    yield from with_gradients(
        lambda x: Op.apply(x, y, w, -100, 0.0, 0.1, "sum")[0], lambda x: F.cross_entropy(x, y, w, label_smoothing=0.1, reduction="sum"), at.randn(rows, v)
    )

    def capped(x: torch.Tensor) -> torch.Tensor:
        z = 5.0 * torch.tanh(x / 5.0)
        lse = z.logsumexp(-1)
        return (F.cross_entropy(z, y, reduction="none") + 0.1 * lse**2 * (y != -100)).sum() / (y != -100).sum()

    yield from with_gradients(lambda x: Op.apply(x, y, None, -100, 0.1, 0.0, "mean", 5.0)[0], capped, at.randn(rows, v))


@case("fused_linear_cross_entropy", within=1e-2)
def fused_linear_cross_entropy(at: At) -> Checked:
    from liger_kernel.ops.fused_linear_cross_entropy import LigerFusedLinearCrossEntropyFunction as Op

    rows, d, v = at.n(6, 1024), at.n(8, 512), at.n(20, 8192)
    y = _labels(at, rows, v)
    yield from with_gradients(lambda x, w: Op.apply(x, w, y)[0], lambda x, w: F.cross_entropy(x @ w.T, y), at.randn(rows, d), at.randn(v, d, scale=0.3))


def _kl(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    return p.exp() * (p - q)


def _jsd(student: torch.Tensor, teacher: torch.Tensor, beta: float) -> torch.Tensor:
    if beta in (0.0, 1.0):
        return _kl(teacher, student) if beta == 0.0 else _kl(student, teacher)
    middle = (beta * teacher.exp() + (1 - beta) * student.exp()).log()
    return beta * _kl(teacher, middle) + (1 - beta) * _kl(student, middle)


@case("jsd")
def jsd(at: At) -> Checked:
    from liger_kernel.ops.jsd import LigerJSDFunction as Op

    rows, v = at.n(5, 1024), at.n(24, 8192)
    teacher = at.randn(rows, v).log_softmax(-1)
    for beta in (0.5, 0.0, 1.0):
        yield from with_gradients(
            lambda x, b=beta: Op.apply(x, teacher, None, b), lambda x, b=beta: _jsd(x, teacher, b).sum() / rows, at.randn(rows, v).log_softmax(-1)
        )


@case("fused_linear_jsd", within=1e-2)
def fused_linear_jsd(at: At) -> Checked:
    from liger_kernel.ops.fused_linear_jsd import LigerFusedLinearJSDFunction as Op

    rows, d, v = at.n(5, 512), at.n(8, 256), at.n(24, 4096)
    tx, tw = at.randn(rows, d), at.randn(v, d, scale=0.3)
    yield from with_gradients(
        lambda x, w: Op.apply(x, w, tx, tw, None, 0.5, -100, 1.0),
        lambda x, w: _jsd((x @ w.T).log_softmax(-1), (tx @ tw.T).log_softmax(-1), 0.5).sum() / rows,
        at.randn(rows, d),
        at.randn(v, d, scale=0.3),
    )


@case("fused_linear_kl_div", within=1e-2)
def fused_linear_kl_div(at: At) -> Checked:
    from liger_kernel.ops.fused_linear_kl_div import LigerFusedLinearKLDivFunction as Op

    rows, d, v = at.n(5, 512), at.n(8, 256), at.n(24, 4096)
    target = at.randn(rows, v).softmax(-1)
    yield from with_gradients(
        lambda x, w: Op.apply(x, w, target),
        lambda x, w: F.kl_div((x @ w.T).log_softmax(-1), target, reduction="batchmean"),
        at.randn(rows, d),
        at.randn(v, d, scale=0.3),
    )


@case("kl_div")
def kl_div(at: At) -> Checked:
    from liger_kernel.ops.kl_div import LigerKLDivLossFunction as Op

    rows, v = at.n(5, 1024), at.n(24, 8192)
    target = at.randn(rows, v).softmax(-1)
    for how in ("batchmean", "sum", "none"):
        yield from with_gradients(
            lambda x, h=how: Op.apply(x, target, h, False, 1e-10), lambda x, h=how: F.kl_div(x, target, reduction=h), at.randn(rows, v).log_softmax(-1)
        )


@case("tvd")
def tvd(at: At) -> Checked:
    from liger_kernel.ops.tvd import LigerTVDLossFunction as Op

    rows, v = at.n(5, 1024), at.n(24, 8192)
    q = at.randn(rows, v).softmax(-1)
    yield from with_gradients(lambda p: Op.apply(p, q), lambda p: 0.5 * (p - q).abs().sum() / rows, at.randn(rows, v).softmax(-1))


@case("fused_ce_tvd")
def fused_ce_tvd(at: At) -> Checked:
    from liger_kernel.ops.fused_ce_tvd import LigerFusedCETVDFunction as Op

    rows, v = at.n(5, 1024), at.n(24, 8192)
    teacher, y = at.randn(rows, v), at.ints(v, rows)

    def oracle(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return F.cross_entropy(x, y, reduction="none"), 0.5 * (x.softmax(-1) - teacher.softmax(-1)).abs().sum(-1)

    def made(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        got = Op.apply(x, teacher, y)
        return tuple(got[:2])

    x = at.randn(rows, v)
    got, want = made(x), oracle(x)
    for g, w, name in zip(got, want, ("cross entropy", "distance")):
        yield name, g, w if g.shape == w.shape else w.mean() if g.ndim == 0 else w


@case("vocab parallel cross entropy")
def vocab_parallel(at: At) -> Checked:
    from liger_kernel.ops.vocab_parallel_cross_entropy import LigerVocabParallelCEFunction as Op

    s, b, v = at.n(3, 512), 2, at.n(24, 8192)
    y = at.ints(v, s, b)
    yield from with_gradients(
        lambda x: Op.apply(x, y, None, -100, 0.0, "standard", "mean"),
        lambda x: F.cross_entropy(x.reshape(-1, v), y.reshape(-1), reduction="none").reshape(s, b),
        at.randn(s, b, v),
    )


def _grpo(level: str, kind: str) -> Any:
    def run(at: At) -> Checked:
        from liger_kernel.ops.grpo_loss import GrpoLossFunction as Op

        b, t, v, temperature, beta, low, high = 2, at.n(4, 128), at.n(20, 4096), 0.9, 0.04, 0.2, 0.4
        ids, mask, advantages = at.ints(v, b, t), torch.ones(b, t, dtype=torch.int64, device=at.device), at.randn(b)
        mask[0, -1] = 0
        logits = at.randn(b, t + 1, v)

        def logp(x: torch.Tensor) -> torch.Tensor:
            return (x[:, :-1] / temperature).log_softmax(-1).gather(-1, ids.unsqueeze(-1)).squeeze(-1)

        old, ref = (logp(logits + 0.3 * at.randn(*logits.shape)).detach().contiguous() for _ in range(2))

        def oracle(x: torch.Tensor) -> torch.Tensor:
            new = logp(x)
            ratio = (new - old).exp()
            if level == "sequence":
                mean = ((new - old) * mask).sum(-1, keepdim=True) / mask.sum(-1, keepdim=True)
                ratio = mean.exp().expand_as(new)
            a = advantages[:, None]
            each = -torch.minimum(ratio * a, ratio.clamp(1 - low, 1 + high) * a)
            return each + beta * ((ref - new).exp() - (ref - new) - 1)

        got = Op.apply(logits.clone().requires_grad_(), old, ref, ids, advantages, mask, temperature, beta, low, high, False, kind, None, False, level)
        kept = mask.bool()
        yield "loss", got[0][kept], oracle(logits)[kept]

    return run


for _level in ("token", "sequence"):
    case.add(f"grpo by {_level}", _grpo(_level, "grpo"))


@case("grpo gradient")
def grpo_gradient(at: At) -> Checked:
    from liger_kernel.ops.grpo_loss import GrpoLossFunction as Op

    b, t, v = 2, at.n(4, 128), at.n(20, 4096)
    ids, advantages = at.ints(v, b, t), at.randn(b)
    mask = torch.ones(b, t, dtype=torch.int64, device=at.device)

    def oracle(x: torch.Tensor) -> torch.Tensor:
        new = x[:, :-1].log_softmax(-1).gather(-1, ids.unsqueeze(-1)).squeeze(-1)
        return -((new - new.detach()).exp() * advantages[:, None])

    yield from with_gradients(
        lambda x: Op.apply(x, None, None, ids, advantages, mask, 1.0, 0.0, 0.2, 0.4, False, "grpo", None, False)[0], oracle, at.randn(b, t + 1, v)
    )
