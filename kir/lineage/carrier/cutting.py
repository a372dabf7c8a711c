"""The inverse of filling: the hole that some kernels of a program stand in, and the answer that they are.

Kernels are cut out as a whole. Trailing grid axes that only say which instance of the contract a CTA works on (a row, a head) stay with
the hole, whose operands are then slices; workspaces lose their dimensions over these axes, as `fill` gives them.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names, rename
from kir.ir.types import I32, DType
from kir.ir.visit import once, substitute, transform, walk
from kir.lineage.carrier.contract import Contract
from kir.lineage.carrier.operands import facts
from kir.rewrite.edit import Path, fresh

if TYPE_CHECKING:
    from kir.problem.schema import Tensor

MOST_ASSIGNMENTS = 24
"""Ways of telling a contract's operands among tensors of the same dtype and rank that are tried."""


@dataclass(frozen=True)
class Outline:
    """`holed` is the program with the kernels `names` replaced by one, at `path[:1]`, that is nothing but a hole for the contract;
    `operands` maps the contract's names to the program's, `sizes` to extents there."""

    holed: n.Program
    path: Path
    names: tuple[str, ...]
    operands: Mapping[str, str]
    sizes: Mapping[str, n.Expr]
    dtype: str
    alone: bool = False
    """Whether dimensions of one element are left out, as `_Cut.of` says."""


class CannotOutline(Exception):
    """Why kernels are no answer in the form that a library keeps."""


def outlines(contract: Contract, program: n.Program, names: Sequence[str], kernel: str) -> Iterator[Outline]:
    """The holes, called by kernel name `kernel`, in which the consecutive kernels `names` may stand: one for each way of matching their
    tensors with the contract's operands. None when they cannot be cut out or have other operands."""
    for cut in once(program, f"_cuts {' '.join(names)}", lambda: _cuts(program, names)):
        yield from islice(_assigned(contract, program, cut, kernel), MOST_ASSIGNMENTS)


def _cuts(program: n.Program, names: Sequence[str]) -> tuple[_Cut, ...]:
    """The ways to cut some kernels out, whatever they are an answer to."""
    inside = tuple(k for k in program.kernels if k.name in names)
    if not _may_be_cut(program, inside):
        return ()
    found: list[_Cut] = []
    for count in range(min(len(k.grid) for k in inside), -1, -1):
        for alone in (False, True):
            cut = _Cut.of(program, inside, count, alone)
            found += [cut] if cut is not None and (not found or cut.dims != found[-1].dims) else []
    return tuple(found)


def _may_be_cut(program: n.Program, inside: tuple[n.Kernel, ...]) -> bool:
    """Whether kernels follow one another in the text and in the plan, and share no tensor map with others."""
    first = program.kernels.index(inside[0])
    if program.kernels[first:first + len(inside)] != inside or program.metas:
        return False
    if any(not isinstance(s, n.Launch) or s.attrs for s in program.plan):
        return False
    launched = [s.kernel for s in program.plan if isinstance(s, n.Launch)] or [k.name for k in program.kernels]
    wanted = [k.name for k in inside]
    if wanted[0] not in launched:
        return False
    at = launched.index(wanted[0])
    if launched[at:at + len(wanted)] != wanted or sum(x in wanted for x in launched) != len(wanted):
        return False
    return not _maps(program, inside) & _maps(program, tuple(k for k in program.kernels if k not in inside))


def _maps(program: n.Program, kernels: tuple[n.Kernel, ...]) -> set[str]:
    """The tensor maps that kernels name."""
    maps = {m.name for m in program.tensor_maps}
    return {v for k in kernels for s in walk(k) for _, v in getattr(s, "attrs", ()) if isinstance(v, str) and v in maps}


# ------------------------------------------------------------------------------------------------------------------ instances

@dataclass(frozen=True)
class _Cut:
    """Kernels with `axes` (of the first of them) that number instances. `dims` says, for each global buffer, which axis indexes each
    dimension (None: the dimension is the instance's own), or which place of an operand that is only read the axes give, or the one that there is
    along a dimension; `written` are those that some kernel writes, `private` workspaces of theirs alone, and `outside` what they share with others, in the
    program's order."""

    kernels: tuple[n.Kernel, ...]
    axes: tuple[n.Axis, ...]
    buffers: Mapping[str, n.Buffer]
    dims: Mapping[str, tuple[int | n.Expr | None, ...]]
    written: frozenset[str]
    private: frozenset[str]
    outside: tuple[str, ...]
    alone: bool = False

    @classmethod
    def of(cls, program: n.Program, kernels: tuple[n.Kernel, ...], count: int, alone: bool = False) -> _Cut | None:
        """The cut at the last `count` axes, or None when one of them does more than number instances. `alone`: a dimension of one element of an operand that
        is only read is none of an instance's own."""
        tails = [k.grid[len(k.grid) - count:] for k in kernels]
        if any([a.extent for a in tail] != [a.extent for a in tails[0]] for tail in tails):
            return None
        outer = {p.name: p.of for p in program.params if isinstance(p.of, n.Buffer)} | {w.buffer.name: w.buffer for w in program.workspaces}
        fixed = {p.name for p in program.params if p.role == "size"}
        written = frozenset(name for k in kernels for name in _written(k) if name in outer)
        read = {p.name for p in program.params} - written if alone else set()
        dims: dict[str, list[int | n.Expr | None]] = {}
        for k, tail in zip(kernels, tails, strict=True):
            numbers = {a.name: i for i, a in enumerate(tail)}
            first = {a.name: n.Var(b.name, I32) for a, b in zip(tail, tails[0], strict=True)}
            for at in walk(k):
                if isinstance(at, n.Region) and at.buffer.name in outer:
                    found = [x if at.buffer.name in read and isinstance(x, n.Expr) and build.is_const(x, 0) and build.is_const(d, 1) else
                             _axis(x, numbers, first, fixed) for x, d in zip(at.index, at.buffer.shape, strict=False)] or [None] * len(at.buffer.shape)
                    old = dims.setdefault(at.buffer.name, found)
                    dims[at.buffer.name] = [a if a == b else None for a, b in zip(old, found, strict=True)]
        for k, tail in zip(kernels, tails, strict=True):
            numbers = {a.name: i for i, a in enumerate(tail)}
            uses = sum(isinstance(x, n.Var) and x.name in numbers for x in walk(k))
            if uses != sum(_uses(d, tails[0]) for at in walk(k) if isinstance(at, n.Region) and at.buffer.name in outer for d in dims[at.buffer.name]):
                return None
        for name, found in dims.items():
            used = [d for d in found if isinstance(d, int)]
            own = name in written or name not in {p.name for p in program.params}
            if len(set(used)) != len(used) or (own and (len(used) != count or any(isinstance(d, n.Expr) for d in found))):
                return None
            if any(isinstance(d, int) and tails[0][d].extent != e for d, e in zip(found, outer[name].shape, strict=True)):
                return None
        names = {k.name for k in kernels}
        elsewhere = {x.buffer.name for k in program.kernels if k.name not in names for x in walk(k) if isinstance(x, n.Region)}
        private = frozenset(w.buffer.name for w in program.workspaces if w.buffer.name in dims and w.buffer.name not in elsewhere)
        outside = tuple(name for name in (*(p.name for p in program.params), *(w.buffer.name for w in program.workspaces))
                        if name in dims and name not in private)
        return cls(kernels, tails[0], {name: outer[name] for name in dims}, {k: tuple(v) for k, v in dims.items()}, written, private, outside,
                   alone)

    def own(self, name: str) -> tuple[n.Expr, ...]:
        """The shape of a buffer within an instance."""
        return tuple(e for e, d in zip(self.buffers[name].shape, self.dims[name], strict=True) if d is None)

    def region(self, name: str) -> n.Region:
        """The slice of a buffer that an instance works on."""
        if all(d is None for d in self.dims[name]):
            return n.Region(self.buffers[name])
        return build.region(self.buffers[name], *(
            n.Var(self.axes[d].name, I32) if isinstance(d, int) else d if d is not None else build.span(0, e)
            for e, d in zip(self.buffers[name].shape, self.dims[name], strict=True)))


def _axis(index: n.Expr | n.Span, numbers: Mapping[str, int], first: Mapping[str, n.Expr], sizes: set[str]) -> int | n.Expr | None:
    """The axis that an index is; or the index, by the axes of the first kernel, where it is made of axes and sizes alone; otherwise None."""
    if isinstance(index, n.Var):
        return numbers.get(index.name)
    names = {x.name for x in walk(index) if isinstance(x, n.Var)}
    if isinstance(index, n.Span) or not names & numbers.keys() or names - numbers.keys() - sizes or any(isinstance(x, n.Region) for x in walk(index)):
        return None
    out: n.Expr = substitute(index, first)
    return out


def _uses(d: int | n.Expr | None, axes: tuple[n.Axis, ...]) -> int:
    """How often the axes stand in a place."""
    names = {a.name for a in axes}
    return int(d is not None) if not isinstance(d, n.Expr) else sum(isinstance(x, n.Var) and x.name in names for x in walk(d))


def _written(k: n.Kernel) -> Iterator[str]:
    for x in walk(k):
        match x:
            case n.Store():
                yield x.at.buffer.name
            case n.Copy():
                yield x.dst.buffer.name
            case n.Mma():
                yield x.acc.buffer.name
            case n.Call() if x.fn.startswith("atomic_") or x.of is not None:
                yield from (a.buffer.name for a in x.args if isinstance(a, n.Region))
            case n.Address():
                yield x.at.buffer.name
            case _:
                pass


# ------------------------------------------------------------------------------------------------------------------- operands

def _assigned(contract: Contract, program: n.Program, cut: _Cut, kernel: str) -> Iterator[Outline]:
    outside = cut.outside
    if not _alike(contract, cut):  # known without the whole contract, which takes a twentieth of a second to load
        return
    tensors = contract.spec.tensors
    if kernel in {k.name for k in program.kernels if k not in cut.kernels} | {f.name for f in program.functions}:
        return

    def matched(rest: tuple[Tensor, ...], taken: dict[str, str], sizes: dict[str, n.Expr], dtype: str) -> Iterator[Outline]:
        if not rest:
            yield _outline(contract, program, cut, kernel, taken, sizes, dtype)
            return
        t = rest[0]
        for name in sorted(outside, key=lambda x: x != t.name):
            buffer = cut.buffers[name]
            if name in taken.values() or (name in cut.written) != (t.role != "in") or buffer.strides or buffer.layout:
                continue
            here = dtype or buffer.dtype.name if t.dtype == "T" else t.dtype
            shape = cut.own(name)
            if buffer.dtype.name != here or len(shape) != len(t.shape) or (t.dtype == "T" and here not in contract.spec.dtypes):
                continue
            known = _unified(contract, t.shape, shape, sizes)
            if known is not None:
                yield from matched(rest[1:], {**taken, t.name: name}, known, here if t.dtype == "T" else dtype)
    yield from matched(tensors, {}, {}, "")


def _alike(contract: Contract, cut: _Cut) -> bool:
    """Whether tensors may be the contract's operands, by which are written, their numbers of dimensions and the dtypes that the contract fixes."""
    if len(cut.outside) != len(contract.operands):
        return False
    forms = sorted((name in cut.written, len(cut.own(name))) for name in cut.outside)
    have, fixed = [cut.buffers[name].dtype.name for name in cut.outside], [dtype for dtype in contract.operand_dtypes if dtype != "T"]
    return forms == sorted((written, rank) for _, written, rank in contract.operands) and all(have.count(d) >= fixed.count(d) for d in set(fixed))


def _unified(contract: Contract, texts: tuple[str, ...], shape: tuple[n.Expr, ...], sizes: dict[str, n.Expr]) -> dict[str, n.Expr] | None:
    """The sizes, with those that this shape tells; None where it contradicts them."""
    out = dict(sizes)
    for text, e in zip(texts, shape, strict=True):
        if text in contract.sizes:
            if out.setdefault(text, e) != e:
                return None
        elif text.isdigit() and build.int_value(e) != int(text):
            return None
    return out


def _outline(contract: Contract, program: n.Program, cut: _Cut, kernel: str, operands: dict[str, str], sizes: dict[str, n.Expr],
             dtype: str) -> Outline:
    names = tuple(k.name for k in cut.kernels)
    hole = contract.hole(contract.spec.name.replace("-", "_"), [cut.region(operands[t.name]) for t in contract.reads],
                         [cut.region(operands[t.name]) for t in contract.writes])
    host = n.Kernel(kernel, cut.axes, build.const(1), (hole,))
    at = program.kernels.index(cut.kernels[0])
    kernels = (*program.kernels[:at], host, *program.kernels[at + len(names):])
    plan = [s for s in program.plan if isinstance(s, n.Launch) and (s.kernel == names[0] or s.kernel not in names)]
    plan = [n.Launch(kernel) if s.kernel == names[0] else s for s in plan]
    usual = [s.kernel for s in plan] == [k.name for k in kernels]
    used = {x.fn for k in kernels for x in walk(k) if isinstance(x, n.Call)} | {str(v) for k in kernels for x in walk(k)
                                                                              for _, v in getattr(x, "attrs", ())}
    called = {x.fn for k in cut.kernels for x in walk(k) if isinstance(x, n.Call)} | {str(v) for k in cut.kernels for x in walk(k)
                                                                                    for _, v in getattr(x, "attrs", ())}
    functions = tuple(f for f in program.functions if f.name in used or f.name not in called)
    maps = tuple(m for m in program.tensor_maps if m.name not in _maps(program, cut.kernels))
    holed = replace(program, kernels=kernels, tensor_maps=maps, workspaces=tuple(w for w in program.workspaces if w.buffer.name not in cut.private),
                    functions=functions, plan=() if usual else tuple(plan))
    return Outline(holed, (kernel, 0), names, operands, sizes, dtype, cut.alone)


# --------------------------------------------------------------------------------------------------------------------- answer

def answer_of(contract: Contract, program: n.Program, outline: Outline) -> n.Program:
    """The kernels of an outline as a program over the contract's operands: what `fill` puts back.

    Raises CannotOutline when a size of the contract is no size of the program (a literal, say), or the kernels see other values."""
    kernels = tuple(k for k in program.kernels if k.name in outline.names)
    host = next(k for k in outline.holed.kernels if k.name == outline.path[0])
    cut = _Cut.of(program, kernels, len(host.grid), outline.alone)
    assert cut is not None
    sizes: dict[str, str] = {}
    for name in contract.sizes:
        e = outline.sizes[name]
        if not isinstance(e, n.Var) or e.of != I32 or e.name in sizes:
            raise CannotOutline(f"the size {name} of {contract.id} is fixed here")
        sizes[e.name] = name
    buffers = {theirs: n.Buffer(mine, cut.buffers[theirs].dtype, tuple(_sized(e, sizes) for e in cut.own(theirs)), "global")
               for mine, theirs in outline.operands.items()}
    spaces = [w for w in program.workspaces if w.buffer.name in cut.buffers and w.buffer.name not in buffers]
    outer = {*contract.sizes, *outline.operands}
    taken = outer | {w.buffer.name for w in spaces} | {p.name for p in program.params}
    names = {w.buffer.name: fresh(w.buffer.name, taken) if w.buffer.name in outer else w.buffer.name for w in spaces}
    private = {w.buffer.name: replace(w.buffer, name=names[w.buffer.name], shape=tuple(_sized(e, sizes) for e in cut.own(w.buffer.name)))
               for w in spaces}
    inner = tuple(_cut_out(k, cut, {**buffers, **private}, sizes, taken) for k in kernels)
    tensors = {t.name: t for t in contract.spec.tensors}
    params = (*(n.Param(name, "size", I32) for name in contract.sizes),
              *(n.Param(name, t.role, buffers[outline.operands[name]]) for name, t in tensors.items()))
    symbols: dict[str, n.Expr] = {name: n.Var(name, I32) for name in contract.sizes}
    kept = {f.name for f in outline.holed.functions}
    out = n.Program(contract.spec.name.replace("-", "_"), (), params, facts(contract, symbols), (),
                    tuple(replace(w, buffer=private[w.buffer.name]) for w in spaces), (),
                    tuple(f for f in program.functions if f.name not in kept), inner,
                    tuple(n.Launch(name) for name in outline.names) if program.plan else ())
    known = {p.name for p in params}
    if strange := {p.name for p in program.params if isinstance(p.of, DType)} & _free(out) - known:
        raise CannotOutline(f"it depends on {min(strange)}, which is no operand")
    return out


def _free(p: n.Program) -> set[str]:
    return {x.name for part in (*p.kernels, *p.workspaces) for x in walk(part) if isinstance(x, n.Var)}


def _sized(e: n.Expr, sizes: Mapping[str, str]) -> n.Expr:
    out: n.Expr = transform(e, lambda old, new: n.Var(sizes[new.name], I32) if isinstance(new, n.Var) and new.name in sizes else new)
    return out


def _cut_out(k: n.Kernel, cut: _Cut, buffers: Mapping[str, n.Buffer], sizes: Mapping[str, str], taken: set[str]) -> n.Kernel:
    """A kernel within one instance, over the contract's operands and sizes."""
    own = replace(k, grid=k.grid[:len(k.grid) - len(cut.axes)], cluster=k.cluster[:len(k.grid) - len(cut.axes)], label=None, origin=None)
    reserved = set(taken)
    clash = [x for x in dict.fromkeys((*(a.name for a in own.grid), *bound_names(own.body))) if x in reserved]
    own = rename(own, {x: fresh(x, reserved | set(bound_names(own.body))) for x in clash})

    def leave(old: n.Node, new: n.Node) -> n.Node:
        match new:
            case n.Var() if new.name in sizes:
                return n.Var(sizes[new.name], I32)
            case n.Region() if new.buffer.name in buffers and isinstance(old, n.Region):
                index = [i for i, d in zip(new.index, cut.dims[old.buffer.name], strict=False) if d is None]
                return build.region(buffers[old.buffer.name], *index)
            case _:
                return new
    out: n.Kernel = transform(own, leave)
    return out
