"""Hardware facts: consistency, lookup, what ptxas says of the instruction families, what a device says of itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kir.base.diagnostic import UsageError
from kir.hardware import machine
from kir.hardware.target import ARCHITECTURES, DEVICES, FAMILIES, Family, target, target_names

PROBES: dict[Family, str] = {
    "cp_async": "cp.async.cg.shared.global [%r0], [%d0], 16;",
    "cp_async_bulk": "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r0], [%d0], 128, [%r1];",
    "tma": "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r0], [%d0, {%r1, %r1}], [%r2];",
    "tma_multicast": (
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%r0], [%d0, {%r1, %r1}], [%r2], %h0;"
    ),
    "tensormap_replace": "tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%r0], %d0;",
    "ldmatrix": "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r0, %r1, %r2, %r3}, [%r4];",
    "stmatrix": "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r4], {%r0, %r1, %r2, %r3};",
    "movmatrix": "movmatrix.sync.aligned.m8n8.trans.b16 %r0, %r1;",
    "mma_sync": (
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f0, %f1, %f2, %f3}, {%r0, %r1, %r2, %r3}, {%r4, %r5}, {%f0, %f1, %f2, %f3};"
    ),
    "mma_sync_fp8": (
        "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%f0, %f1, %f2, %f3}, {%r0, %r1, %r2, %r3}, {%r4, %r5}, {%f0, %f1, %f2, %f3};"
    ),
    "wgmma": "wgmma.fence.sync.aligned;",
    "tcgen05": "tcgen05.fence::before_thread_sync;",
    "mbarrier": "mbarrier.init.shared.b64 [%r0], 1;",
    "mbarrier_transaction": "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r0], 128;",
    "fence_proxy_async": "fence.proxy.async.shared::cta;",
    "cluster": "barrier.cluster.arrive; mapa.shared::cluster.u32 %r0, %r1, 1;",
    "st_async": "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r0], %r1, [%r2];",
    "redux_sync": "redux.sync.add.u32 %r0, %r1, 0xffffffff;",
    "elect_sync": "elect.sync _|%p0, 0xffffffff;",
    "setmaxnreg": "setmaxnreg.dec.sync.aligned.u32 40;",
    "griddepcontrol": "griddepcontrol.wait;",
}
"""One instruction of each family, for ptxas to accept or refuse."""

PTX = """
.version {version}
.target {name}
.address_size 64
.visible .entry probe() .maxntid 128 {{
  .reg .b32 %r<8>; .reg .b64 %d<2>; .reg .f32 %f<4>; .reg .b16 %h<2>; .reg .pred %p<2>;
  {body}
  ret;
}}
"""


@pytest.mark.nvcc
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_ptxas_agrees_on_every_family(name: str, tmp_path: Path) -> None:
    tool = machine.ptxas()
    assert tool is not None and set(PROBES) == set(FAMILIES)
    accepted = set()
    for family, body in PROBES.items():
        file = tmp_path / f"{family}.ptx"
        file.write_text(PTX.format(version="8.7", name=name, body=body))
        done = subprocess.run([tool.path, f"-arch={name}", "-o", tmp_path / "out.cubin", file], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            accepted.add(family)
        else:
            assert "not supported" in done.stderr or "requires" in done.stderr, done.stderr
    assert accepted == ARCHITECTURES[name].families


def test_architectures_are_consistent() -> None:
    for each in ARCHITECTURES.values():
        assert each.max_warps_per_sm * each.warp_size == each.max_threads_per_sm
        assert each.shared_per_cta + each.shared_reserved == each.shared_per_sm
        assert each.registers_per_cta <= each.registers_per_sm
        assert each.has("mma_sync") and each.has("tcgen05") == (each.name == "sm_100a")
    assert ARCHITECTURES["sm_90"].families < ARCHITECTURES["sm_90a"].families


def test_rates_follow_from_clock_and_width() -> None:
    """f32 arithmetic is 64 (A100) or 128 multiply-adds per SM and clock; 16-bit tensor rates are ordered by precision."""
    for each in DEVICES.values():
        width = 64 if each.architecture == "sm_80" else 128
        assert each.scalar.f32 == pytest.approx(each.sm_count * width * 2 * each.clock, rel=0.01)
        assert each.tensor.tf32 * 2 == pytest.approx(each.tensor.f16, rel=0.01)
        assert each.tensor.fp8 in (0.0, pytest.approx(each.tensor.f16 * 2, rel=0.01))
        assert each.shared_bandwidth > each.bandwidth
        assert (each.tensor.fp8 > 0) == ARCHITECTURES[each.architecture].has("mma_sync_fp8")


def test_every_name_resolves() -> None:
    for name in target_names():
        found = target(name)
        assert found.name == name
        assert found.architecture.capability == ARCHITECTURES[found.device.architecture].capability
    assert target("H200").device.name == "h200" and target("H200").architecture.has("wgmma")
    assert not target("sm_90").architecture.has("wgmma")
    assert target("sm_90a").device.name == "h100-sxm"


def test_an_unknown_name_is_a_usage_error_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"no target 'sm_91a'; did you mean 'sm_90a'"):
        target("sm_91a")


@pytest.mark.gpu
def test_the_device_agrees() -> None:
    """Compares with ``CUdevice_attribute`` values (CUDA driver API) where the device is one that we know."""
    seen = machine.gpus()[0]
    name = next((each for each in ("h200", "h100", "a100", "rtx-5090") if each in seen.name.lower().replace(" ", "-")), None)
    found = target(name) if name else target(f"sm_{seen.capability[0]}{seen.capability[1]}")
    expected = {
        1: found.architecture.max_threads_per_cta,
        5: found.architecture.max_grid[0],
        8: found.architecture.shared_per_cta_static,
        10: found.architecture.warp_size,
        12: found.architecture.registers_per_cta,
        39: found.architecture.max_threads_per_sm,
        75: found.architecture.capability[0],
        76: found.architecture.capability[1],
        81: found.architecture.shared_per_sm,
        82: found.architecture.registers_per_sm,
        97: found.architecture.shared_per_cta,
        106: found.architecture.max_ctas_per_sm,
        111: found.architecture.shared_reserved,
    }
    if name == "h200":
        expected |= {16: found.device.sm_count, 38: found.device.l2, 13: round(found.device.clock / 1000)}
    assert {key: machine.device_attribute(0, key) for key in expected} == expected
