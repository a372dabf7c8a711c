"""What a kernel must compute: inputs, a float64 oracle, an error bound, and the naive program that defines the work item.

    problem = load_problem("gemm")            # or "gemm:bf16", or the path of a folder with a problem.toml
    shape = problem.shape("tail")
    inputs = problem.inputs(shape, seed=0, distribution="normal")
    problem.compare(outputs, inputs, shape).ok
"""
from __future__ import annotations

from kir.problem.comparison import Comparison
from kir.problem.draws import numpy_dtype
from kir.problem.load import Problem, load_problem, problem_names
from kir.problem.schema import Shape, State, WorkItem

__all__ = ["Comparison", "Problem", "Shape", "State", "WorkItem", "load_problem", "numpy_dtype", "problem_names"]
