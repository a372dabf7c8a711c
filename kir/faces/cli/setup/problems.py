"""list the problems that come with KIR, by the names that --problem takes"""

from __future__ import annotations

from kir.faces.cli._result import Result


def command() -> Result:
    """List the problems that come with KIR."""
    from rich.table import Table

    from kir.problem import load_problem, problem_names

    shown = Table("problem", "tensors", "scalars", "dtypes", "shapes", box=None, header_style="dim")
    rows = []
    for name in problem_names():
        problem = load_problem(name)
        tensors = [f"{t.role} {t.name}[{', '.join(map(str, t.shape))}]" for t in problem.spec.tensors]
        rows.append({"name": name, "tensors": tensors, "scalars": sorted(problem.spec.scalars), "dtypes": list(problem.spec.dtypes),
                     "shapes": [s.name for s in problem.shapes]})
        shown.add_row(name, ", ".join(tensors), ", ".join(sorted(problem.spec.scalars)), ", ".join(problem.spec.dtypes), str(len(problem.shapes)))
    return Result({"problems": rows}, shown)
