"""What is written of several shapes: a table of kernels by size, and the host code that chooses."""
from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kir.base.diagnostic import KirError
from kir.gate import gate_cpu
from kir.gate.gpu.relative import program_problem
from kir.ir.binding import Binding
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.learning.optimize.hosts.python import ALLOCATOR, beside, granted, narrower
from kir.learning.optimize.inputs import Subject, subject
from kir.learning.optimize.outputs import edited, for_shapes, python_launch, told_of, written
from kir.learning.optimize.search import Candidate
from kir.problem import Shape
from kir.surface import backend
from kir.surface.edits.splice import unified

TEXT = """kir 1
program doubled
  size M: i32
  size N: i32
  in X: f32[M, N]{align}
  out Y: f32[M, N]{align}{facts}
kernel main grid (i: M) threads {threads}
  for j in 0..N
    Y[i, j] = X[i, j] {value}
"""


def version(value: str, threads: int = 1, facts: str = "", align: str = "") -> Any:
    return parse_program(TEXT.format(value=value, threads=threads, facts=f"\n  fact {facts}" if facts else "", align=align), "doubled.kir")


def table(*rows: tuple[int, int, Any]) -> list[tuple[Shape, Candidate | None]]:
    return [(Shape(name=f"M{m}N{k}", tags=("timed",), sizes={"M": m, "N": k}),
             cast(Any, SimpleNamespace(program=p)) if p is not None else None) for m, k, p in rows]


GIVEN = version("* 2.0")
WIDE, EVEN = version("+ X[i, j]", threads=32, align=" align 16"), version("* 2.0", threads=64, facts="N % 2 == 0")


def chosen(program: Any, m: int, k: int) -> tuple[str, tuple[int, ...], int]:
    """Which kernel the written host code launches at these sizes, over which grid, with how many warps."""
    went: list[tuple[str, tuple[int, ...], int]] = []

    class Kernel:
        def __init__(self, name: str) -> None:
            self.name = name

        def __getitem__(self, grid: tuple[int, ...]) -> Any:
            return lambda *given, **options: went.append((self.name, grid, options["num_warps"]))
    emitted = backend("triton").emit(program)
    scope: dict[str, Any] = {e.function: Kernel(e.kernel) for e in emitted.entries}
    exec(compile(python_launch(program, emitted), "launch", "exec"), scope)
    scope["launch"](M=m, N=k, X=None, Y=None)
    assert len(went) == 1
    launched: tuple[str, tuple[int, ...], int] = went[0]
    return launched


def test_a_table_launches_what_was_fastest_at_its_shapes_and_the_kernel_as_given_elsewhere() -> None:
    """No entry runs where it was not found, or where its own facts do not hold; a program that is the fastest twice stands there once."""
    made, told = for_shapes(table((8, 4, EVEN), (9, 5, WIDE), (10, 6, None), (8, 6, EVEN)), GIVEN, "triton")
    assert len(made.kernels) == 3 and "nothing is faster at M10N6" in " ".join(told)
    assert [chosen(made, *at)[0] for at in ((8, 4), (8, 6), (9, 5), (8, 5), (10, 6), (9, 4))] == ["main", "main", "main_2", *["main_otherwise"] * 3]
    assert chosen(made, 8, 4)[1:] == ((8,), 2) and chosen(made, 9, 5)[1:] == ((9,), 1)
    assert gate_cpu(made, program_problem(GIVEN, GIVEN), "kir", []).accepted
    assert chosen(EVEN, 8, 4)[0] == "main"
    with pytest.raises(ValueError, match="this kernel is for N % 2 == 0"):
        chosen(EVEN, 8, 5)


@pytest.mark.parametrize(("rows", "id"), [
    (table((8, 4, None)), "KIR-U038"),
    (table((8, 4, version("* 2.0", facts="N > 1\n  size L: i32"))), "KIR-R015"),
    (table((8, 4, EVEN), (9, 5, parse_program(TEXT.format(value="* 2.0", threads=1, facts="\n  workspace W: f32[M]", align=""), "w.kir"))), "KIR-R015"),
])
def test_what_one_launch_plan_cannot_choose_between_is_refused(rows: Any, id: str) -> None:
    with pytest.raises(KirError, match=id):
        for_shapes(rows, GIVEN, "triton")


AUTOTUNED = """import triton
@triton.autotune(configs=[], key=["N"])
@triton.jit
def doubled(X, Y):
    pass
"""


@pytest.mark.parametrize(("source", "told"), [(AUTOTUNED, ["@triton.autotune of 'doubled' is left out"]),
                                             (AUTOTUNED.replace('@triton.autotune(configs=[], key=["N"])\n', ""), [])])
def test_a_tuner_that_the_written_text_does_not_have_is_told(source: str, told: list[str], tmp_path: Path) -> None:
    (tmp_path / "doubled.py").write_text(source)
    one = Subject(GIVEN, cast(Any, None), "triton", f"{tmp_path / 'doubled.py'}::doubled")
    best = cast(Any, SimpleNamespace(program=GIVEN, surface="triton"))
    notes = written(one, [(table((8, 4, GIVEN))[0][0], best)], tmp_path / "out.py").notes
    assert [n.partition(":")[0] for n in notes] == told


def test_an_edit_tells_the_sizes_beyond_which_the_kernel_may_not_be_launched_any_more() -> None:
    bound = {"binding": Binding(), "new_binding": Binding(), "file": "doubled.cu", "level": "kernel"}
    edit, one, best = (cast(Any, SimpleNamespace(**words)) for words in ({"passed_over": ("a line",), **bound}, {"program": GIVEN}, {"program": EVEN}))
    assert told_of(edit, one, best) == ("a line", "the edited kernel is right only where N % 2 == 0")
    assert told_of(edit, one, one) == ("a line",)
    edit.passed_over = ("statement: a name is not there", "block: the source has no name for 'k' there", "a line")
    assert told_of(edit, one, one) == ("more is rewritten than changes (the kernel): the source has no name for 'k' there", "a line")


LAUNCHED = """import torch
import triton
import triton.language as tl


@triton.jit
def doubled(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * 2.0, mask=at < n)


def run(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    n = x.numel()
    doubled[(triton.cdiv(n, 64),)](x, y, n, BLOCK=64, num_warps=4)
    return y
"""


def test_the_host_code_of_an_edited_kernel_launches_it_as_the_result_is_launched(tmp_path: Path) -> None:
    """Where it is launched at two places the kernel stays, and both choose; under a binding of one's own a reader is told that host code must follow."""
    file, wider, bound = tmp_path / "doubled.py", tmp_path / "wider.py", tmp_path / "doubled.toml"
    file.write_text(LAUNCHED)
    wider.write_text(LAUNCHED.replace("64", "256").replace("num_warps=4", "num_warps=2"))
    one = subject(f"{file}::doubled")
    best = cast(Any, SimpleNamespace(program=subject(f"{wider}::doubled").program, surface="triton"))
    edit = edited(one, best)
    assert "doubled[(triton.cdiv(n, 256),)](x, y, n, BLOCK=64, num_warps=2)" in edit.after and edit.undone() == LAUNCHED
    assert "in another file must follow" in told_of(edit, one, best)[-1]

    assert isinstance(one.binding, Binding)
    bound.write_text(one.binding.text())
    made = written(replace(one, binding=bound), [(table((8, 4, GIVEN))[0][0], best)], tmp_path / "out.patch")
    assert "+num_warps = 2" in made.text and "host code must follow" in made.notes[-1]

    file.write_text(f"{LAUNCHED}\n\ndef other(x, y, n):\n    doubled[(triton.cdiv(n, 64),)](x, y, n, BLOCK=64, num_warps=4)\n")
    both = edited(one, best)
    assert both.level == "beside" and both.after.count("    doubled_faster[(triton.cdiv(n, 256),)](n, x, y") == 2
    assert "the launches in this file take" in both.passed_over[0]
    file.write_text(file.read_text().replace("    doubled[", "    _ = doubled["))
    with pytest.raises(KirError, match=r"no edit of the host code .* no launch in doubled.py can choose: its launch is no statement"):
        edited(one, best)


SPECIAL = "    at = tl.program_id(0) * 64 + tl.arange(0, 64)\n    tl.store(y + at, tl.load(x + at, mask=at < n) * 2.0, mask=at < n)\n"


@pytest.mark.parametrize(("source", "only"), [
    (LAUNCHED, []),  # every launch gives BLOCK = 64
    (LAUNCHED.replace("BLOCK=64", "BLOCK=block"), ["BLOCK = 64"]),
    (f"{LAUNCHED}\n\ndef other(x, y, n):\n    doubled[(1,)](x, y, n, BLOCK=128)\n", ["BLOCK = 64"]),
    (LAUNCHED.replace("n, BLOCK: tl", "n, step, BLOCK: tl").replace("x + at", "x + at * step").replace("(x, y, n, B", "(x, y, n, x.stride(0), B"),
     ["step = 1"]),
    (LAUNCHED.replace("mask=at < n) *", "mask=at < n).to(tl.float32) *"), ["tensors that need no conversion to tl.float32"]),
    (LAUNCHED.replace("    at =", "    BLOCK: tl.constexpr = 64\n    at =").replace("n, BLOCK: tl.constexpr", "n"), []),
])
def test_an_edit_is_no_patch_of_a_kernel_that_is_launched_with_more_than_was_read(source: str, only: list[str]) -> None:
    """What an edited kernel does not look at any more, it takes for granted: only what every call gives in so many words may be."""
    head, _, _ = source.partition("    at =")
    after = source.replace(source[source.index("    at ="):source.index("\n\n\ndef run")], SPECIAL.rstrip("\n"))
    binding = Binding(scalars={"n": "n", **({"step": 1} if "step" in source else {})}, metas={"BLOCK": 64} if "n, BLOCK" in source else {})
    edit = cast(Any, SimpleNamespace(kernel="doubled", before=source, after=after, binding=binding))
    grids = ["a grid ()"] if "def other" in source else []
    assert head and narrower(edit) == only and granted(edit) == [*grids, *only]
    kept = source.replace("* 2.0", "/ 0.5")
    rests = [x for x in only if not x.startswith("tensors")]
    other = cast(Any, SimpleNamespace(kernel="doubled", before=source, after=kept, binding=binding))
    assert granted(other) == [*grids, *rests], "whether its text shows it or not"
    assert granted(cast(Any, SimpleNamespace(kernel="doubled", before=source, after=source, binding=binding))) == []
    rounded = source.replace("* 2.0", "* tl.load(x).to(tl.float16)")
    named = granted(cast(Any, SimpleNamespace(kernel="doubled", before=source, after=rounded, binding=binding)))
    assert named[-1] == "tensors of the dtypes that it was read with, as it names float16"


ROWS = """import torch
import triton
import triton.language as tl


@triton.jit
def scaled(x, y, step, n, bias, BLOCK: tl.constexpr, RELU: tl.constexpr = False):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * step + at, mask=at < n, other=0.0).to(tl.float32) / 0.5
    if RELU:
        v = tl.maximum(v, 0.0)
    tl.store(y + row * n + at, v, mask=at < n)


def run(x, bias=None, relu=False):
    rows, n = x.shape
    y = torch.empty(rows, n, dtype=x.dtype)
    block = triton.next_power_of_2(n)
    grid = (rows,)
    scaled[grid](x, y, x.stride(0), n, bias, BLOCK=block, num_warps=4)
    return y
"""


class Tensor:
    """As much of a tensor as host code looks at."""

    def __init__(self, rows: int, n: int, dtype: str = "f32", step: int = 0) -> None:
        self.shape, self.dtype, self.step = (rows, n), dtype, step or n

    def stride(self, axis: int) -> int:
        return self.step


def launches(text: str, *given: Any) -> str:
    """The kernel that host code launches."""
    went: list[str] = []

    class Kernel:
        def __init__(self, made: Any) -> None:
            self.name = made.__name__

        def __getitem__(self, grid: Any) -> Any:
            return lambda *args, **options: went.append(self.name)
    torch = SimpleNamespace(float32="f32", empty=lambda rows, n, dtype: Tensor(rows, n, dtype))
    above = {word: lambda *args, **options: lambda made: made for word in ("autotune", "heuristics")}
    triton = SimpleNamespace(jit=Kernel, Config=dict, **above, next_power_of_2=lambda n: 1 << (n - 1).bit_length(), cdiv=lambda a, b: -(-a // b))
    scope: dict[str, Any] = {"torch": torch, "triton": triton, "tl": SimpleNamespace(constexpr=int)}
    exec(compile(text.partition("language as tl\n")[2], "host", "exec"), scope)
    scope["run"](*given)
    (name,) = went
    return name


def test_a_kernel_that_takes_other_launches_stays_and_the_new_one_is_put_beside_it(tmp_path: Path) -> None:
    """The host code takes the new one where all holds that its reading took for granted: values, strides, dtypes, facts. An edit of the kernel would be
    wrong for all other launches. Under a binding of one's own it is edited, and a reader is told."""
    file, bound = tmp_path / "scaled.py", tmp_path / "scaled.toml"
    file.write_text(ROWS)
    one = subject(f"{file}::scaled")
    assert isinstance(one.binding, Binding)
    best = cast(Any, SimpleNamespace(program=parse_program(program_text(one.program).replace("/ 0.5", "* 2.0"), "scaled.kir"), surface="triton"))
    edit = edited(one, best)
    assert edit.level == "beside" and edit.undone() == ROWS and "def scaled_faster(" in edit.after and " * 2.0" in edit.after and " / 0.5" in edit.after
    block = one.binding.metas["BLOCK"]
    assert isinstance(block, int)
    assert launches(edit.after, Tensor(8, block)) == "scaled_faster" and launches(ROWS, Tensor(8, block)) == "scaled"
    for other in ((Tensor(8, block, "f16"),), (Tensor(8, block, step=2 * block),), (Tensor(8, 2 * block),)):
        assert launches(edit.after, *other) == "scaled"
    assert told_of(edit, one, best)[0].startswith("the kernel stays, and the launch in this file takes 'scaled_faster' where ")
    assert "data_ptr" not in edit.after, "what the host code makes itself is no other tensor"
    file.write_text(ROWS.replace("def run(x,", "def run(x, y,").replace("    y = torch.empty(rows, n, dtype=x.dtype)\n", ""))
    assert "and y.data_ptr() != x.data_ptr()" in edited(subject(f"{file}::scaled"), best).after
    file.write_text(ROWS)
    notes = written(one, [(table((8, 4, GIVEN))[0][0], best)], tmp_path / "out.py").notes
    assert any(f"the text is for BLOCK = {block}" in said for said in notes)

    bound.write_text(one.binding.text())
    assert any("for nothing else" in said for said in told_of(edited(replace(one, binding=bound), best), one, best))

    file.write_text(together := ROWS.replace("import torch\nimport triton\n", "import torch, triton\n"))
    assert together != ROWS and edited(subject(f"{file}::scaled"), best).level == "beside", "whatever stands in one statement"
    file.write_text(ROWS.replace("    scaled[grid]", "    if n: scaled[grid]"))
    with pytest.raises(KirError, match=r"the kernel in the file takes no others; and no launch in scaled\.py can choose: its launch shares its line"):
        edited(subject(f"{file}::scaled"), best)


def chooses(tmp_path: Path, source: str) -> str:
    """The text of a file whose kernel `scaled` got one beside it, which computes the same."""
    (file := tmp_path / "scaled.py").write_bytes(source.encode())
    one = subject(f"{file}::scaled")
    best = cast(Any, SimpleNamespace(program=parse_program(program_text(one.program).replace("/ 0.5", "* 2.0"), "scaled.kir"), surface="triton"))
    edit = edited(one, best)
    assert edit.level == "beside" and edit.undone() == source
    return edit.after


COUNTED = ROWS.replace("bias, BLOCK: tl.constexpr, RELU: tl.constexpr = False)", "rows, BLOCK: tl.constexpr)").replace("n, bias, BLOCK", "n, rows, BLOCK")
COUNTED = COUNTED.replace("    if RELU:\n        v = tl.maximum(v, 0.0)\n", "").replace("mask=at < n)\n", "mask=(at < n) & (row < rows))\n")


@pytest.mark.parametrize("grid", [
    "grid = (rows,)\n    if relu:\n        grid = (4,)", "few = (4,)\n    grid = few if relu else (rows,)", "grid = lambda meta: (rows,)",
    "def grid(meta):\n        return (rows,)"])
def test_the_new_kernel_is_launched_over_the_grid_that_it_was_read_under_alone(grid: str, tmp_path: Path) -> None:
    """Whatever way the host code comes to the launch. A kernel that was launched over less of its tensors would else write all of them."""
    source = COUNTED.replace("grid = (rows,)", grid)
    if "few if" in grid:
        with pytest.raises(KirError, match="its grid is not said as a tuple"):
            chooses(tmp_path, source)
        return
    after = chooses(tmp_path, source)
    assert launches(after, Tensor(8, 1024)) == "scaled_faster"
    assert launches(after, Tensor(8, 1024), None, True) == ("scaled" if "if relu" in grid else "scaled_faster")
    assert ("grid[0] == rows" in after) == ("if relu" in grid), "what the launch says in one way need not be asked"


TUNED = """
SIZES = [1024, 2048]


@triton.autotune(configs=[triton.Config({"BLOCK": b}, num_warps=4) for b in SIZES], key=["n"])
@triton.heuristics({"RELU": lambda args: args["bias"] is not None})
@triton.jit
"""


def tuned(*changed: tuple[str, str]) -> str:
    """The kernel with a tuner and a heuristic above it."""
    source = ROWS.replace("BLOCK=block, num_warps=4", "").replace(": tl.constexpr = False", ": tl.constexpr").replace("\n\n\n@triton.jit\n", TUNED)
    source = source.replace("v = tl.maximum(v, 0.0)", "v += tl.load(bias + at, mask=at < n, other=0.0)")
    for before, after in changed:
        assert before in source
        source = source.replace(before, after)
    return source


def test_a_tuner_chooses_by_time_and_a_heuristic_is_asked(tmp_path: Path) -> None:
    """What a tuner chooses computes the same, so that nothing is asked of it; what a heuristic works out has the value that the kernel was read with."""
    after = chooses(tmp_path, tuned())
    assert "BLOCK" not in after[after.index("    if ("):after.index("):\n        scaled_faster")]
    assert {launches(after, Tensor(8, 1024)), launches(after, Tensor(8, 1024), Tensor(1, 1024))} == {"scaled", "scaled_faster"}


@pytest.mark.parametrize(("changed", "reason"), [
    ((', key=["n"])', ', key=["n"], reset_to_zero=["y"])'), "its tuner has a reset_to_zero"),
    (("num_warps=4)", "num_warps=4, pre_hook=print)"), "its tuner has a pre_hook"),
    (("for b in SIZES", "for b in elsewhere.SIZES"), "what its tuner does is made by 'elsewhere'"),
    (('args["bias"] is not None', 'args["BLOCK"] > 1024'), "'RELU' is worked out of 'BLOCK', which its launch does not say"),
    (("@triton.jit\n", "@traced\n@triton.jit\n"), "'@traced' stands on the kernel"),
    (("x.stride(0), n, bias", "step_of(x), n, bias"), r"'step_of\(\.\.\)' is called in its launch"),
])
def test_a_launch_that_cannot_choose_is_refused_with_the_reason(changed: tuple[str, str], reason: str, tmp_path: Path) -> None:
    with pytest.raises(KirError, match=reason):
        chooses(tmp_path, "import elsewhere\n" * ("elsewhere" in changed[1]) + tuned(changed))


def test_what_may_be_none_is_asked_before_its_dtype_is(tmp_path: Path) -> None:
    source = ROWS.replace("    if RELU:\n        v = tl.maximum(v, 0.0)\n", "    v += tl.load(bias + at, mask=at < n, other=0.0)\n").replace(
        ", RELU: tl.constexpr = False", "").replace("    grid =", "    if bias is None:\n        bias = torch.zeros(n)\n    grid =")
    after = chooses(tmp_path, source)
    assert after.index("and bias is not None") < after.index("bias.dtype")


def test_an_edit_keeps_the_line_ends_of_a_file_and_what_only_some_take_for_one(tmp_path: Path) -> None:
    """A file of another system's line ends gets no others, and is what `patch` finds; a form feed ends no line."""
    odd = ROWS.replace("def run", "# \x0c\u2028\ndef run").removesuffix("\n")
    plain, ended = chooses(tmp_path, odd), chooses(tmp_path, odd.replace("\n", "\r\n"))
    assert ended == plain.replace("\n", "\r\n") and plain.endswith("    return y")
    shown = unified(odd.replace("\n", "\r\n"), ended, "scaled.py")
    assert not [line for line in shown.split("\n")[3:] if not line.endswith("\r") and line.startswith(("+", "-"))]
    tabs = odd.replace("    ", "\t")
    assert chooses(tmp_path, tabs).replace("\t", "    ") == plain, "and one of tabs is no mixture"
    file = tmp_path / "doubled.py"
    file.write_bytes(LAUNCHED.replace("\n", "\r\n").encode())
    wider = tmp_path / "wider.py"
    wider.write_text(LAUNCHED.replace("64", "256").replace("num_warps=4", "num_warps=2"))
    edit = edited(subject(f"{file}::doubled"), cast(Any, SimpleNamespace(program=subject(f"{wider}::doubled").program, surface="triton")))
    assert edit.level != "beside" and edit.after.count("\r\n") == edit.after.count("\n")


def test_what_a_descriptor_needs_is_given_by_the_host_code_that_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory at the launch, and tensors that begin at 16 bytes: here every store counts as one through a descriptor."""
    file = tmp_path / "scaled.py"
    file.write_text(ROWS)
    one = subject(f"{file}::scaled")
    best = cast(Any, SimpleNamespace(program=parse_program(program_text(one.program).replace("/ 0.5", "* 2.0"), "scaled.kir"), surface="triton"))
    for module in ("hosts.python", "outputs"):
        monkeypatch.setattr(f"kir.learning.optimize.{module}.DESCRIBED", "tl.store")
    after = edited(one, best).after
    assert f"{ALLOCATOR}\n        scaled_faster[" in after and "and x.data_ptr() % 16 == 0" in after and "and y.data_ptr() % 16 == 0" in after
    text = written(one, [(table((8, 4, GIVEN))[0][0], best)], tmp_path / "out.py").text
    assert ALLOCATOR in text and "import torch\n" in text


PARTS = """import torch
import triton
import triton.language as tl


@triton.jit
def scaled(x, y, parts, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, mask=at < n, other=0.0) * (row % parts)
    tl.store(y + row * n + at, v, mask=at < n)


def run(x):
    groups, parts, n = x.shape
    y = torch.empty_like(x)
    scaled[(groups * parts,)](x, y, parts, n, BLOCK=triton.next_power_of_2(n))
    return y
"""


def test_a_size_that_the_grid_alone_says_is_what_is_left_of_a_product(tmp_path: Path) -> None:
    (file := tmp_path / "scaled.py").write_text(PARTS)
    one = subject(f"{file}::scaled")
    assert isinstance(one.binding, Binding)
    edit = beside(file, "scaled", one.binding, one.program)
    assert "scaled_faster[(((groups * parts) // (parts)) * parts,)](((groups * parts) // (parts)), parts, n, x, y" in edit.after
