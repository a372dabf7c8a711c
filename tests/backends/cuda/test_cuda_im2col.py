"""Maps that show a tensor otherwise than it is, as CUDA: pixels by taps (im2col), first dimensions as one; and views that they do not show."""
from __future__ import annotations

import re
from pathlib import Path

import pytest

from kir.gate.gpu.images.executable import bound, descriptor
from kir.hardware.target import target
from kir.ir import nodes as n
from kir.ir.parser import parse_program
from kir.ir.visit import walk
from kir.surface import backend
from kir.surface.reading import load_expert

EXPERT = Path(__file__).parents[3] / "skills" / "experts" / "conv2d" / "conv2d_sm90.kir"


def conv2d(**changed: str) -> n.Program:
    """The expert, with pieces of its text replaced: `was` by `now`."""
    text = EXPERT.read_text()
    if changed:
        assert changed["was"] in text
        text = text.replace(changed["was"], changed["now"])
    return parse_program(text, "conv2d.kir")


def test_pixels_are_coordinates_and_taps_are_offsets() -> None:
    text = backend("cuda").emit(conv2d()).text
    call = " ".join(text[text.index("          tma_load_4d_im2col("):].split())
    names = re.search(r"&full\[k % 4\], (\w+), (\w+), (\w+), (\w+), (\w+), (\w+) \);", call)
    assert names is not None
    channel, column, row, image, across, down = names.groups()
    for said in (f"const int {image} = floor_div(tile_m * 128, H * W);", f"const int {row} = floor_mod(tile_m * 128 / W, H) - 1;",
                 f"const int {column} = tile_m * 128 % W - 1;", f"int {channel} = 0 % C;", f"int {down} = floor_div(0, C * 3);"):
        assert said in text
    counted = f"{channel} += 64; if ({channel} == C) {{ {channel} = 0; ++{across}; if ({across} == 3) {{ {across} = 0; ++{down}; }} }}"
    assert counted in " ".join(text.split())
    assert ".4d.shared::cluster.global.im2col.mbarrier" in text and "{%7, %8}" in text
    assert "tma_store_2d(&Y_map" in text and "Xcol" not in text and "Ym" not in text


def test_in_an_unrolled_loop_places_are_divided_for() -> None:
    head = "@k_loop for k in 0..k_tiles"
    text = backend("cuda").emit(conv2d(was=f"{head}\n        mbar_wait(&empty", now=f"{head} unroll\n        mbar_wait(&empty")).text
    assert "k * 64 % C, tile_m * 128 % W - 1, " in " ".join(text.split()) and "+= 64" not in text


@pytest.mark.nvcc
def test_it_compiles_for_hopper() -> None:
    by = backend("cuda")
    (kernel,) = by.compile(by.emit(conv2d()), target("sm_90a")).kernels
    assert not kernel.spills and kernel.image is not None


def test_the_driver_is_told_corners_pixels_and_channels() -> None:
    p = conv2d()
    at = bound(p, {"N": 8, "H": 56, "W": 48, "C": 64, "F": 128}, {})
    found = descriptor(p.tensor_maps[0], at.layouts["X"])
    assert found["extents"] == [64, 48, 56, 8] and found["strides"] == [128, 48 * 128, 56 * 48 * 128]
    assert (found["lower"], found["upper"], found["pixels"], found["channels"], found["swizzle"]) == ([-1, -1], [-1, -1], 128, 64, 128)


@pytest.mark.parametrize(("was", "now", "said"), [
    ("lower_h=-1", "lower_h=-2", "not what the im2col map"),
    ("m % W - 1", "m % W", "not what the im2col map"),
    ("upper_w=-1", "upper_w=0", "not what the im2col map"),
    ("kc // C % 3", "kc // C % 3 * 2", "not what the im2col map"),
    ("  fact C % 64 == 0\n", "", "may belong to two taps"),
    ("box [128, 64] {lower", "box [64, 64] {lower", "takes another box"),
    ("let k_tiles = C * 9 // 64", "let k_tiles = C * 9 // 64 + 1", "taps of 'Xcol' that there are not"),
    ("fill 0.0:f16", "fill 1.0:f16", "none of pixels by taps and channels"),
    ("Ym: f16[H * N * W, F] at Y", "Ym: f16[H * N, W * F] at Y", "makes one dimension of the first 3"),
    ("{descriptor=Y_map}", "{descriptor=W_map}", "map 'W_map' is of 'Wt'"),
], ids=lambda x: x if " " not in x else "")
def test_a_view_that_a_map_does_not_show_is_refused(was: str, now: str, said: str) -> None:
    told = backend("cuda").accepts(conv2d(was=was, now=now))
    assert told and told[0].id == "KIR-B002" and said in told[0].message, [d.message for d in told]
    assert told[0].origin is not None and told[0].needs


def read_too(value: str) -> n.Program:
    """The expert with an element of the view read by a thread as well."""
    return parse_program(EXPERT.read_text().replace("        bulk_commit()\n", f"        Cs[wg, 0, 0, 0] = {value}\n        bulk_commit()\n"), "conv2d.kir")


def test_a_view_that_is_read_otherwise_too_is_seen_through() -> None:
    text = backend("cuda").emit(read_too("Xcol[0, 0]")).text
    read = text.partition("Cs[swizzled<3, 4, 3>((wg * 8192) * 2u) / 2u] =")[2].partition(";")[0]
    assert ".im2col" in text and "Xcol" not in text and "X[" in read and ">= 0" in read


def test_a_read_of_a_view_that_gives_another_value_outside_is_refused() -> None:
    assert any("the view 'Xcol'" in d.message for d in backend("cuda").accepts(read_too("load(Xcol[0, 0] else 1.0:f16 clip)")))


def test_read_back_the_load_stays_text_with_the_reason(tmp_path: Path) -> None:
    emitted = backend("cuda").emit(conv2d())
    (tmp_path / "conv2d.cu").write_text(emitted.text)
    (name, binding), = emitted.bindings
    (tmp_path / "conv2d.toml").write_text(binding)
    read = load_expert(f"{tmp_path}/conv2d.cu::{name}", tmp_path / "conv2d.toml").program
    kept = [x for x in walk(read) if isinstance(x, n.Opaque)]
    assert any("im2col" in x.reason and x.origin is not None for x in kept), [x.reason for x in kept]
