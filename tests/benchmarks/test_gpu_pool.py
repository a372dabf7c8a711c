"""The page of gating on several GPUs: rows beside that of one GPU, where the time of workers went, what no machine had."""
from __future__ import annotations

from typing import Any

from benchmarks import gpu_pool

ROW: dict[str, Any] = {
    "gpus": 1, "engine": "processes", "each": 15, "candidates": 50, "accepted": 30, "seconds": 60.0, "steady": 60.0, "gpus_busy": [12.0], "cores_busy": 80.0,
    "spent": {"compiling": 0.5, "starting": 0.15, "checking": 0.2, "timing": 0.1, "its turn": 0.06, "alone": 0.04},
    "beside": [0.99, 1.001, 1.012], "repeated": [0.998, 1.0, 1.004], "lost": 0, "ended": 0, "retired": {},
    "machine": "2 x H100, 32 cores", "when": "now"}


def test_the_page_says_how_it_scales_and_what_is_missing() -> None:
    two = {**ROW, "gpus": 2, "candidates": 95, "steady": 90.0, "gpus_busy": [11.0, 13.0], "beside": []}
    lost = {**two, "lost": 3, "ended": 3, "retired": {"1": "3 workers were lost on it"}}
    package = {"package": "p", "gpus": 1, "calls": 6, "candidates": 12, "faster": 2, "seconds": 40.0, "searching": 120.0, "gpus_busy": [3.0],
               "cores_busy": 50.0, "machine": "m", "when": "now"}
    told = gpu_pool.page([lost, two, ROW], [package], [4, 8])
    assert "| 2 | processes | 15 | 95 | 30 | 60.0 | 95.0 | 1.90 | 90.0 | 1.50 | 11 %, 13 % | 80 % | 16.2 | 119 |" in told in told
    assert "| 1.001 (0.990 to 1.012) | 1.000 (0.998 to 1.004) |" in told
    assert "50%, 15%, 20%, 10%; 6%" in told and "| 60% |" in told, "what waits for its turn to time holds no GPU"
    assert "## Contexts" not in told
    ray = {**two, "engine": "Ray"}
    assert "| 2 | Ray, each worker with compilers of its own | 15 |" in gpu_pool.page([ray], [], []), "a row that was kept before they shared them"
    assert "| 2 | Ray | 15 |" in gpu_pool.page([{**ray, "shared": True}], [], [])
    assert "3 with a candidate, 3 ended by hand; GPU 1 left" in told and "as many: 4, 8 GPUs" in told and "| 1 | 6 | 12 | 18.0 |" in told
    opening = {"gpus": 2, "each": 4, "processes": 48, "opening": 0.5, "ending": 0.1, "seconds": 12.0, "machine": "m", "when": "now"}
    assert "| 2 | 8 | 4 | 48 | 0.500 | 0.100 | 240 | m, now |" in gpu_pool.page([ROW], [], [], [opening])


def test_the_rate_in_the_middle_leaves_out_how_a_run_starts_and_ends() -> None:
    assert gpu_pool.steady([30.0, *(40.0 + k for k in range(8)), 90.0]) == 60.0
    assert gpu_pool.steady([]) == gpu_pool.steady([1.0, 1.0]) == gpu_pool.steady([2.0] * 9) == 0.0, "too few, or all at once"
