"""Law 8: after a pass only the changed statements of a source are rewritten, what is written reads back, and undo gives the bytes back."""
from __future__ import annotations

from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path

import pytest

from kir.base.diagnostic import KirError
from kir.ir import nodes as n
from kir.ir.binding import Binding, Tensor
from kir.ir.canonical import alpha_equal
from kir.rewrite import Site, each_site, passes
from kir.rewrite import run as run_pipeline
from kir.rewrite.driver import run_backward, run_forward
from kir.rewrite.pipelines.text import Direction
from kir.rewrite.residue import Residue
from kir.surface.edits import History, SourceEdit, Splice, edit_source, spliced
from kir.surface.edits.splice import inverse
from kir.surface.reading import load_expert, located
from tests.zoo import TRITON, of_each

ROOT = Path(__file__).parents[4]
SOURCE = '''\
import triton
import triton.language as tl

LIMIT = 3  # unrelated, and   oddly   spaced


@triton.jit
def scaled(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """Doubles.

    A docstring stays."""
    pid = tl.program_id(0)  # which block
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n

    # the load
    x = tl.load(x_ptr + offs, mask=mask)  # read
    y = x * 2.0 ; z = y + 1.0
    tl.store(y_ptr + offs, z, mask=mask)


def host():
    return   LIMIT
'''
BINDING = Binding(kernel="scaled", sizes=["N"], facts=["N >= 1", "N <= 65536"], grid=["ceildiv(N, 128)"], metas={"BLOCK": 128},
                  scalars={"n": "N"}, options={"num_warps": 4},
                  tensors={"x_ptr": Tensor(name="X", shape=["N"], dtype="f32"),
                           "y_ptr": Tensor(name="Y", shape=["N"], dtype="f32")})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "scaled.py"
    path.write_bytes(SOURCE.encode())
    (tmp_path / "binding.toml").write_text(BINDING.text())
    return path


def loaded(path: Path) -> n.Program:
    return load_expert(f"{path}::scaled", path.parent / "binding.toml").program


def edited(path: Path, pipeline: str, history: History | None = None) -> tuple[SourceEdit, n.Program]:
    old = loaded(path)
    new = run_pipeline(old, pipeline).program
    return edit_source("triton", path, "scaled", BINDING, old, new, history), new


def test_only_the_changed_statement_is_rewritten(file: Path) -> None:
    edit, new = edited(file, "cache-policy{buffer=X policy=cg}")
    assert edit.level == "statement" and len(edit.splices) == 1
    (s,) = edit.splices
    assert edit.before[s.start:s.end] == "x = tl.load(x_ptr + offs, mask=mask)"
    assert "  # read\n" in edit.after and 'cache_modifier=".cg"' in edit.after
    assert edit.after.replace(s.text, "x = tl.load(x_ptr + offs, mask=mask)") == SOURCE
    assert edit.diff().startswith("--- a/scaled.py\n+++ b/scaled.py\n@@")
    edit.write(loaded(file))
    assert alpha_equal(loaded(file), new)


def test_nothing_changes_nothing(file: Path) -> None:
    edit, _ = edited(file, "cache-policy{buffer=X policy=cg}; ~cache-policy{buffer=X policy=cg}")
    assert edit.level == "none" and edit.after == SOURCE and edit.diff() == ""


def test_undo_in_another_run_gives_the_bytes_back(file: Path, tmp_path: Path) -> None:
    history = History(tmp_path / "history")
    edit, _ = edited(file, "cache-policy{buffer=X policy=cg}", history)
    edit.write(loaded(file), history)
    second, _ = edited(file, "cache-policy{buffer=Y policy=cs}", history)
    second.write(loaded(file), history)
    back, _ = edited(file, "~cache-policy{buffer=Y policy=cs}; ~cache-policy{buffer=X policy=cg}", history)
    assert back.level == "undo"
    back.write(loaded(file), history)
    assert file.read_bytes() == SOURCE.encode()


def test_line_ends_and_odd_bytes_stay(file: Path) -> None:
    odd = SOURCE.replace("# unrelated", "# größer ✓").replace("\n", "\r\n")
    file.write_bytes(odd.encode())
    edit, new = edited(file, "cache-policy{buffer=X policy=cg}")
    edit.write(loaded(file))
    written = file.read_bytes().decode()
    assert written == spliced(odd, edit.splices) and "größer ✓" in written
    assert alpha_equal(loaded(file), new)


def test_a_statement_that_shares_its_line_is_written_with_its_block(file: Path) -> None:
    edit, new = edited(file, "~reuse-operand{value=\"y + 1.0\"}@scaled/z")
    edit.write(loaded(file))
    assert alpha_equal(loaded(file), new)
    assert "return   LIMIT" in file.read_text() and "A docstring stays" in file.read_text()


def test_a_launch_that_changes_goes_to_the_binding(file: Path) -> None:
    edit, _ = edited(file, "~multi-threaded-block")
    assert edit.after == SOURCE and edit.new_binding.options["threads"] == 1 and edit.binding == BINDING


def test_a_file_that_changed_meanwhile_is_left_alone(file: Path) -> None:
    edit, _ = edited(file, "cache-policy{buffer=X policy=cg}")
    file.write_text(SOURCE + "# more\n")
    with pytest.raises(KirError, match="KIR-C104"):
        edit.write(loaded(file))
    assert file.read_text() == SOURCE + "# more\n"


def test_what_the_surface_cannot_say_is_refused(file: Path) -> None:
    with pytest.raises(KirError, match="KIR-B002"):
        edited(file, "stage-shared")


def test_what_lies_outside_the_kernel_is_refused(file: Path) -> None:
    with pytest.raises(KirError, match="KIR-C102"):
        edited(file, "templatize")


def test_a_name_that_the_source_does_not_have_is_refused(file: Path) -> None:
    binding = replace(BINDING, scalars={"n": "N * 1 + 0"})
    old = loaded(file)
    new = run_pipeline(old, "persistent").program
    with pytest.raises(KirError, match="KIR-C103"):
        edit_source("triton", file, "scaled", binding, old, new)


def test_a_surface_without_edits_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kir.surface.edits.engine.backend", lambda surface: object())
    with pytest.raises(KirError, match="KIR-C101"):
        edited(file, "cache-policy{buffer=X policy=cg}")


def test_splices_invert() -> None:
    before = "abcdefgh"
    spans = (Splice(1, 3, "X"), Splice(4, 4, "longer"), Splice(6, 8, ""))
    after = spliced(before, spans)
    assert after == "aXdlongeref" and spliced(after, inverse(before, spans)) == before
    with pytest.raises(ValueError, match="overlap"):
        spliced(before, (Splice(0, 3, ""), Splice(2, 4, "")))


LEAST = {"mm_kernel_general": 10, "rms_norm_forward": 5, "softmax_single_block_forward": 5, "gemm_persistent": 3}
"""How many sites of the zoo's kernels must end in an edit; the others are refused."""


def _steps(program: n.Program) -> list[tuple[Direction, Site]]:
    directions: tuple[Direction, ...] = ("forward", "backward")
    return [(d, s) for cls in passes() for d in directions for s in islice(each_site(cls.with_options({}), program, d), 1)]


@of_each(TRITON)
def test_every_pass_on_a_kernel_of_the_zoo_edits_or_refuses(name: str) -> None:
    row = TRITON[name]
    file = str(ROOT / row["file"]) if row["file"].startswith("skills/") else row["file"]
    path, _ = located(f"{file}::{row['kernel']}")
    binding = ROOT / row["binding"]
    old = load_expert(f"{file}::{row['kernel']}", binding).program
    done = 0
    for direction, site in _steps(old):
        new = run_forward(old, site, Residue()).program if direction == "forward" else run_backward(old, site)[0]
        try:
            # The engine itself reads every edit back and refuses one that is another program.
            edit = edit_source("triton", path, row["kernel"], Binding.read(binding), old, new)
        except KirError as refused:
            assert refused.diagnostics[0].id in ("KIR-C102", "KIR-C103") or refused.diagnostics[0].id.startswith("KIR-B"), refused
            continue
        done += 1
        assert edit.undone() == edit.before
        kept = inverse(edit.before, edit.splices)
        outside = [edit.before[a.end:b.start] for a, b in pairwise(edit.splices)]
        assert outside == [edit.after[a.end:b.start] for a, b in pairwise(kept)]
    assert done >= LEAST[name], done
