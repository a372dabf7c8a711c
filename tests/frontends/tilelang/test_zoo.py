"""Kernels of packages, as installed: what they compute, against NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kir.analysis.normal.regions import raised
from kir.interp import run
from kir.ir.binding import Binding
from kir.ir.visit import statements
from tests.frontends.reading import opaque
from tests.frontends.tilelang.reading import ROOT, bound, execute, installed, read

pytestmark = pytest.mark.zoo
BINDINGS = {
    "fla_dplr_cumsum": "fla:ops/generalized_delta_rule/dplr/backends/tilelang/cumsum.py",
    "tile_kernels_transpose": "tile_kernels:transpose/batched_transpose_kernel.py",
    "tile_kernels_per_token_cast": "tile_kernels:quant/per_token_cast_kernel.py",
    "flash_qla_kkt_solve": "flash_qla:ops/gated_delta_rule/chunk/hopper/kkt_solve.py",
}
GDN = "flash_qla:ops/gated_delta_rule/chunk/hopper/"


def binding(name: str) -> Binding:
    return Binding.read(ROOT / "skills" / "bindings" / f"{name}.toml")


@pytest.mark.parametrize("name", BINDINGS)
def test_a_kernel_reads_whole_and_has_a_normal_form(name: str) -> None:
    file, b = installed(BINDINGS[name]), binding(name)
    assert opaque(read(file, b.kernel)) == []
    normal = raised(bound(file, b, b.kernel))
    assert raised(normal) == normal


def test_cumulative_sums_by_products_with_triangles() -> None:
    rng = np.random.default_rng(0)
    g = rng.normal(size=(2, 70, 1, 40)).astype(np.float32)
    out = execute(installed(BINDINGS["fla_dplr_cumsum"]), {"g": g}, {"H": 1, "K": 40, "BT": 32, "BS": 32, "in_dtype": "f32", "scale_value": 1.5,
                  "OUTPUT_GE": True}, kernel="chunk_local_cumsum_rect_tl", mode="check")
    inclusive = np.concatenate([np.cumsum(g[:, c:c + 32], 1) for c in range(0, 70, 32)], 1)
    np.testing.assert_allclose(out["gi"], 1.5 * inclusive, atol=0.01)
    np.testing.assert_allclose(out["ge"], 1.5 * (inclusive - g), atol=0.01)


def test_a_transpose_by_threads_through_shared_memory() -> None:
    x = np.random.default_rng(0).normal(size=(2, 64, 128)).astype(np.float32)
    out = execute(installed(BINDINGS["tile_kernels_transpose"]), {"x": x}, {"shape_x_mod_128": 64, "shape_y_mod_128": 64, "dtype": "f32"},
                  {"stride_x": 128}, kernel="batched_transpose_kernel", mode="check")
    np.testing.assert_array_equal(out["out"], x.transpose(0, 2, 1))


def test_rows_quantized_with_scales_that_are_powers_of_two() -> None:
    b = binding("tile_kernels_per_token_cast")
    x = (np.random.default_rng(0).normal(size=(5, 512)) * 3).astype(ml_dtypes.bfloat16)
    out = run(bound(installed(BINDINGS["tile_kernels_per_token_cast"]), b, b.kernel), {"x": x, "x_sf": np.zeros((5, 512), np.float32)}).outputs
    groups = x.astype(np.float32).reshape(5, 4, 128)
    scale = 2.0 ** np.ceil(np.log2(np.maximum(np.abs(groups).max(-1), 1e-4) / 448))
    np.testing.assert_array_equal(out["out_sf"], scale.astype(np.float32))
    want = (groups / scale[..., None]).reshape(5, 512).astype(ml_dtypes.float8_e4m3fn)
    np.testing.assert_array_equal(out["out"].astype(np.float32), want.astype(np.float32))


def test_inverses_of_triangular_blocks() -> None:
    rng = np.random.default_rng(0)
    k = (rng.normal(size=(1, 100, 1, 16)) * 0.3).astype(np.float16)
    beta = rng.uniform(size=(1, 100, 2)).astype(np.float32)
    out = execute(installed(BINDINGS["flash_qla_kkt_solve"]), {"k": k, "b": beta}, {**binding("flash_qla_kkt_solve").metas, "DK": 16, "qkva_dtype": "f16"},
                  {"num_chunks": 2}, kernel="tilelang_kkt_solve_kernel__2")["a"]
    for head in range(2):
        for first in (0, 64):
            rows = k[0, first:first + 64, 0].astype(np.float64)
            count = len(rows)
            block = np.tril(beta[0, first:first + count, head][:, None] * (rows @ rows.T), -1) + np.eye(count)
            np.testing.assert_allclose(out[0, first:first + count, head, :count], np.linalg.inv(block), atol=1e-3)


def test_a_chunked_recurrence_with_roles_and_mbarriers() -> None:
    heads, tokens, width = 2, 150, 32
    rng = np.random.default_rng(0)
    q, k = ((rng.normal(size=(1, tokens, 1, width)) * 0.3).astype(np.float16) for _ in range(2))
    v = (rng.normal(size=(1, tokens, heads, width)) * 0.3).astype(np.float16)
    a = (rng.normal(size=(1, tokens, heads, 64)) * 0.3).astype(np.float16)
    g = -np.cumsum(rng.uniform(size=(1, tokens, heads)).astype(np.float32) * 0.1, 1)
    beta = rng.uniform(size=(1, tokens, heads)).astype(np.float32)
    h0 = rng.normal(size=(1, heads, width, width)).astype(np.float32)
    dtypes = {"accum_dtype": "f32", "qkva_dtype": "f16", "g_dtype": "f32", "b_dtype": "f32", "h0_dtype": "f32", "ht_dtype": "f32", "h_dtype": "f16",
              "o_dtype": "f16", "seqlen_dtype": "i32"}
    metas: dict[str, Any] = {
        "H": heads, "Hg": 1, "DK": width, "DV": width, "chunk_size": 64, "scale": 0.25, "use_initial_state": True, "store_final_state": True,
        "store_h": True, "store_o": True, "is_varlen": False, "is_cp": False, "state_v_first": False, "block_DV": width, **dtypes}
    made = bound(installed(GDN + "fused_fwd.py"), Binding(metas=metas), "tilelang_fused_chunk_gdr_fwd_kernel")
    roles = next(s for s in statements(made.kernels[0].body) if type(s).__name__ == "Roles")
    assert [(r.lo, r.hi, r.registers) for r in roles.roles] == [  # type: ignore[attr-defined]  # roles
        (0, 4, 160), (4, 8, 128), (8, 12, 128), (12, 13, 32), (13, 14, 32), (14, 15, 32), (15, 16, 32)]
    given = {"q": q, "k": k, "v": v, "a": a, "g": g, "b": beta, "h0": h0, **{
        name: np.zeros(size, np.int32) for name, size in (("cu_seqlens", 2), ("chunk_offsets", 2), ("cp_seq_map", 1), ("raw_cu_seqlens", 2))}}
    result = run(made, given, {"num_chunks": 3, "batch_size": 1, "raw_batch_size": 1, "num_tokens": tokens}, mode="check")
    assert [x for x in result.findings if x.severity == "error"] == []
    for head in range(heads):
        o, last = _recurrence(q[0, :, 0], k[0, :, 0], v[0, :, head], a[0, :, head], g[0, :, head], beta[0, :, head], h0[0, head])
        np.testing.assert_allclose(result.outputs["o"][0, :, head], o, atol=2e-3)
        np.testing.assert_allclose(result.outputs["ht"][0, head], last, atol=2e-3)


def _recurrence(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, a: np.ndarray, g: np.ndarray, beta: np.ndarray, state: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """One head, chunks of 64 rows, in f64: the update of the gated delta rule with the chunks' inverses given."""
    state, out = state.astype(np.float64), np.zeros(v.shape)
    for first in range(0, len(q), 64):
        rows = min(64, len(q) - first)

        def padded(x: np.ndarray, first: int = first, rows: int = rows) -> np.ndarray:
            return np.concatenate([x[first:first + rows], np.zeros((64 - rows, *x.shape[1:]))]).astype(np.float64)

        keys, queries, values, inverse, strength = (padded(x) for x in (k, q, v, a, beta))
        gate = np.concatenate([g[first:first + rows], np.full(64 - rows, g[-1])]).astype(np.float64)
        decay = np.tril(np.exp(gate[:, None] - gate[None]))
        rest = (inverse * decay * strength[None]) @ (values - np.exp(gate)[:, None] * (keys @ state))
        result = 0.25 * np.exp(gate)[:, None] * (queries @ state) + (0.25 * decay * (queries @ keys.T)) @ rest
        out[first:first + rows] = result[:rows]
        kept = np.exp(gate[63] - gate) * (np.arange(64) < rows)
        state = np.exp(gate[63]) * state + keys.T @ (kept[:, None] * rest)
    return out, state
