"""The table of CUDA's own names, `grammars/cuda_names.toml`, and what reads a call of one."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from functools import cache
from importlib import resources
from typing import Any

from ..source.source import Node
from ..symbols.symbols import Value
from ..values.reading import Reading

Handler = Callable[["Reading", str, list[Value], Node], Value]
"""Reads a call: the function's name, its arguments, and the call."""


@cache
def names() -> dict[str, dict[str, Any]]:
    """`grammars/cuda_names.toml`."""
    return tomllib.loads(resources.files("kir.grammars").joinpath("cuda_names.toml").read_text())
