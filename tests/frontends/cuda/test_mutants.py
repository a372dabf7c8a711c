"""A barrier that is left out of an expert is found by the checking interpreter, with both accesses; the experts themselves are clean."""
from __future__ import annotations

from pathlib import Path

import pytest

from kir.analysis.normal.regions import raised
from kir.interp import Result, run
from kir.ir.binding import Binding
from kir.ir.bindings.specialize import specialize
from kir.problem import load_problem
from kir.surface import frontend

SKILLS = Path(__file__).parents[3] / "skills"
SHAPES = {"scan": ("scan", "tail"), "topk_radix": ("topk", "tail"), "transpose": ("transpose", "tail")}
FILES = {name: SKILLS / "experts" / problem / f"{name}.cu" for name, (problem, _) in SHAPES.items()}


def checked(source: Path, name: str) -> Result:
    """The kernel of a file, run by the checking interpreter."""
    binding = Binding.read(SKILLS / "bindings" / f"cuda_{name}.toml")
    read = frontend("cuda").instantiate(source, name, binding)  # type: ignore[attr-defined]  # beyond the protocol
    problem = load_problem(SHAPES[name][0])
    shape = next(s for s in problem.shapes if s.name == SHAPES[name][1])
    return run(raised(specialize(read, binding)), problem.inputs(shape, 0, "normal"), problem.scalars(shape), mode="check", one_error=True)


def mutants() -> list[tuple[str, str, str]]:
    """(expert, what is weakened, its text), for every barrier and some guards."""
    out = []
    for name, file in FILES.items():
        text = file.read_text()
        pieces = text.split("__syncthreads();")
        for k in range(len(pieces) - 1):
            out.append((name, f"barrier {k}", "__syncthreads();".join([*pieces[:k], pieces[k] + pieces[k + 1], *pieces[k + 2 :]])))
    out.append(("scan", "bounds of the load", FILES["scan"].read_text().replace("j < N ? x[j] : 0.f", "x[j]")))
    out.append(("scan", "bounds of the store", FILES["scan"].read_text().replace("if (j < N) y[j]", "y[j]")))
    out.append(("topk_radix", "bounds of the histogram", FILES["topk_radix"].read_text().replace("t + offset < kThreads", "t + offset <= kThreads")))
    return out


@pytest.mark.parametrize(("name", "what", "text"), [pytest.param(*m, id=f"{m[0]}: {m[1]}") for m in mutants()])
def test_a_weakened_expert_is_found(tmp_path: Path, name: str, what: str, text: str) -> None:
    assert text != FILES[name].read_text()
    file = tmp_path / f"{name}.cu"
    file.write_text(text)
    found = checked(file, name).errors
    assert found, f"{what} of {name} is not missed"


@pytest.mark.parametrize("name", sorted(FILES))
def test_the_expert_itself_is_clean(name: str) -> None:
    assert checked(FILES[name], name).errors == ()
