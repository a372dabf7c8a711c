"""FLA's operators, each against the recurrence that FLA states in its `naive` functions, or one written here."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F

from benchmarks.packages.case import At, Case, Cases, Checked, with_gradients

case = Cases()
MAKERS: dict[str, Callable[[At, dict[str, int]], torch.Tensor]] = {
    "q": lambda at, n: at.randn(n["B"], n["T"], n["H"], n["K"]),
    "k": lambda at, n: F.normalize(at.randn(n["B"], n["T"], n["H"], n["K"]), dim=-1),
    "v": lambda at, n: at.randn(n["B"], n["T"], n["H"], n["V"]),
    "p": lambda at, n: F.normalize(at.randn(n["B"], n["T"], n["H"], n["K"]), dim=-1),
    "r": lambda at, n: at.randn(n["B"], n["T"], n["H"], n["K"]),
    "w": lambda at, n: F.normalize(at.randn(n["B"], n["T"], n["H"], n["K"]), dim=-1),
    "s": lambda at, n: at.randn(n["B"], n["T"], n["H"], n["M"]),
    "g": lambda at, n: F.logsigmoid(at.randn(n["B"], n["T"], n["H"])),
    "gk": lambda at, n: F.logsigmoid(at.randn(n["B"], n["T"], n["H"], n["K"])) / 4,
    "gv": lambda at, n: F.logsigmoid(at.randn(n["B"], n["T"], n["H"], n["V"])) / 4,
    "gs": lambda at, n: F.logsigmoid(at.randn(n["B"], n["T"], n["H"], n["M"])) / 4,
    "beta": lambda at, n: at.randn(n["B"], n["T"], n["H"]).sigmoid(),
    "betak": lambda at, n: at.randn(n["B"], n["T"], n["H"], n["K"]).sigmoid(),
    "betav": lambda at, n: at.randn(n["B"], n["T"], n["H"], n["V"]).sigmoid(),
    "levels": lambda at, n: at.rand(n["B"], n["T"], n["H"], n["T"].bit_length()),
    "lamb": lambda at, n: at.rand(n["H"], n["K"]) + 0.5,
}
"""What an argument looks like, by a name."""


def cases(device: str) -> list[Case]:
    """All of them."""
    from benchmarks.packages.cases import fla_modules

    return [*case.cases, *fla_modules.case.cases]


def _sizes(at: At, T: int = 0) -> dict[str, int]:
    return {"B": 1, "T": T or at.n(70, 1024), "H": at.n(1, 8), "K": at.n(16, 64), "V": at.n(16, 64), "M": at.n(16, 64)}


def _called(fn: Callable[..., Any], names: Sequence[str], given: dict[str, Any]) -> Callable[..., Any]:
    """The function on tensors in order, by the names of its parameters, with what it takes of the rest."""
    takes = inspect.signature(inspect.unwrap(fn)).parameters
    rest = {k: v for k, v in given.items() if k in takes}

    def call(*tensors: torch.Tensor) -> Any:
        out = fn(**{k: v for k, v in zip(names, tensors) if k in takes}, **rest)
        return out[0] if isinstance(out, (tuple, list)) else out

    return call


def _halved(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function given its tensors in bf16."""

    @functools.wraps(fn)
    def call(**given: Any) -> Any:
        return fn(**{k: v.to(torch.bfloat16) if isinstance(v, torch.Tensor) else v for k, v in given.items()})

    return call


def _headed(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function that wants heads before time, called with time before heads."""

    def call(*tensors: torch.Tensor) -> Any:
        return fn(*(t.transpose(1, 2) if t.ndim > 2 else t for t in tensors)).transpose(1, 2)

    return call


def against(
    name: str,
    ours: str,
    oracle: str | Callable[..., Any],
    arguments: str,
    options: dict[str, Any] | None = None,
    T: int = 0,
    headed: bool = False,
    within: float = 1e-2,
    gradient: bool = True,
    half: bool = False,
) -> None:
    """A case: `ours` is `module:function` under fla.ops, `arguments` are `parameter` or `parameter=maker`; `half`: FLA is given bf16."""

    def run(at: At) -> Checked:
        n = _sizes(at, T)
        pairs = [(a.partition("=")[0], a.partition("=")[2] or a) for a in arguments.split()]
        tensors = [MAKERS[maker](at, n) for _, maker in pairs]
        names = [x for x, _ in pairs]
        given = {"scale": n["K"] ** -0.5, **(options or {})}
        made = _halved(_function(ours)) if half else _function(ours)
        stated = _function(oracle) if isinstance(oracle, str) else oracle
        ref = _called(stated, names, given)
        if not gradient:
            with torch.no_grad():
                yield "result", _called(made, names, given)(*tensors), (_headed(ref) if headed else ref)(*tensors)
            return
        yield from with_gradients(_called(made, names, given), _headed(ref) if headed else ref, *tensors)

    case.add(name, run, within)


def _function(place: str) -> Callable[..., Any]:
    module, _, name = place.partition(":")
    made: Callable[..., Any] = getattr(import_module(f"fla.ops.{module}"), name)
    return made


def recurrence(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor | None = None,
    gk: torch.Tensor | None = None,
    gv: torch.Tensor | None = None,
    scale: float = 1.0,
) -> torch.Tensor:
    """S_t = decay * S_(t-1) + k_t v_t, o_t = q_t S_t."""
    state = torch.zeros(q.shape[0], q.shape[2], q.shape[3], v.shape[3], dtype=q.dtype, device=q.device)
    out = []
    for t in range(q.shape[1]):
        if g is not None:
            state = state * g[:, t].exp()[..., None, None]
        if gk is not None:
            state = state * gk[:, t].exp()[..., None]
        if gv is not None:
            state = state * gv[:, t].exp()[..., None, :]
        state = state + k[:, t].unsqueeze(-1) * v[:, t].unsqueeze(-2)
        out.append(scale * (q[:, t].unsqueeze(-1) * state).sum(-2))
    return torch.stack(out, 1)


def delta(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, beta: torch.Tensor, scale: float = 1.0, g: torch.Tensor | None = None, gk: torch.Tensor | None = None
) -> torch.Tensor:
    """S_t = decay * S_(t-1) + beta_t k_t (v_t - k_t decay S_(t-1)), o_t = q_t S_t."""
    state = torch.zeros(q.shape[0], q.shape[2], q.shape[3], v.shape[3], dtype=q.dtype, device=q.device)
    out = []
    for t in range(q.shape[1]):
        if g is not None:
            state = state * g[:, t].exp()[..., None, None]
        if gk is not None:
            state = state * gk[:, t].exp()[..., None]
        gap = v[:, t] - (k[:, t].unsqueeze(-1) * state).sum(-2)
        state = state + (beta[:, t].unsqueeze(-1) * k[:, t]).unsqueeze(-1) * gap.unsqueeze(-2)
        out.append(scale * (q[:, t].unsqueeze(-1) * state).sum(-2))
    return torch.stack(out, 1)


def low_rank(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, a: torch.Tensor, b: torch.Tensor, gk: torch.Tensor | None = None, scale: float = 1.0
) -> torch.Tensor:
    """S_t = (diag(decay) + b_t a_t) S_(t-1) + k_t v_t, o_t = q_t S_t."""
    state = torch.zeros(q.shape[0], q.shape[2], q.shape[3], v.shape[3], dtype=q.dtype, device=q.device)
    out = []
    for t in range(q.shape[1]):
        read = (a[:, t].unsqueeze(-1) * state).sum(-2)
        if gk is not None:
            state = state * gk[:, t].exp()[..., None]
        state = state + b[:, t].unsqueeze(-1) * read.unsqueeze(-2) + k[:, t].unsqueeze(-1) * v[:, t].unsqueeze(-2)
        out.append(scale * (q[:, t].unsqueeze(-1) * state).sum(-2))
    return torch.stack(out, 1)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    """Causal softmax attention."""
    t = q.shape[1]
    s = torch.einsum("bihd,bjhd->bhij", q, k) * scale
    s = s.masked_fill(torch.ones(t, t, device=q.device).triu(1).bool(), float("-inf"))
    return torch.einsum("bhij,bjhd->bihd", s.softmax(-1), v)


against("gla, chunks", "gla:chunk_gla", lambda q, k, v, g, scale: recurrence(q, k, v, gk=g, scale=scale), "q k v g=gk")
against("gla, step by step", "gla:fused_recurrent_gla", lambda q, k, v, gk, scale: recurrence(q, k, v, gk=gk, scale=scale), "q k v gk", T=5)
against("simple_gla, chunks", "simple_gla:chunk_simple_gla", lambda q, k, v, g, scale: recurrence(q, k, v, g=g, scale=scale), "q k v g")
against("simple_gla, fused chunks", "simple_gla:fused_chunk_simple_gla", lambda q, k, v, g, scale: recurrence(q, k, v, g=g, scale=scale), "q k v g")
against("simple_gla, step by step", "simple_gla:fused_recurrent_simple_gla", lambda q, k, v, g, scale: recurrence(q, k, v, g=g, scale=scale), "q k v g", T=5)
against("simple_gla, parallel", "simple_gla:parallel_simple_gla", lambda q, k, v, g, scale: recurrence(q, k, v, g=g, scale=scale), "q k v g")
against("linear_attn, chunks", "linear_attn:chunk_linear_attn", lambda q, k, v, scale: recurrence(q, k, v, scale=scale), "q k v", {"normalize": False})
against(
    "linear_attn, fused chunks", "linear_attn:fused_chunk_linear_attn", lambda q, k, v, scale: recurrence(q, k, v, scale=scale), "q k v", {"normalize": False}
)
against(
    "linear_attn, step by step",
    "linear_attn:fused_recurrent_linear_attn",
    lambda q, k, v, scale: recurrence(q, k, v, scale=scale),
    "q k v",
    {"normalize": False},
    T=5,
)
against("retention, chunks", "retention:chunk_retention", "retention.naive:naive_retention", "q k v", headed=True)
against("retention, fused chunks", "retention:fused_chunk_retention", "retention.naive:naive_retention", "q k v", headed=True)
against("retention, parallel", "retention:parallel_retention", "retention.naive:naive_retention", "q k v", headed=True)
against("retention, step by step", "retention:fused_recurrent_retention", "retention.naive:naive_retention", "q k v", T=5, headed=True)
against("delta_rule, chunks", "delta_rule:chunk_delta_rule", delta, "q k v beta", half=True, within=4e-2)
against("delta_rule, step by step", "delta_rule:fused_recurrent_delta_rule", delta, "q k v beta", T=5)
against("gated_delta_rule, chunks", "gated_delta_rule:chunk_gated_delta_rule", delta, "q k v g beta")
against("gated_delta_rule, step by step", "gated_delta_rule:fused_recurrent_gated_delta_rule", delta, "q k v g beta", T=5, gradient=False)
against("kda, chunks", "kda:chunk_kda", lambda q, k, v, g, beta, scale: delta(q, k, v, beta, scale, gk=g), "q k v g=gk beta")
against(
    "kda, step by step", "kda:fused_recurrent_kda", lambda q, k, v, g, beta, scale: delta(q, k, v, beta, scale, gk=g), "q k v g=gk beta", T=5, gradient=False
)
against("gdn2, chunks", "gdn2:chunk_gdn2", "gdn2:naive_recurrent_gdn2", "q k v g=gk b=betak w=betav")
against("gdn2, step by step", "gdn2:fused_recurrent_gdn2", "gdn2:naive_recurrent_gdn2", "q k v g=gk b=betak w=betav", T=5, gradient=False)
against("comba, chunks", "comba:chunk_comba", "comba:naive_recurrent_comba", "q k v p g beta")
against("comba, step by step", "comba:fused_recurrent_comba", "comba:naive_recurrent_comba", "q k v p g beta", T=5, gradient=False)
against("gated_oja_rule, chunks", "gated_oja_rule:chunk_gated_oja_rule", lambda q, k, v, gv, beta, scale: _oja(q, k, v, gv, beta, scale), "q k v gv beta")
against(
    "gated_oja_rule, step by step",
    "gated_oja_rule:fused_recurrent_gated_oja_rule",
    lambda q, k, v, gv, beta, scale: _oja(q, k, v, gv, beta, scale),
    "q k v gv beta",
    T=5,
    gradient=False,
)
against("abc, chunks", "abc:chunk_abc", "abc.naive:naive_recurrent_abc", "q k v s", headed=True)
against("gsa, chunks", "gsa:chunk_gsa", "gsa.naive:naive_recurrent_gsa", "q k v s g=gs")
against("gsa, step by step", "gsa:fused_recurrent_gsa", "gsa.naive:naive_recurrent_gsa", "q k v s g=gs", T=5)
against("based, parallel", "based:parallel_based", "based.naive:naive_parallel_based", "q k v", {"use_norm": True})
against("based, fused chunks", "based:fused_chunk_based", "based.naive:naive_parallel_based", "q k v", {"use_norm": True})
against(
    "rebased, parallel",
    "rebased:parallel_rebased",
    "rebased.naive:naive_parallel_rebased",
    "q k v",
    {"use_norm": True, "use_normalize": True, "use_scale": True},
)
against("attention, parallel", "attn:parallel_attn", attention, "q k v")
against("forgetting attention", "forgetting_attn:parallel_forgetting_attn", "forgetting_attn:naive_forgetting_attn", "q k v g")
against("stickbreaking attention", "stickbreaking_attn:parallel_stickbreaking_attn", "stickbreaking_attn:naive_stickbreaking_attn", "q k v")
against("parallax", "parallax:parallel_parallax", "parallax:naive_parallax", "q r k v", half=True, within=4e-2)
against("path attention", "path_attn:parallel_path_attn", "path_attn:naive_path_attn", "q k v w beta g", T=64)
against("wall attention", "wall_attn:parallel_wall_attn", "wall_attn:naive_wall_attn", "q k v g=gk")
against("mesa_net, chunks", "mesa_net:chunk_mesa_net", "mesa_net:naive_mesa_net_exact", "q k v g beta lamb", headed=False, gradient=False)
against(
    "precond_gated_delta_rule, chunks",
    "precond_gated_delta_rule:chunk_precond_gated_delta_rule",
    "precond_gated_delta_rule:naive_recurrent_precond_gated_delta_rule",
    "q k v g_atk=g g beta_atk=beta beta",
    {"use_qk_l2norm_in_kernel": False},
)
against(
    "precond_gated_delta_rule, step by step",
    "precond_gated_delta_rule:fused_recurrent_precond_gated_delta_rule",
    "precond_gated_delta_rule:naive_recurrent_precond_gated_delta_rule",
    "q k v g_atk=g g beta_atk=beta beta",
    {"use_qk_l2norm_in_kernel": False},
    T=5,
    gradient=False,
)
against("precond_kda, chunks", "precond_kda:chunk_precond_kda", "precond_kda:naive_recurrent_precond_kda", "q k v g=gk g_atk=g beta_atk=beta beta")
against(
    "precond_kda, step by step",
    "precond_kda:fused_recurrent_precond_kda",
    "precond_kda:naive_recurrent_precond_kda",
    "q k v g=gk g_atk=g beta_atk=beta beta",
    {"use_qk_l2norm_in_kernel": False},
    T=5,
    gradient=False,
)
against(
    "momentum_delta_rule, chunks",
    "momentum_delta_rule:chunk_momentum_delta_rule",
    "momentum_delta_rule:recurrent_momentum_delta_rule_ref",
    "q k v log_alpha=g log_mu=g p beta eta=beta",
    {"use_qk_l2norm_in_kernel": False, "use_p_times_alpha": False},
    half=True,
    within=6e-2,
)
against(
    "momentum_delta_rule, step by step",
    "momentum_delta_rule:fused_recurrent_momentum_delta_rule",
    "momentum_delta_rule:recurrent_momentum_delta_rule_ref",
    "q k v log_alpha=g log_mu=g p beta eta=beta",
    {"use_qk_l2norm_in_kernel": False, "use_p_times_alpha": False},
    T=5,
)
against("iplr, chunks", "generalized_delta_rule:chunk_iplr_delta_rule", low_rank, "q k v a=k b=p", gradient=False)
against("iplr, step by step", "generalized_delta_rule:fused_recurrent_iplr_delta_rule", low_rank, "q k v a=k b=p", T=5)
against("dplr, chunks", "generalized_delta_rule:chunk_dplr_delta_rule", low_rank, "q k v a=k b=p gk")
against("dplr, step by step", "generalized_delta_rule:fused_recurrent_dplr_delta_rule", low_rank, "q k v a=k b=p gk", T=5, gradient=False)
against(
    "log_linear_attn, chunks",
    "log_linear_attn:chunk_log_linear_attn",
    "log_linear_attn.naive:naive_log_linear_attn",
    "q k v g level_scales=levels",
    T=64,
    gradient=False,
)


def _oja(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, gv: torch.Tensor, beta: torch.Tensor, scale: float) -> torch.Tensor:
    """S_t = decay * S_(t-1) + beta_t (k_t - decay S_(t-1) v_t) v_t, o_t = q_t S_t."""
    state = torch.zeros(q.shape[0], q.shape[2], q.shape[3], v.shape[3], dtype=q.dtype, device=q.device)
    out = []
    for t in range(q.shape[1]):
        state = state * gv[:, t].exp()[..., None, :]
        gap = k[:, t] - (state * v[:, t].unsqueeze(-2)).sum(-1)
        state = state + beta[:, t][..., None, None] * gap.unsqueeze(-1) * v[:, t].unsqueeze(-2)
        out.append(scale * (q[:, t].unsqueeze(-1) * state).sum(-2))
    return torch.stack(out, 1)


@case("hgrn")
def hgrn(at: At) -> Checked:
    from fla.ops.hgrn import chunk_hgrn, fused_recurrent_hgrn
    from fla.ops.hgrn.naive import naive_recurrent_hgrn

    t, d = at.n(20, 512), at.n(16, 256)
    x, g = at.randn(1, t, d), F.logsigmoid(at.randn(1, t, d))
    for fn in (chunk_hgrn, fused_recurrent_hgrn):
        yield from with_gradients(lambda x, g, f=fn: f(x, g)[0], lambda x, g: naive_recurrent_hgrn(x, g)[0], x, g)


@case("rwkv6", within=1e-2)
def rwkv6(at: At) -> Checked:
    from fla.ops.rwkv6 import chunk_rwkv6, fused_recurrent_rwkv6

    def oracle(r: torch.Tensor, k: torch.Tensor, v: torch.Tensor, w: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        state = torch.zeros(1, r.shape[2], r.shape[3], v.shape[3], device=r.device)
        out = []
        for t in range(r.shape[1]):
            new = k[:, t].unsqueeze(-1) * v[:, t].unsqueeze(-2)
            out.append((r[:, t].unsqueeze(-1) * (state + u[None, :, :, None] * new)).sum(-2))
            state = state * w[:, t].exp().unsqueeze(-1) + new
        return torch.stack(out, 1)

    for fn, t in ((chunk_rwkv6, at.n(70, 512)), (fused_recurrent_rwkv6, at.n(5, 128))):
        n = _sizes(at, t)
        r, k, v, w = (MAKERS[x](at, n) for x in ("r", "k", "v", "gk"))
        yield from with_gradients(lambda r, k, v, w, u, f=fn: f(r, k, v, w, u, scale=1.0)[0], oracle, r, k, v, w, at.randn(n["H"], n["K"]))


@case("rwkv7", within=1e-2)
def rwkv7(at: At) -> Checked:
    from fla.ops.rwkv7 import chunk_rwkv7, fused_mul_recurrent_rwkv7, fused_recurrent_rwkv7

    n = _sizes(at, at.n(70, 512))
    r, k, v, kk, w, a = (MAKERS[x](at, n) for x in ("r", "k", "v", "p", "gk", "betak"))
    yield from with_gradients(
        lambda r, w, k, v, a, b: chunk_rwkv7(r, w, k, v, a, b)[0], lambda r, w, k, v, a, b: low_rank(r, k, v, a, b, w), r, w, k, v, -kk, kk * a
    )
    r, k, v, kk, w, a = (x[:, :5].contiguous() for x in (r, k, v, kk, w, a))
    want = low_rank(r, k, v, -kk, kk * a, w)
    with torch.no_grad():
        yield "step by step", fused_recurrent_rwkv7(r, w, k, v, -kk, kk * a, scale=1.0)[0], want
        yield "step by step, fused product", fused_mul_recurrent_rwkv7(r, w, k, v, kk, a)[0], want


@case("rwkv4")
def rwkv4(at: At) -> Checked:
    from fla.ops.rwkv4 import fused_recurrent_rwkv4

    t, c = at.n(5, 256), at.n(16, 256)

    def oracle(w: torch.Tensor, u: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        a, b, top = torch.zeros_like(k[:, 0]), torch.zeros_like(k[:, 0]), torch.full_like(k[:, 0], -1e38)
        out = []
        for i in range(t):
            now = torch.maximum(top, u + k[:, i])
            e1, e2 = (top - now).exp(), (u + k[:, i] - now).exp()
            out.append((e1 * a + e2 * v[:, i]) / (e1 * b + e2))
            then = torch.maximum(top + w, k[:, i])
            e1, e2 = (top + w - then).exp(), (k[:, i] - then).exp()
            a, b, top = e1 * a + e2 * v[:, i], e1 * b + e2, then
        return torch.stack(out, 1)

    state = torch.zeros(1, 3, 1, c, device=at.device)
    state[:, 2] = -1e38
    w = -at.rand(c) - 0.1
    yield from with_gradients(lambda w, u, k, v: fused_recurrent_rwkv4(w, u, k, v, state)[0], oracle, w, at.randn(c), at.randn(1, t, c), at.randn(1, t, c))


@case("lightnet and lightning", within=1e-2)
def lightnet(at: At) -> Checked:
    from fla.ops.lightning_attn import chunk_lightning_attn, fused_recurrent_lightning_attn

    for fn, t in ((chunk_lightning_attn, at.n(70, 512)), (fused_recurrent_lightning_attn, at.n(5, 128))):
        n = _sizes(at, t)
        slope = -(8 / n["H"] * (1 - 1 / 4)) * torch.arange(n["H"], device=at.device, dtype=torch.float32)
        g = slope[None, None].expand(1, t, n["H"])
        yield from with_gradients(
            lambda q, k, v, f=fn: f(q, k, v, 1, 4, scale=0.25)[0], lambda q, k, v, g=g: recurrence(q, k, v, g=g, scale=0.25), *(MAKERS[x](at, n) for x in "qkv")
        )


@case("attention residuals")
def attnres(at: At) -> Checked:
    from fla.ops.attnres import fused_attnres, naive_attnres

    d = at.n(16, 256)
    query, weight = at.randn(d), at.randn(d)
    residuals = [at.randn(1, at.n(4, 512), d) for _ in range(3)]
    yield from with_gradients(
        lambda q, a, b, c, w: fused_attnres(q, [a, b, c], w), lambda q, a, b, c, w: naive_attnres(q, [a, b, c], w), query, *residuals, weight
    )


@case("native sparse attention", within=1e-2)
def nsa(at: At) -> Checked:
    from fla.ops.nsa import naive_nsa, parallel_nsa

    t, d, block = 64, 16, 16
    q, k, v = at.randn(1, t, 16, d), at.randn(1, t, 1, d), at.randn(1, t, 1, d)
    gates = [at.rand(1, t, 16) for _ in range(2)]
    blocks = torch.zeros(1, t, 1, 2, dtype=torch.int64, device=at.device)
    blocks[..., 1] = torch.arange(t, device=at.device)[None, :, None] // block
    options: dict[str, Any] = {"block_indices": blocks, "block_counts": 2, "block_size": block, "window_size": 0, "scale": 0.25}
    yield from with_gradients(
        lambda q, k, v, g: parallel_nsa(q, k, v, g_slc=g, g_swa=None, **options),
        lambda q, k, v, g: naive_nsa(q, k, v, g_slc=g, g_swa=None, **options),
        q,
        k,
        v,
        gates[0],
    )


@case("titans and ttt", within=1e-2)
def ttt(at: At) -> Checked:
    from fla.ops.ttt import chunk_ttt_linear, fused_chunk_ttt_linear
    from fla.ops.ttt.naive import chunk_ttt_linear_ref

    n = _sizes(at, at.n(32, 256))
    q, k, v = (MAKERS[x](at, n) for x in "qkv")
    w, b = at.randn(n["H"], n["V"]), at.randn(n["H"], n["V"])
    eta = at.rand(1, n["T"], n["H"], 1) * 5e-3
    want = chunk_ttt_linear_ref(q, k, v, w, b, eta, scale=0.25)[0]
    for name, fn in (("chunks", chunk_ttt_linear), ("fused chunks", fused_chunk_ttt_linear)):
        with torch.no_grad():
            yield name, fn(q, k, v, w, b, eta, scale=0.25)[0], want
