"""A TileLang file whose factory chooses: what was found, for the compile-time values that it was read with, and its own kernel for others."""
from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from kir.base.diagnostic import error
from kir.ir import nodes as n
from kir.ir.binding import Binding
from kir.ir.nodes import Program
from kir.ir.printer import expr_text
from kir.ir.types import DTYPES
from kir.ir.visit import names_read
from kir.learning.optimize.hosts.python import BESIDE, POSITIVE, TORCH, python_expression
from kir.learning.optimize.hosts.read_back import NotSaid, reads_back, source_of
from kir.surface import backend
from kir.surface.edits import SourceEdit
from kir.surface.edits.splice import between, lines_of, with_ends_of


def beside(path: Path, kernel: str, binding: Binding, program: Program) -> SourceEdit:
    """The edit of a file that puts a program's factory in front of the one that it was made of, which returns the new kernel where it is given the
    compile-time values and sizes that it was read with. Raises KirError KIR-C102 with the reason where there is no such edit, and what the backend refuses."""
    try:
        held = source_of(path)
        after, said = _edited(path, held.replace("\r\n", "\n"), kernel, binding, program)
    except NotSaid as reason:
        raise error("KIR-C102", f"no factory in {path.name} can choose: {reason}", attempt="-o OUT.py, a kernel with a factory of its own") from None
    after = with_ends_of(held, after)
    return SourceEdit(str(path), kernel, held, after, tuple(between(held, after)), BESIDE, (said,), binding, binding)


def _edited(path: Path, text: str, kernel: str, binding: Binding, program: Program) -> tuple[str, str]:
    """The text after the edit, and what a reader is told."""
    tree, name = ast.parse(text), f"{kernel}_faster"
    if name in text:
        raise NotSaid(f"it has a '{name}' already")
    if len(program.kernels) != 1 or program.plan or program.workspaces or binding.maps or binding.arrays:
        raise NotSaid("the result is more than one kernel of the same tensors")
    factory, made = _factory(tree, kernel)
    emitted = backend("tilelang").emit(replace(program, name=name, kernels=(replace(program.kernels[0], name=name),)))
    new, inner = _factory(ast.parse(emitted.text), name)
    if _imports(ast.parse(emitted.text)) - _imports(tree):
        raise NotSaid("it imports TileLang by other names")
    if len(new.decorator_list) != 1 or isinstance(new.decorator_list[0], ast.Call):
        raise NotSaid("the result needs options of the compiler")
    if [a.arg for a in inner.args.args] != [a.arg for a in made.args.args]:
        raise NotSaid("the result takes its tensors in another order")
    known = [a.arg for a in (*factory.args.args, *factory.args.kwonlyargs)]
    sizes = [a.arg for a in new.args.args]
    if strange := next((x for x in sizes if x not in known), ""):
        raise NotSaid(f"its factory is not given '{strange}'")
    where = list(dict.fromkeys([*_conditions(binding, program, known), *_others(factory, {*binding.metas, *binding.sizes})]))
    lines, written = lines_of(text), lines_of(emitted.text)
    first = _line(factory) - 1
    body = factory.body[1:] if ast.get_docstring(factory) is not None and len(factory.body) > 1 else factory.body
    at, pad = _line(body[0]) - 1, " " * body[0].col_offset
    held = f"\n{pad}    and ".join(where)
    call = f"return {new.name}({', '.join(sizes)})"
    choice = f"{pad}if (\n{pad}    {held}\n{pad}):\n{pad}    {call}\n\n" if where else f"{pad}{call}\n\n"
    alone = "".join(written[new.lineno - 1:new.end_lineno]).rstrip("\n")
    after = "".join([*lines[:first], alone, "\n\n\n", *lines[first:at], choice, *lines[at:]])
    reads_back(path, after, name, emitted)
    said = f"the kernel stays, and '{factory.name}' gives '{name}' where {' and '.join(where)}" if where else f"'{factory.name}' gives '{name}'"
    return after, said


def _line(s: ast.stmt) -> int:
    """The line that a statement begins at, what decorates it included."""
    return min([s.lineno, *(d.lineno for d in (s.decorator_list if isinstance(s, ast.FunctionDef) else ()))])


def _factory(tree: ast.Module, kernel: str) -> tuple[ast.FunctionDef, ast.FunctionDef]:
    """The function of a module that makes a kernel and returns it, and the kernel."""
    for f in (x for x in tree.body if isinstance(x, ast.FunctionDef)):
        made = next((x for x in f.body if isinstance(x, ast.FunctionDef) and x.name == kernel), None)
        if made is not None:
            if not (isinstance(last := f.body[-1], ast.Return) and isinstance(last.value, ast.Name) and last.value.id == kernel):
                raise NotSaid(f"'{f.name}' does not return '{kernel}'")
            if f.args.vararg or f.args.kwarg or sum(isinstance(x, ast.FunctionDef) and x.name == kernel for x in ast.walk(tree)) > 1:
                raise NotSaid(f"'{f.name}' is not as plain as that")
            return f, made
    raise NotSaid(f"no function of it makes '{kernel}'")


def _imports(tree: ast.Module) -> set[str]:
    return {ast.unparse(x) for x in tree.body if isinstance(x, ast.Import | ast.ImportFrom)}


def _conditions(binding: Binding, program: Program, known: list[str]) -> Iterator[str]:
    """What a factory is given where the new kernel is what it makes: the compile-time values, dtypes by their names, and facts of sizes that are numbers."""
    for name, value in binding.metas.items():
        if name not in known:
            raise NotSaid(f"its factory is not given '{name}'")
        if isinstance(value, str) and value in DTYPES:
            if value not in TORCH:
                raise NotSaid(f"'{value}' has no name")
            yield f'str({name}) == "{TORCH[value]}"'
        elif value is None or isinstance(value, bool):
            yield f"{name} is {value!r}"
        elif isinstance(value, int | float | str):
            yield f"{name} == {value!r}"
        else:
            raise NotSaid(f"'{name}' is nothing that Python compares")
    facts: list[n.Expr] = [f for f in program.facts if not POSITIVE.fullmatch(expr_text(f))]
    names = {x: x for x in known}
    yield from (f"isinstance({x}, int)" for f in facts for x in sorted(names_read(f)))
    for f in facts:
        try:
            said = python_expression(f, names)
        except KeyError as bad:
            raise NotSaid(f"its factory is not told {expr_text(f)}") from bad
        yield f"({said})" if " or " in said else said


def _others(factory: ast.FunctionDef, known: set[str]) -> Iterator[str]:
    """That what a factory looks at and the binding does not speak of has its default, which is what it was read with."""
    named = {x.id for s in factory.body for x in ast.walk(s) if isinstance(x, ast.Name)}
    args = factory.args
    given = dict(zip([a.arg for a in args.args][::-1], args.defaults[::-1], strict=False)) | {
        a.arg: d for a, d in zip(args.kwonlyargs, args.kw_defaults, strict=True) if d is not None}
    for name in (a.arg for a in (*args.args, *args.kwonlyargs) if a.arg in named and a.arg not in known):
        default = given.get(name)
        if not isinstance(default, ast.Constant):
            raise NotSaid(f"what it is given for '{name}' is not known")
        yield f"{name} {'is' if default.value is None or isinstance(default.value, bool) else '=='} {default.value!r}"


__all__ = ["beside"]
