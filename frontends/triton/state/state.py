"""The state of reading one kernel, as data, and the one thing that its lower parts ask of a higher one: to read statements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Protocol

import libcst as cst

from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.types import DType

from ..._python.liveness import Liveness
from ..host.scope import HostScope
from ..values.control_flow import Flow
from ..values.emitter import Emitter
from ..values.path_conditions import Paths
from ..values.values import Jit, Value


@dataclass
class Frame:
    """The names of one function while it is read. `cells` are the names that live in buffers."""

    fn: Jit
    scope: HostScope
    env: dict[str, Value] = field(default_factory=dict)
    cells: dict[str, Value] = field(default_factory=dict)
    number: int = 0
    """Tells calls of functions apart: a name of one is none of another's."""


class ReadBlock(Protocol):
    """Reads statements in order, of a loop's body or of an inlined function."""

    def __call__(self, r: State, body: Sequence[cst.CSTNode], /) -> Flow: ...


@dataclass(eq=False)
class State:
    """The state of reading one kernel."""

    root: HostScope
    read_block: ReadBlock
    """Statements hold loops and calls of functions, which hold statements."""
    out: Emitter = field(default_factory=Emitter)
    paths: Paths = field(default_factory=Paths)
    frames: list[Frame] = field(default_factory=list)
    dtype_terms: dict[str, str] = field(default_factory=dict)
    functions: dict[str, n.Function] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)
    read: set[str] = field(default_factory=set)
    opaque: list[str] = field(default_factory=list)
    retyped: dict[str, Value] = field(default_factory=dict)
    metas: set[str] = field(default_factory=set)
    live: list[Liveness] = field(default_factory=list)
    weak: set[str] = field(default_factory=set)
    axes: int = 1
    calls: int = 0
    rounds: int = 0
    """How often bodies of loops over known values have been read."""
    within: int = 0
    """How many loops the statement that is read stands in."""
    places: tuple[str, ...] = ()
    """What the place of a program along each axis of the grid is called, and in `extents` how many there are."""
    extents: tuple[str, ...] = ()
    only: n.Expr | None = None
    """The elements that are meant while pointers of a tile into several buffers are gone through, one buffer after the other."""
    returns: bool = False
    warps: str = "num_warps"
    """The meta that says how many warps a program has."""
    watched: cst.FunctionDef | None = None
    """The function whose first call alone is of interest."""
    memory: n.Buffer | None = None
    """All memory as bytes, where an address is made of an integer: its elements are at the addresses that are their places."""
    views: dict[DType, n.Buffer] = field(default_factory=dict)
    """All memory as elements of each dtype that is asked for there."""
    aliases: dict[str, str] = field(default_factory=dict)
    pending: list[n.Expr] = field(default_factory=list)
    """Bounds of the loops that are being read, which no statement holds yet."""
    addresses: dict[str, str] = field(default_factory=dict)
    """Tensors whose addresses are taken as numbers, with the names of these."""
    pointed: set[str] = field(default_factory=set)
    """Parameters that were read as numbers and through which memory is reached: they are pointers, though the body's text alone did not show it."""
    combines: dict[str, tuple[str | None, str]] = field(default_factory=dict)

    def owner(self, name: str) -> str:
        """A name of the function being read, told apart from those of its callers."""
        return f"{self.frame.number}:{name}"

    @property
    def counts(self) -> tuple[str, ...]:
        """Names of the launch, which count from 0."""
        return (*self.places, *self.extents)

    @property
    def frame(self) -> Frame:
        """The innermost function."""
        return self.frames[-1]
