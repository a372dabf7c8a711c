"""The launches of a TileLang kernel in the Python around it: what its factory is called with."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

import libcst as cst

from kir.surface.launches.record import HostLaunch
from kir.surface.launches.values import Unknown, Value

from ..._python.host_files import host_launches
from ..._python.host_run import Follower, HostFile, Kernel
from ..._python.signature import nodes_below, parameters, sizes_of_calls

SMALL = ("unroll", "vectorized", "alloc_local")
"""What TileLang calls loops and memory of which each step, each element, has an instruction or a register of its own."""


def factory_of(owners: tuple[cst.FunctionDef, ...], node: cst.FunctionDef) -> cst.FunctionDef:
    """The function that is called for a kernel: the outermost around it, or the kernel itself."""
    return owners[0] if owners else node


def tilelang_launches(source: Path, factory: cst.FunctionDef) -> list[HostLaunch]:
    """Every call of a factory that its own file and its folder show, with arguments by name."""
    names = [p.name.value for p in parameters(factory)]
    name = factory.name.value

    def on_call(follower: Follower, file: HostFile, kernel: Kernel, e: ast.Call, args: list[Value], named: dict[str, Value]) -> Value:
        if kernel.given is not None or kernel.name != name:
            return Unknown("what a launch returns")
        given = {**dict(zip(names, args)), **named}
        follower.launches.append(HostLaunch(name, str(file.path), e.lineno, follower.known, (), {}, (), factory=given))
        return Kernel(name, None, given)
    return host_launches(source, name, lambda f: f.name == name, on_call)


def left_out(factory: cst.FunctionDef) -> set[str]:
    """The parameters of a factory that are None where a call does not give them."""
    return {p.name.value for p in parameters(factory) if isinstance(p.default, cst.Name) and p.default.value == "None"}


def tensor_extents(node: cst.FunctionDef) -> set[str]:
    """The names in the shapes that a kernel's parameters state."""
    return {x.value for p in parameters(node) if p.annotation is not None for x in nodes_below(p.annotation) if isinstance(x, cst.Name)}


def allocated_extents(node: cst.FunctionDef) -> set[str]:
    """The names in what a kernel allocates, whose extents are compile-time values."""
    return {x.value for call in _allocations(node) for x in nodes_below(call) if isinstance(x, cst.Name)}


def unrolled_extents(node: cst.FunctionDef) -> set[str]:
    """The names in what a kernel unrolls, has as one vector or holds in a thread's own memory: whoever writes that means a small number."""
    return sizes_of_calls(node, SMALL)


def keyword_extents(node: cst.FunctionDef, word: str) -> set[str]:
    """The names in what calls of a kernel give a parameter: `threads=2 * n`."""
    return {x.value for a in nodes_below(node) if isinstance(a, cst.Arg) and a.keyword is not None and a.keyword.value == word
            for x in nodes_below(a.value) if isinstance(x, cst.Name)}


def made_of(names: set[str], factories: Sequence[cst.FunctionDef]) -> set[str]:
    """These names, and those that the factories around a kernel make them of: `shape = [batch, dim]` is of `batch` and `dim`."""
    of: dict[str, set[str]] = {}
    for f in factories:
        for s in f.body.body:
            for x in s.body if isinstance(s, cst.SimpleStatementLine) else ():
                if isinstance(x, cst.Assign):
                    inner = {y.value for y in nodes_below(x.value) if isinstance(y, cst.Name)} | ({x.value.value} if isinstance(x.value, cst.Name) else set())
                    for t in x.targets:
                        if isinstance(t.target, cst.Name):
                            of.setdefault(t.target.value, set()).update(inner)
    out, left = set(names), list(names)
    while left:
        for each in of.get(left.pop(), set()) - out:
            out.add(each)
            left.append(each)
    return out


def _allocations(node: cst.FunctionDef) -> Iterator[cst.Call]:
    for x in nodes_below(node):
        if isinstance(x, cst.Call) and isinstance(x.func, cst.Attribute) and (x.func.attr.value.startswith("alloc_") or x.func.attr.value == "Parallel"):
            yield x
