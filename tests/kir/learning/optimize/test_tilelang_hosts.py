"""A patch of a TileLang file: the factory gives the new kernel where it is given what that was read with, and its own elsewhere."""
from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kir.base.diagnostic import KirError
from kir.ir.binding import Binding
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.learning.optimize.hosts.tilelang import beside
from kir.surface.edits import SourceEdit
from kir.surface.reading import launched, load_expert

DOUBLED = '''import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def doubled(M, N, rows=4, dtype="float16", by=True):
    """Twice a matrix."""
    threads = 128 if by else 256

    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), Y: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(M, rows), threads=threads) as i:
            x = T.alloc_fragment((rows, N), dtype)
            T.copy(X[i * rows, 0], x)
            for a, b in T.Parallel(rows, N):
                x[a, b] = x[a, b] * 2.0
            T.copy(x, Y[i * rows, 0])

    return main


if __name__ == "__main__":
    kernel = doubled(4096, 1024)
'''


def edit_of(tmp_path: Path, text: str, change: tuple[str, str] = ("", ""), fact: str = "") -> SourceEdit:
    """The edit that puts a kernel as it is read into a text that is changed after it was read."""
    (path := tmp_path / "doubled.py").write_text(text)
    binding, _ = launched(path.as_posix())
    assert isinstance(binding, Binding)
    program = load_expert(path.as_posix(), binding).program
    program = parse_program(program_text(program).replace("\nkernel ", f"\n  fact {fact}\nkernel ", 1), "p.kir") if fact else program
    path.write_text(text.replace(*change) if change[0] else text)
    return beside(path, binding.kernel, binding, program)


def gives(text: str, *args: Any, **given: Any) -> str:
    """What the factory of a text returns, kernels for their names."""
    language = SimpleNamespace(prim_func=lambda made: made.__name__, Tensor=lambda *_: None, float16="float16")
    scope: dict[str, Any] = {"tilelang": SimpleNamespace(jit=lambda **_: lambda made: made), "T": language}
    exec(compile(text.partition("language as T\n")[2].partition("if __name__")[0], "factory", "exec"), scope)
    made: str = scope["doubled"](*args, **given)
    return made


def test_a_factory_gives_the_new_kernel_for_what_it_was_read_with_alone(tmp_path: Path) -> None:
    edit = edit_of(tmp_path, DOUBLED)
    assert not [line for line in DOUBLED.splitlines() if line not in edit.after.splitlines()] and edit.undone() == DOUBLED
    assert gives(edit.after, 4096, 1024) == gives(edit.after, 17, 1024, dtype="float16") == "main_faster"
    for other in ({"rows": 8}, {"dtype": "bfloat16"}, {"by": False}):
        assert gives(edit.after, 4096, 1024, **other) == "main"
    assert gives(edit.after, 4096, 2048) == "main" and "'doubled' gives 'main_faster' where N == 1024 and" in edit.passed_over[0]
    held = edit_of(tmp_path, DOUBLED, fact="M % 4 == 0").after
    assert [gives(held, m, 1024) for m in (4096, 17, "a variable")] == ["main_faster", "main", "main"], "a fact of a size that is no number is not known"


@pytest.mark.parametrize(("change", "reason"), [
    (("    return main\n", "    return finished(main)\n"), "does not return 'main'"),
    (('rows=4, dtype="float16"', 'rows=4, dtype="float16", *more'), "not as plain"),
    (("def doubled(M, N, rows=4,", "def doubled(M, N, lines=4,"), "is not given 'rows'"),
    (("import tilelang.language as T\n", "import tilelang.language as tl\n"), "by other names"),
    (("import tilelang\n", "import tilelang\nmain_faster = 1\n"), "has a 'main_faster' already"),
])
def test_a_factory_that_cannot_choose_is_refused_with_the_reason(change: tuple[str, str], reason: str, tmp_path: Path) -> None:
    with pytest.raises(KirError, match=reason):
        edit_of(tmp_path, DOUBLED, change)
