"""The table of CUDA's own names, `grammars/cuda_names.toml`, and what reads a call of one."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from functools import cache
from importlib import resources
from typing import Any

from .declared import Value
from .reading import Reading
from .source import Node

Handler = Callable[["Reading", str, list[Value], Node], Value]
"""Reads a call: the function's name, its arguments, and the call."""


@cache
def names() -> dict[str, dict[str, Any]]:
    """`grammars/cuda_names.toml`."""
    return tomllib.loads(resources.files("kir.grammars").joinpath("cuda_names.toml").read_text())
