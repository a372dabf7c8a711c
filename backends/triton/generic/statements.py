"""Statements and accesses of generic programs: flat pointers, and no barrier that the source did not have."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace

from kir.analysis.facts import descends
from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.ir import nodes as n
from kir.ir.bindings.policies import ORDERED_BY, SCOPED_BY, parts_of
from kir.ir.canonical import bound_names
from kir.ir.dtype_terms import PRECISIONS, accumulated
from kir.ir.types import F32, I32, I64, dtype_of, shape_of
from kir.ir.visit import buffers_named, walk
from kir.surface import StatementPath

from ..._wrap import wrapped
from ..tiles.expressions import SUM, Expressions, literal, refuse
from ..tiles.memory import Memory
from ..tiles.statements import Statements
from .carried_pointers import Moving, moving, terms
from .descriptors import Box, box
from .dtype_terms import is_descriptor, select_arms
from .expressions import GenericExpressions, unconverted


@dataclass
class GenericMemory(Memory):
    """Accesses through flat pointers and descriptors. `carried` are the names of addresses that the loop being written advances."""

    carried: dict[n.Region, str] = field(default_factory=dict)
    loops: dict[str, int] = field(default_factory=dict)
    """How many loops are around the innermost one in which a name gets its value."""

    def pointer(self, to: Expressions, at: n.Region) -> str:
        """The pointer plus the terms of the index, scalars first; what was widened for the sum alone is added as it is, since Triton
        widens it itself and a 64-bit tile costs registers."""
        if at in self.carried:
            return self.carried[at]
        (index,) = at.index
        assert isinstance(index, n.Expr)
        if isinstance(index, n.Const) and index.value == 0:
            return to.names[at.buffer.name]
        if dtype_of(index.type) != I64 or _narrow(index) is not index:  # one term, without a sum that would widen it
            return f"{to.names[at.buffer.name]} + {to.text(index, SUM + 1)}"
        return self.plus(to, at.buffer, terms(index))

    def plus(self, to: Expressions, base: n.Buffer, index: Sequence[n.Expr]) -> str:
        """A pointer plus the terms of an index: scalars, then tiles, each with what changes in fewer loops first, so that its sum can be
        worked out before them."""
        def place(t: n.Expr) -> tuple[bool, int, int]:
            loops = max((self.loops.get(x.name, 0) for x in walk(t) if isinstance(x, (n.Var, n.Buffer))), default=0)
            return bool(shape_of(t.type)), loops, len(shape_of(t.type))
        shown = [t for t in index if not (isinstance(t, n.Const) and t.value == 0)]
        return " + ".join([to.names[base.name], *(to.text(_narrow(t), SUM + 1) for t in sorted(shown, key=place))])

    def load_text(self, to: Expressions, e: n.Load) -> str:
        """A value read."""
        b = e.at.buffer
        if b.space != "global":
            return super().load_text(to, e)
        if any(isinstance(i, n.Span) for i in e.at.index):
            return f"{to.names[b.name]}.load([{', '.join(to.text(i.lo) for i in e.at.index if isinstance(i, n.Span))}])"
        out = f"tl.load({self.pointer(to, e.at)}"
        if e.mask is not None:
            out += f", mask={to.text(e.mask)}"
            if e.other is not None:
                out += f", other={to.text(unconverted(e.other, b.dtype))}"
        return f"{out}{self._options(e.cache, 'load')})"

    def store_text(self, to: Expressions, at: n.Region, value: str, mask: n.Expr | None, clip: bool, cache: str) -> str:
        """A `tl.store`, or that of a descriptor."""
        if any(isinstance(i, n.Span) for i in at.index):
            return f"{to.names[at.buffer.name]}.store([{', '.join(to.text(i.lo) for i in at.index if isinstance(i, n.Span))}], {value})"
        shown = f", mask={to.text(mask)}" if mask is not None else ""
        return f"tl.store({self.pointer(to, at)}, {value}{shown}{self._options(cache, 'store')})"

    def _options(self, cache: str, verb: str) -> str:
        """A modifier, an eviction policy, volatile, or several of them."""
        modified, evicted, rest = parts_of(cache)
        out = "".join(f", {word}={name}" for word, name in (("cache_modifier", modified), ("eviction_policy", evicted)) if name)
        for word in ("volatile", "evict_first", "evict_last"):
            if rest == word or rest.endswith(f"_{word}"):
                out = super()._options(word, verb) + out
                rest = rest[: -len(word)].rstrip("_")
        return (super()._options(rest, verb) if rest else "") + out

    def atomic_text(self, to: Expressions, e: n.Call) -> str:
        """An atomic with the order and scope that it names."""
        at = e.args[0]
        assert isinstance(at, n.Region)
        attrs = dict(e.attrs)
        operands = [to.tensor(unconverted(a, at.buffer.dtype)) for a in e.args[1:] if isinstance(a, n.Expr)]
        said = {k: str(attrs[name]) for name, k in (("order", "sem"), ("scope", "scope")) if name in attrs}
        options = "".join(f", {k}={v.removeprefix(ORDERED_BY).removeprefix(SCOPED_BY)}" if v.startswith((ORDERED_BY, SCOPED_BY)) else f', {k}="{v}"'
                          for k, v in said.items())
        if e.fn == "atomic_cas":
            return f"tl.atomic_cas({self.pointer(to, at)}, {operands[0]}, {operands[1]}{options})"
        word = {"atomic_exch": "atomic_xchg"}.get(e.fn, e.fn)
        mask = f", mask={operands[1]}" if len(operands) > 1 else ""
        return f"tl.{word}({self.pointer(to, at)}, {operands[0]}{mask}{options})"


@dataclass
class GenericStatements(Statements):
    """Statements of a generic kernel: no barrier is added, and a value that both arms of a branch give needs no declaration."""

    _depth: int = 1
    _path: StatementPath = ()
    _named: int = 0
    _unrolled: int = 0
    """Static loops around the statement being written: Triton reads their bodies again and again, and a constexpr is bound once."""
    _outside: tuple[int, int] | None = None
    """Where the outermost static branch around the statement being written starts: line and depth."""
    _one_armed: set[str] = field(default_factory=set)
    """Buffers that only one arm of a static branch fills: in a loop Triton must be told that the other leaves nothing."""
    _merged: dict[int, n.Expr] = field(default_factory=dict)
    """What stores at the end of a static arm give, by the identity of the store: a branch finds the common dtype itself."""
    _carried_names: set[str] = field(default_factory=set)
    """Names of addresses that loops advance."""

    @property
    def open(self) -> GenericExpressions:
        """What writes expressions over open metas."""
        assert isinstance(self.expressions, GenericExpressions)
        return self.expressions

    def define(self, text: str) -> str:
        """A name for a dtype, defined before the statement being written."""
        self._named += 1
        name = f"dtype_{self._named}"
        while name in self.expressions.names.values():
            name += "_"
        line = f"{name} = {text}" if self._unrolled else f"{name}: tl.constexpr = {text}"
        if self._outside is None:
            self.put(line, self._depth, self._path)
            return name
        # Under a static branch the term might be read as what it is there: it is named before the branch.
        at, depth = self._outside
        made = wrapped("    " * depth + line)
        self.lines[at:at] = [(x, self._path) for x in made]
        self._outside = at + len(made), depth
        return name

    def block(self, block: n.Block, path: StatementPath, depth: int) -> None:
        """A block; dtypes that it names are forgotten at its end."""
        before = len(self.lines)
        around = self._depth, self._path
        self.open.terms.known.append({})
        self._one_armed |= _one_armed(block)
        skip = -1
        for i, s in enumerate(block):
            if i == skip:
                continue
            self._depth, self._path = depth, (*path, i)
            try:
                following = block[i + 1] if i + 1 < len(block) else None
                start = _start_of(s, following)
                if start is not None and isinstance(following, n.Mma):
                    self._product(start, following, depth, (*path, i))
                    skip = i + 1
                elif isinstance(following, n.Let) and (both := self.open.with_index(s, following)) is not None:
                    assert isinstance(s, n.Let)
                    names = self.open.names
                    self.put(f"{names[s.names[0]]}, {names[following.names[0]]} = {both}", depth, (*path, i))
                    skip = i + 1
                else:
                    self._statement(s, (*path, i), depth)
            except KirError as refused:
                self.refused.append((*path, i))
                self.refusals += [replace(d, anchor="/".join(map(str, (*path, i))), origin=s.origin) for d in refused.diagnostics]
        if len(self.lines) == before:
            self.put("pass", depth, None)
        self.open.terms.known.pop()
        self._depth, self._path = around

    def _statement(self, s: n.Stmt, path: StatementPath, depth: int) -> None:
        to = self.open
        match s:
            case n.Alloc(init=None):
                if self._loops and s.buffer.name in self._one_armed:
                    self.put(f"{to.names[s.buffer.name]} = None", depth, path)
            case n.Opaque():
                raise refuse("KIR-B002", f"this is source text that KIR does not understand: {s.reason}")
            case n.View() if not s.axes:
                self.put(f"{to.names[s.buffer.name]} = {to.names[s.at.buffer.name]}.to(tl.pointer_type({to.dtype(s.buffer.dtype)}), "
                         "bitcast=True)", depth, path)
            case n.Store() if s.at.buffer.space == "global":
                value = unconverted(s.value, s.at.buffer.dtype)
                if isinstance(value, n.Const) or dtype_of(value.type) == s.at.buffer.dtype:
                    value = value if isinstance(s.value, n.Cast) else s.value
                self.put(self.memory.store_text(to, s.at, to.text(value), s.mask, s.clip, s.cache), depth, path)
            case n.Store() if id(s) in self._merged:
                made = self._merged[id(s)]  # a bare number would take the dtype of the other arm
                text = f"tl.full((), {literal(made) if isinstance(made, n.Const) else to.text(made)}, {to.dtype(dtype_of(made.type))})" if to.is_static(
                    made) and not shape_of(made.type) else to.assigned(made)
                self.put(f"{to.names[s.at.buffer.name]} = {text}", depth, path)
            case n.If() if s.static:
                self._merge(s)
                outside = self._outside
                if outside is None:
                    self._outside = len(self.lines), depth
                cond = to.text(s.cond)
                self.put(f"if {cond}:", depth, path)
                self.block(s.then, (*path, "then"), depth + 1)
                if s.orelse:
                    self.put("else:", depth, path)
                    self.block(s.orelse, (*path, "orelse"), depth + 1)
                if outside is None:  # within another branch the place has moved past what was named since
                    self._outside = None
            case n.Copy() if s.via == "tma" and _boxed(s.src.at) and s.src.other is not None and _is_zero(s.src.other):
                self.put(f"{to.names[s.dst.buffer.name]} = {_call(to, s.src.at)}.load([{_corner(to, s.src.at)}])", depth, path)
            case n.Copy() if s.via == "tma" and _boxed(s.dst):
                self.put(f"{_call(to, s.dst)}.store([{_corner(to, s.dst)}], {to.names[s.src.at.buffer.name]})", depth, path)
            case n.Copy() if s.via == "tma" and s.src.at.buffer.space == "global" and s.src.other is not None and _is_zero(s.src.other) and (
                    found := box(s.src.at, s.src.mask)) is not None:
                self.put(f"{to.names[s.dst.buffer.name]} = {_made(to, s.src.at, found)}.load([{_all(to, found.offsets)}])", depth, path)
            case n.Copy() if s.via == "tma" and s.dst.buffer.space == "global" and (found := box(s.dst, s.mask)) is not None:
                self.put(f"{_made(to, s.dst, found)}.store([{_all(to, found.offsets)}], {to.names[s.src.at.buffer.name]})", depth, path)
            case n.Jump() if s.kind != "return":
                self.put(s.kind, depth, path)
            case n.Jump() if s.values:
                self.put(f"return {', '.join(to.assigned(v) for v in s.values)}", depth, path)
            case _:
                super()._statement(s, path, depth)

    def _merge(self, s: n.If) -> None:
        """Find the stores of both arms whose dtype is the choice between what the arms give."""
        arms = [{x.at.buffer.name: x for x in arm if isinstance(x, n.Store) and x.at.buffer.space != "global" and not x.at.index}
                for arm in (s.then, s.orelse)]
        for name, a in arms[0].items():
            b, dtype = arms[1].get(name), a.at.buffer.dtype
            if b is None:
                continue
            va, vb = unconverted(a.value, dtype), unconverted(b.value, dtype)
            chosen = select_arms(self.open.terms.derived.get(dtype.name, dtype.name))
            if chosen == (dtype_of(va.type).name, dtype_of(vb.type).name):
                self._merged |= {id(a): va, id(b): vb}

    def _for(self, s: n.For, depth: int, path: StatementPath) -> None:
        to, attrs = self.open, dict(s.attrs)
        # Triton turns round a loop whose step it knows to be negative, and it knows only what is no tensor: a step is not converted there.
        step = s.step.x if isinstance(s.step, n.Cast) and descends(s.step) else s.step
        bounds = ", ".join(to.text(x) for x in (s.lo, s.hi, step))
        if s.kind == "static":
            to.metas.add(s.var.name)
            self._addresses.loops[s.var.name] = self._loops + 1
            self._unrolled += 1
            self._loop(f"for {to.names[s.var.name]} in tl.static_range({bounds}):", s.body, None, depth, path)
            self._unrolled -= 1
            return
        if s.kind not in ("serial", "pipelined", "unroll"):
            raise refuse("KIR-B002", f"Triton has no {s.kind} loop")
        options = "".join(f", {word}={attrs.pop(key)}" for key, word in (
            ("stages", "num_stages"), ("factor", "loop_unroll_factor"), ("disallow_acc_multi_buffer", "disallow_acc_multi_buffer"),
            ("flatten", "flatten"), ("warp_specialize", "warp_specialize"), ("disable_licm", "disable_licm")) if key in attrs)
        if attrs:
            raise refuse("KIR-B002", f"a Triton loop has no option '{next(iter(attrs))}'")
        word = "tl.range" if options else "range"
        advanced = self._begun(s, depth, path)
        self._addresses.loops[s.var.name] = self._loops + 1
        self._loop(f"for {to.names[s.var.name]} in {word}({bounds}{options}):", s.body, None, depth, path)
        for each in advanced:
            self.put(f"{self._addresses.carried.pop(each.at)} += {to.text(_narrow(each.amount))}", depth + 1, path)

    def _loop(self, head: str, body: n.Block, loop: n.For | None, depth: int, path: StatementPath) -> None:
        stored = (x.at.buffer.name if isinstance(x, n.Store) else x.acc.buffer.name for s in body for x in walk(s) if isinstance(x, (n.Store, n.Mma)))
        self._addresses.loops |= dict.fromkeys((*bound_names(body), *stored), self._loops + 1)
        super()._loop(head, body, loop, depth, path)

    @property
    def _addresses(self) -> GenericMemory:
        assert isinstance(self.memory, GenericMemory)
        return self.memory

    def _begun(self, loop: n.For, depth: int, path: StatementPath) -> list[Moving]:
        """Give addresses that move by one amount a name, before the loop; those that got one."""
        to, out = self.open, []
        for each in moving(loop):
            if each.at in self._addresses.carried:
                continue
            name = f"{to.names[each.at.buffer.name]}_at"
            while name in to.names.values() or name in self._carried_names:
                name += "_"
            self._carried_names.add(name)
            self.put(f"{name} = {self._addresses.plus(to, each.at.buffer, each.start)}", depth, path)
            self._addresses.carried[each.at] = name
            out.append(each)
        return out

    def _product(self, start: n.Expr, s: n.Mma, depth: int, path: StatementPath) -> None:
        """`c = tl.dot(a, b)`, or with the accumulator that it starts from."""
        to = self.open
        acc = "" if _is_zero(start) else f", acc={to.filled(start, s.acc.type)}"
        self.put(f"{to.names[s.acc.buffer.name]} = {self._dotted(s, acc)}", depth, path)

    def _dot(self, s: n.Mma) -> str:
        name = self.expressions.names[s.acc.buffer.name]
        return f"{name} = {self._dotted(s, f', acc={name}')}"

    def _dotted(self, s: n.Mma, acc: str) -> str:
        to, dtype = self.open, dtype_of(s.a.type)
        if s.pending or s.via not in ("auto", "fma") or s.attrs:
            raise refuse("KIR-B002", "Triton code cannot choose the matrix instruction")
        precision = ""
        if dtype.is_symbolic or dtype.name == "f32":
            meta = s.precision.removeprefix("%")
            kind = to.kinds.get(meta) if s.precision not in PRECISIONS else None
            precision = f", input_precision={meta}" if kind in ("str", "any") else (
                f", allow_tf32={meta}" if kind else f', input_precision="{s.precision}"')
        own = s.acc.buffer.dtype
        plain = own.is_symbolic or own == F32 if acc else own == accumulated(dtype)  # an accumulator that is given must be of the result's dtype
        out = "" if plain else f", out_dtype={to.dtype(own)}"
        return f"tl.dot({to.text(s.a)}, {to.text(s.b)}{acc}{precision}{out})"


def _narrow(e: n.Expr) -> n.Expr:
    """An i32 value that was widened to i64, unconverted; literals and metas as they are."""
    if isinstance(e, n.Cast) and e.dtype == I64 and e.rounding == "rn" and dtype_of(e.x.type) == I32 and not isinstance(e.x, n.Const):
        return e.x
    return e


def _boxed(at: n.Region) -> bool:
    """Whether a place is a box of a tensor descriptor that the kernel was given."""
    return at.buffer.space == "global" and is_descriptor(at.buffer) and bool(at.index) and all(isinstance(i, n.Span) for i in at.index)


def _made(to: GenericExpressions, at: n.Region, found: Box) -> str:
    """A descriptor made where it is used."""
    base = to.names[at.buffer.name] + (f" + {to.text(found.base, SUM + 1)}" if found.base is not None else "")
    return f"tl.make_tensor_descriptor({base}, [{_all(to, found.shape)}], [{_all(to, found.strides)}], [{_all(to, found.block)}])"


def _all(to: GenericExpressions, items: tuple[n.Expr, ...]) -> str:
    return ", ".join(to.text(x) for x in items)


def _call(to: GenericExpressions, at: n.Region) -> str:
    return to.names[at.buffer.name]


def _corner(to: GenericExpressions, at: n.Region) -> str:
    return ", ".join(to.text(i.lo) for i in at.index if isinstance(i, n.Span))


def _start_of(s: n.Stmt, following: n.Stmt | None) -> n.Expr | None:
    """What the product that follows starts from, where the statement gives its accumulator just that."""
    match s, following:
        case n.Alloc(init=n.Expr() as init), n.Mma() if following.acc == n.Region(s.buffer):
            return init
        case n.Store(mask=None), n.Mma() if following.acc == s.at and s.at.buffer.space != "global" and not any(
                isinstance(x, n.Buffer) and x.name == s.at.buffer.name for e in (s.value, following.a, following.b) for x in walk(e)):
            return s.value
        case _:
            return None


def _one_armed(block: n.Block) -> set[str]:
    """Private buffers without a first value that a static branch of the block fills in one arm only."""
    declared = {s.buffer.name for s in block if isinstance(s, n.Alloc) and s.init is None}
    out = set()
    for i, s in enumerate(block):
        if isinstance(s, n.If) and s.static:
            arms = [{x.at.buffer.name for x in arm if isinstance(x, n.Store)} for arm in (s.then, s.orelse)]
            for which in (0, 1):
                out |= {x for x in (arms[which] - arms[1 - which]) & declared if _only_under(x, s.cond, which, block[i + 1:])}
    return out


def _only_under(name: str, cond: n.Expr, which: int, rest: n.Block) -> bool:
    """Whether statements mention a name in one arm of branches on a condition only."""
    def mentioned(nodes: tuple[n.Node, ...]) -> bool:
        return any(name in buffers_named(s) for s in nodes)
    def base(e: n.Expr) -> tuple[n.Expr, bool]:
        return (e.x, True) if isinstance(e, n.Unary) and e.op == "not" else (e, False)
    asked, turned = base(cond)
    for s in rest:
        if isinstance(s, n.If) and s.static and base(s.cond)[0] == asked:
            same = which if base(s.cond)[1] == turned else 1 - which
            if mentioned((s.orelse, s.then)[same]):
                return False
        elif isinstance(s, n.For) and not mentioned((s.lo, s.hi, s.step)):
            if not _only_under(name, cond, which, s.body):
                return False
        elif isinstance(s, n.If) and not mentioned((s.cond,)):
            if not (_only_under(name, cond, which, s.then) and _only_under(name, cond, which, s.orelse)):
                return False
        elif mentioned((s,)):
            return False
    return True


def _is_zero(e: n.Expr) -> bool:
    match e:
        case n.Call(fn="broadcast", args=(n.Expr() as x, *_)) | n.Cast(x=x):
            return _is_zero(x)
        case n.Const():
            return not e.value
        case _:
            return False
