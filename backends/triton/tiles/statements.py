"""Statements of the tile dialect as the body of a Triton function, each line with the statement that it came from."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, replace

from kir.analysis.facts import Facts
from kir.base.dataclass import dataclass
from kir.base.diagnostic import Diagnostic, KirError
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.types import F32, TileType, dtype_of
from kir.ir.visit import buffers_named, names_read, walk
from kir.surface import StatementPath

from ..._wrap import wrapped
from .expressions import Expressions, refuse, tile_shape
from .memory import Memory

PRECISIONS = frozenset({"ieee", "tf32", "tf32x3", "bf16x3"})
LEAST_DOT = 16
"""The least extent of each axis of a dot product: smaller ones Triton pads or refuses."""
Line = tuple[str, StatementPath | None]


def mma_loops(block: n.Block) -> Iterator[n.For]:
    """The loops whose own body (not that of a loop inside) holds an mma: those that the launch option num_stages pipelines."""
    for s in block:
        for inner in _inner_blocks(s):
            yield from mma_loops(inner)
        if isinstance(s, n.For) and any(isinstance(x, n.Mma) for x in _own(s.body)):
            yield s


def _inner_blocks(s: n.Stmt) -> tuple[n.Block, ...]:
    match s:
        case n.For() | n.While():
            return (s.body,)
        case n.If():
            return s.then, s.orelse
        case _:
            return ()


def _own(block: n.Block) -> Iterator[n.Stmt]:
    """The statements of a block and of its branches, without those of loops inside."""
    for s in block:
        yield s
        if isinstance(s, n.If):
            yield from _own(s.then)
            yield from _own(s.orelse)


def stages_of(loop: n.For) -> int:
    """How many stages a loop is pipelined in; 1 for a loop that is not."""
    return int(dict(loop.attrs).get("stages", 1)) if loop.kind == "pipelined" else 1


def common_stages(k: n.Kernel) -> int:
    """The stages that all mma loops of a kernel agree on (the launch option), else 1."""
    found = {stages_of(loop) for loop in mma_loops(k.body)}
    return found.pop() if len(found) == 1 else 1


def _stored(block: n.Block) -> list[n.Region]:
    """Places in global memory that a block writes."""
    out = []
    for s in block:
        for x in walk(s):
            match x:
                case n.Store() if x.at.buffer.space == "global":
                    out.append(x.at)
                case n.Copy() if x.dst.buffer.space == "global":
                    out.append(x.dst)
                case n.Call() if x.fn.startswith("atomic_") and isinstance(x.args[0], n.Region):
                    out.append(x.args[0])
                case _:
                    pass
    return out


def _is_barrier(s: n.Stmt) -> bool:
    return isinstance(s, n.Eval) and s.call.fn == "barrier"


def _left(block: n.Block) -> list[n.Region]:
    """Places in global memory that a block writes after the last barrier of its own."""
    out: list[n.Region] = []
    for s in block:
        inner = _inner_blocks(s)
        if _is_barrier(s):
            out = []
        else:
            out += [w for b in inner for w in _left(b)] if inner else _stored((s,))
    return out


def _read(s: n.Stmt) -> list[n.Region]:
    """Places in global memory that a statement itself reads (not those inside it)."""
    match s:
        case n.For():
            heads: tuple[n.Node, ...] = (s.lo, s.hi, s.step)
        case n.If() | n.While():
            heads = (s.cond,)
        case _:
            heads = (s,)
    return [x.at for head in heads for x in walk(head) if isinstance(x, n.Load) and x.at.buffer.space == "global"]


@dataclass
class Statements:
    """Writes blocks. `stages` is the launch option num_stages of the kernel; refusals are collected, so that one run finds them all."""

    expressions: Expressions
    memory: Memory
    stages: int
    in_function: bool = False
    lines: list[Line] = field(default_factory=list)
    refusals: list[Diagnostic] = field(default_factory=list)
    refused: list[StatementPath] = field(default_factory=list)
    workspaces: frozenset[str] = frozenset()
    """Global memory through which threads of a CTA may give each other values: what is written there waits for those that still read."""
    _unsettled: list[n.Region] = field(default_factory=list)
    _taken: list[n.Region] = field(default_factory=list)
    _loops: int = 0
    _carried: dict[str, n.Alloc] = field(default_factory=dict)

    @property
    def facts(self) -> Facts:
        return self.expressions.facts

    def put(self, text: str, depth: int, path: StatementPath | None) -> None:
        """One line of code, broken where it is long: where it may hold marks, later."""
        line = "    " * depth + text
        self.lines.extend((x, path) for x in (wrapped(line) if self.memory.marks is None else [line]))

    def block(self, block: n.Block, path: StatementPath, depth: int) -> None:
        """A block, whose statements are at (*path, 0), (*path, 1), .."""
        before, facts = len(self.lines), self.facts
        held = self._held(block)
        for i, s in enumerate(block):
            here = (*path, i)
            try:
                self._settle(s, depth, here)
                if not (isinstance(s, n.Alloc) and s.buffer.name in held):
                    self._statement(s, here, depth)
            except KirError as refused:
                self.refused.append(here)
                self.refusals += [replace(d, anchor=_anchor(here, s), origin=s.origin) for d in refused.diagnostics]
            if isinstance(s, n.Let):
                self.expressions.facts = self.facts.after((s,))
        if len(self.lines) == before:
            self.put("pass", depth, None)
        self.expressions.facts = facts

    def _held(self, block: n.Block) -> set[str]:
        """Fragments that only carry a tile to or from a descriptor: those that a copy in the block fills before anything else touches
        them, and those declared just before the one copy that writes their value out (which goes into the call)."""
        out: set[str] = set()
        for i, s in enumerate(block):
            if not isinstance(s, n.Alloc) or s.buffer.space != "fragment" or s.buffer.layout is not None:
                continue
            name = s.buffer.name
            users = [x for x in block[i + 1:] if name in buffers_named(x)]
            first = users[0] if users else None
            if not isinstance(first, n.Copy) or first.via != "tma":
                continue
            if s.init is None and first.dst == n.Region(s.buffer):
                out.add(name)
            elif s.init is not None and users == [first] and block[i + 1] is first and first.src == n.Load(n.Region(s.buffer)):
                out.add(name)
                self._carried[name] = s
        return out

    def _settle(self, s: n.Stmt, depth: int, path: StatementPath) -> None:
        """Triton orders the accesses of different threads only at barriers: put one where a read may meet an earlier write."""
        if _is_barrier(s):
            self._unsettled.clear()
            self._taken.clear()
        reads = _read(s)
        meets = any(w.buffer.name == r.buffer.name for r in reads for w in self._unsettled) or any(
            w.buffer == r.buffer and w != r for w in _stored((s,)) for r in self._taken if r.buffer.name in self.workspaces)
        if not self.in_function and meets:
            self.put("tl.debug_barrier()", depth, path)
            self._unsettled.clear()
            self._taken.clear()
        self._taken += reads
        if not isinstance(s, (n.For, n.If, n.While)):
            self._unsettled += _stored((s,))

    # ------------------------------------------------------------------------------------------------------------- statements
    def _statement(self, s: n.Stmt, path: StatementPath, depth: int) -> None:
        to = self.expressions
        match s:
            case n.Let():
                value = to.assigned(s.value) if len(s.names) == 1 else to.text(s.value)
                self.put(f"{', '.join(to.names[x] for x in s.names)} = {value}", depth, path)
            case n.Alloc():
                self._alloc(s, depth, path)
            case n.View() if not s.axes and not s.at.index and s.at.buffer.dtype == s.buffer.dtype and s.at.buffer.layout is None:
                self.memory.flat[s.buffer.name] = s.at.buffer.name
            case n.View():
                self.memory.views[s.buffer.name] = s
            case n.Store():
                self._store(s, depth, path)
            case n.Copy():
                self._copy(s, depth, path)
            case n.Mma():
                self.put(self._dot(s), depth, path)
            case n.Eval():
                self.put(to.text(s.call), depth, path)
            case n.For():
                self._for(s, depth, path)
            case n.If():
                self._if(s, depth, path)
            case n.While():
                self._loop(f"while {to.text(s.cond)}:", s.body, None, depth, path)
            case n.Jump():
                self._jump(s, depth, path)
            case n.Opaque() if s.surface == "triton":
                for line in s.text.splitlines():
                    self.lines.append(("    " * depth + line, path))
            case n.Opaque():
                raise refuse("KIR-B002", f"this is {s.surface} source text that KIR does not understand: {s.reason}")
            case n.Hole():
                raise refuse("KIR-B002", f"the hole '{s.name}' is not filled")
            case _:
                raise refuse("KIR-B002", "Triton programs have no roles: all warps run the same statements", needs="one role")

    def _alloc(self, s: n.Alloc, depth: int, path: StatementPath) -> None:
        b, to = s.buffer, self.expressions
        if b.space not in ("fragment", "register") or (b.layout is not None and b.layout.name != "auto"):
            kind = f"a layout on {b.space} memory" if b.space in ("fragment", "register") else f"{b.space} memory of its own"
            raise refuse("KIR-B002", f"'{b.name}' needs {kind}, which the Triton compiler hands out itself",
                         needs="fragments without layouts; the inverse of the pass that staged it")
        of = n.Region(b).type
        self.expressions.extents(of)
        if s.init is not None:
            self.put(f"{to.names[b.name]} = {to.filled(s.init, of)}", depth, path)
        else:  # a variable that Python first sees inside a loop or branch would end with it
            zero = n.Const(0.0, b.dtype) if b.dtype.is_float else n.Const(False, b.dtype) if b.dtype.is_bool else n.Const(0, b.dtype)
            self.put(f"{to.names[b.name]} = {to.filled(zero, of)}", depth, path)

    def _store(self, s: n.Store, depth: int, path: StatementPath) -> None:
        to, b = self.expressions, s.at.buffer
        if b.space in ("fragment", "register"):
            if s.at.index:
                raise refuse("KIR-B006", f"a part of '{b.name}' is written: Triton writes a tile as a whole")
            value = to.filled(s.value, s.at.type)
            if s.mask is not None:
                value = f"tl.where({to.text(s.mask)}, {value}, {to.names[b.name]})"
            self.put(f"{to.names[b.name]} = {value}", depth, path)
            return
        value = to.text(s.value)
        self.put(self.memory.store_text(to, s.at, value, s.mask, s.clip, s.cache), depth, path)

    def _copy(self, s: n.Copy, depth: int, path: StatementPath) -> None:
        to, dst, src = self.expressions, s.dst.buffer, s.src.at.buffer
        if s.signal is not None or s.grouped or s.attrs:
            raise refuse("KIR-B002", "Triton code cannot wait for a copy of its own: its compiler makes copies asynchronous")
        if s.via not in ("plain", "tma"):
            raise refuse("KIR-B002", f"Triton code cannot choose how a copy is made (via {s.via})", needs="a plain copy, or one via tma")
        if s.via == "plain":
            if dst.space in ("fragment", "register"):
                self._store(n.Store(s.dst, s.src, s.mask), depth, path)
            else:
                self._store(n.Store(s.dst, s.src, s.mask, s.clip), depth, path)
            return
        if s.mask is not None or s.src.mask is not None:
            raise refuse("KIR-B002", "a copy via tma has no mask but the edges of the tensor")
        if src.space == "global" and dst.space == "fragment" and not s.dst.index:
            if s.src.clip and s.src.other is not None and not (isinstance(s.src.other, n.Const) and not s.src.other.value):
                raise refuse("KIR-B002", "tensor descriptors fill with zero outside the tensor", needs="else 0")
            name, corner = self.memory.box(to, s.src.at)
            shaped = f".reshape({', '.join(map(str, tile_shape(s.src.type)))})" if self.memory.box_shape(s.src.at) else ""
            self.put(f"{to.names[dst.name]} = {name}.load({corner}){shaped}", depth, path)
        elif dst.space == "global" and src.space == "fragment" and not s.src.at.index:
            name, corner = self.memory.box(to, s.dst)
            carried = self._carried.get(src.name)
            value = to.names[src.name] if carried is None or carried.init is None else to.filled(carried.init, s.src.type)
            box = self.memory.box_shape(s.dst)
            value = value if not box or value.isidentifier() else f"({value})"
            self.put(f"{name}.store({corner}, {value}{f'.reshape({box})' if box else ''})", depth, path)
        else:
            raise refuse("KIR-B002", f"Triton has no copy via tma from {src.space} to {dst.space} memory")

    def _dot(self, s: n.Mma) -> str:
        """`acc = tl.dot(a, b, acc)`. Ranks 2 and 3; f32 operands name their precision, for narrower ones it means nothing."""
        to, acc = self.expressions, s.acc.buffer
        if s.pending or s.via not in ("auto", "fma") or s.attrs:
            raise refuse("KIR-B002", f"Triton code cannot choose the matrix instruction ({'pending' if s.pending else s.via})",
                         needs="via auto")
        if acc.space not in ("fragment", "register") or s.acc.index:
            raise refuse("KIR-B006", f"the accumulator '{acc.name}' is no whole fragment")
        a, b = tile_shape(s.a.type), tile_shape(s.b.type)
        if min(a[-2], a[-1], b[-1]) < LEAST_DOT:
            raise refuse("KIR-B003", f"tl.dot of [{a[-2]}, {a[-1]}] and [{b[-2]}, {b[-1]}]: each axis must be at least {LEAST_DOT}")
        if s.precision not in PRECISIONS:
            raise refuse("KIR-B008", f"tl.dot has no precision '{s.precision}'")
        dtype = dtype_of(s.a.type)
        left, right = (self._scalar_operand(x) if s.via == "fma" else to.text(x) for x in (s.a, s.b))
        if s.via == "fma":
            dtype = F32
        precision = f', input_precision="{s.precision}"' if dtype == F32 else ""
        name = to.names[acc.name]
        return f"{name} = tl.dot({left}, {right}, {name}{precision}{'' if acc.dtype == F32 else f', out_dtype={self._out(acc)}'})"

    def _scalar_operand(self, e: n.Expr) -> str:
        """An operand of a product on the scalar units, which Triton forms of f32 tiles."""
        text, dtype = self.expressions.text(e), dtype_of(e.type)
        if dtype.name not in ("f16", "bf16", "f32"):
            raise refuse("KIR-B008", f"Triton multiplies tiles of {dtype} on tensor cores", needs="operands cast to f32")
        return text if dtype == F32 else f"({text}).to(tl.float32)"

    def _out(self, acc: n.Buffer) -> str:
        return "tl." + {"f16": "float16", "i32": "int32", "f64": "float64"}.get(acc.dtype.name, "float32")

    # ---------------------------------------------------------------------------------------------------------------- control
    def _for(self, s: n.For, depth: int, path: StatementPath) -> None:
        to, attrs = self.expressions, dict(s.attrs)
        lo, hi, step = to.text(s.lo), to.text(s.hi), to.text(s.step)
        bounds = hi if lo == "0" and step == "1" else f"{lo}, {hi}" if step == "1" else f"{lo}, {hi}, {step}"
        own_mma = any(isinstance(x, n.Mma) for x in _own(s.body))
        options = ""
        match s.kind:
            case "serial" | "pipelined":
                known = {"stages", "disallow_acc_multi_buffer", "flatten", "warp_specialize"}
                stages = stages_of(s)
                if (own_mma and stages != self.stages) or (not own_mma and s.kind == "pipelined"):
                    options += f", num_stages={stages}"
            case "unroll" if "factor" in attrs:
                known = {"factor"}
                options += f", loop_unroll_factor={attrs['factor']}"
            case "unroll" | "static":
                known = set()
                if any(int_value(x) is None for x in (s.lo, s.hi, s.step)):
                    raise refuse("KIR-B002", "tl.static_range needs bounds known at compile time", needs="an unroll factor")
                to.unrolled.add(s.var.name)
                self._loop(f"for {to.names[s.var.name]} in tl.static_range({bounds}):", s.body, s, depth, path)
                return
            case "vectorize":
                raise refuse("KIR-B002", "Triton has no vectorized loop: a tile is its vector")
            case _:
                raise refuse("KIR-B002", f"Triton code cannot name a {s.kind}: it is written for the CTA as a whole",
                             needs="tile statements; the inverse of the pass that split the CTA")
        for flag in ("disallow_acc_multi_buffer", "flatten", "warp_specialize"):
            if flag in attrs:
                options += f", {flag}={attrs[flag]}"
        if unknown := sorted(set(attrs) - known):
            raise refuse("KIR-B002", f"a Triton loop has no option '{unknown[0]}'")
        head = f"tl.range({bounds}{options})" if options else f"range({bounds})"
        self._loop(f"for {to.names[s.var.name]} in {head}:", s.body, s, depth, path)

    def _loop(self, head: str, body: n.Block, loop: n.For | None, depth: int, path: StatementPath) -> None:
        facts = self.facts
        self.put(head, depth, path)
        if loop is not None:
            self.expressions.facts = facts.ranging(loop.var, loop.lo, loop.hi, loop.step)
        if not self.in_function:
            self._unsettled += [w for w in _left(body) if not (loop is not None and self._own_place(w, body, loop))]
        self._loops += 1
        self.block(body, (*path, "body"), depth + 1)
        self._loops -= 1
        self.expressions.facts = facts

    def _own_place(self, written: n.Region, body: n.Block, loop: n.For) -> bool:
        """Whether each iteration reads of a buffer only the very place that it writes, and that place moves with the loop."""
        reads = [r for s in body for x in walk(s) if isinstance(x, n.Load) for r in (x.at,) if r.buffer.name == written.buffer.name]
        return all(r == written for r in reads) and loop.var.name in names_read(written)

    def _if(self, s: n.If, depth: int, path: StatementPath) -> None:
        if isinstance(s.cond.type, TileType):
            raise refuse("KIR-B002", "a branch needs a scalar condition", needs="select")
        facts, unsettled = self.facts, list(self._unsettled)
        self.put(f"if {self.expressions.text(s.cond)}:", depth, path)
        self.expressions.facts = facts.knowing(s.cond)
        self.block(s.then, (*path, "then"), depth + 1)
        self.expressions.facts = facts
        if s.orelse:
            after = self._unsettled
            self._unsettled = unsettled
            self.put("else:", depth, path)
            self.block(s.orelse, (*path, "orelse"), depth + 1)
            self._unsettled = [*after, *(w for w in self._unsettled if w not in after)]

    def _jump(self, s: n.Jump, depth: int, path: StatementPath) -> None:
        if s.kind != "return":
            raise refuse("KIR-B002", f"Triton has no '{s.kind}'",
                         needs="a condition in the loop's head, or a branch around the rest of its body")
        if self._loops:
            raise refuse("KIR-B002", "Triton cannot return from inside a loop")
        self.put("return" + (" " + ", ".join(map(self.expressions.tensor, s.values)) if s.values else ""), depth, path)


def _anchor(path: StatementPath, s: n.Stmt) -> str:
    """A statement's place in words: labels where there are some, else structural indices."""
    return "/".join(map(str, path[:-1] if s.label else path)) + (f"/{s.label}" if s.label else "")

