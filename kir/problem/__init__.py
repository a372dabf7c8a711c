"""What a kernel must compute: inputs, a float64 oracle, an error bound, and the naive program that defines the work item.

    problem = load_problem("gemm")            # or "gemm:bf16", or the path of a folder with a problem.toml
    shape = problem.shape("tail")
    inputs = problem.inputs(shape, seed=0, distribution="normal")
    problem.compare(outputs, inputs, shape).ok

Order: schema, draws, comparison, ordering, problem, answers, rounding_noise, model_source, naive, model_run, model_child, model, load.
"""
from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kir.problem.schema import Shape, State, WorkItem

if TYPE_CHECKING:
    from kir.problem.comparison import Comparison
    from kir.problem.draws import numpy_dtype
    from kir.problem.load import load_problem, problem_names
    from kir.problem.problem import Problem

__all__ = ["Comparison", "Problem", "Shape", "State", "WorkItem", "load_problem", "numpy_dtype", "problem_names"]
HOMES = {"Comparison": "comparison", "numpy_dtype": "draws", "Problem": "problem", "load_problem": "load", "problem_names": "load"}
"""The module of each name that needs NumPy, which takes a while to import."""


def __getattr__(name: str) -> Any:
    """A name whose module is imported when it is first asked for."""
    if name not in HOMES:
        raise AttributeError(name)
    return getattr(import_module(f"kir.problem.{HOMES[name]}"), name)
