"""Statements as the body of a prim_func, each line with the statement that it came from."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace

from kir.analysis.facts import Facts
from kir.analysis.order import at_most
from kir.base.dataclass import dataclass
from kir.base.diagnostic import Diagnostic, KirError
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import int_value, is_const, region
from kir.ir.types import I32, TileType
from kir.ir.visit import blocks_of, divides, names_read, statements, walk
from kir.surface import StatementPath

from ..._wrap import wrapped
from ..form.origins import At
from ..form.reducers import adds, fills, is_named_sum, reads
from ..spelling.cuda_functions import begin, is_moved, moving
from ..spelling.expressions import AXIS, UNARY, Expressions, refuse
from ..spelling.layouts import annotation
from ..spelling.names import fresh
from .element_loops import together
from .pixels import Pixels, as_pixels
from .tiles import AXES, Tiles, is_wiped

Line = tuple[str, StatementPath | None]
WARP = 32
GROUP = 4
"""Warps of a warpgroup."""
_POINTLESS = frozenset({"fence_mbar_init"})
"""What TileLang's compiler puts in by itself."""


@dataclass
class Statements:
    """Writes blocks. Refusals are collected, so that one run finds them all."""

    to: Expressions
    tiles: Tiles
    lines: list[Line] = field(default_factory=list)
    refusals: list[Diagnostic] = field(default_factory=list)
    refused: list[StatementPath] = field(default_factory=list)
    layouts: list[str] = field(default_factory=list)
    uses_layout: bool = False
    in_thread: bool = False
    team: n.Expr = field(default_factory=lambda: build.const(0))
    """The threads of a CTA."""
    launched: int = 0
    """Registers of each thread at launch; 0 where that is not known."""
    warps: int | None = None
    """The first warp of the role that is written."""
    sums: dict[str, str] = field(default_factory=dict)
    """Fragments that loops over more axes add to, with the reduction."""
    distributed: frozenset[str] = frozenset()
    """Arrays of the team that tiles are stored to: `T.Parallel` writes to fragments alone."""
    begun: dict[str, n.Block] = field(default_factory=dict)
    """Of each sum that is not whole yet, the block that begins it."""
    known: Facts = field(default_factory=lambda: Facts.from_program(n.Program("p")))
    """What is known of integers in the kernel."""
    sizes: frozenset[str] = frozenset()
    """Names of numbers that a launch has one value of."""
    chosen: list[str] = field(default_factory=list)
    """Names of the variables that say whether branches are taken."""
    shown: dict[str, Pixels] = field(default_factory=dict)
    """Views of pixels by taps and channels, which only copies name."""
    waiting: dict[str, n.Buffer] = field(default_factory=dict)
    """Barriers that are declared before the branch that begins them."""
    around: list[n.Block] = field(default_factory=list)
    """The blocks that are being written, innermost last."""

    def put(self, text: str, depth: int, path: StatementPath | None) -> None:
        """One line of code, broken where it is long."""
        self.lines.extend((line, path) for line in wrapped("    " * depth + text))

    def block(self, block: n.Block, path: StatementPath, depth: int) -> None:
        """A block of the statement at `path`."""
        before = len(self.lines)
        self.around.append(block)
        rest = list(block)
        while rest:
            s = rest[0]
            here = s.origin.path if isinstance(s.origin, At) else path
            taken = 0
            try:
                self._finalized(s, block, here, depth)
                taken = self._together(rest, here, depth)
                if not taken:
                    self._statement(s, here, depth)
            except KirError as refused:
                self.refused.append(here)
                source = s.origin.origin if isinstance(s.origin, At) else s.origin
                self.refusals += [replace(d, anchor=_anchor(here, s), origin=source) for d in refused.diagnostics]
            del rest[:max(taken, 1)]
        self.around.pop()
        self.begun = {name: self.around[-1] if home is block and self.around else home for name, home in self.begun.items()}
        if len(self.lines) == before:
            self.put("pass", depth, None)

    def _finalized(self, s: n.Stmt, block: n.Block, path: StatementPath, depth: int) -> None:
        """Joins the copies of sums before the statement that reads them. Raises KirError KIR-B306 for one that reads what it adds to."""
        for name in [x for x in self.sums if fills(s, x)]:
            self.begun[name] = block
        for name in [x for x, home in self.begun.items() if home is block and reads(s, x)]:
            if any(fills(x, name) for b in blocks_of(s) for x in statements(b)):
                continue  # begun anew inside
            if adds(s, name):
                raise refuse("KIR-B306", f"the sum '{name}' is read in the loop that adds to it", "the read after it")
            self.put(f"T.finalize_reducer({self.to.names[name]})", depth, path)
            del self.begun[name]

    def _together(self, rest: list[n.Stmt], path: StatementPath, depth: int) -> int:
        """Statements that one of TileLang's says: how many of the first ones were written, 0 for none."""
        s, after = rest[0], rest[1] if len(rest) > 1 else None
        match s, after:
            case n.Copy(via="cp_async", grouped=True, signal=None) as moved, n.Eval(call=n.Call(fn="async_commit")) if not self.in_thread:
                self.put(self.tiles.moved("T.async_copy", moved), depth, path)
                return 2
            case n.Copy(via="tma", grouped=True, signal=None) as moved, n.Eval(call=n.Call(fn="bulk_commit")):
                self.put(self.tiles.moved("T.tma_copy", moved), depth, path)
                return 2
            case n.Eval(call=n.Call(fn="mbar_expect") as call), n.Copy(via="tma", grouped=False) as moved if moved.signal == call.args[0]:
                assert moved.signal is not None
                of = self.shown.get(moved.src.at.buffer.name)
                said = self.tiles.moved("T.tma_copy", moved, f", barrier={self.to.place(moved.signal)}") if of is None else self.tiles.pixels(moved, of)
                self.put(said, depth, path)
                return 2
            case n.Eval(call=n.Call(fn="wgmma_fence")), n.Mma(via="wgmma", pending=True) as product if len(rest) > 2 and isinstance(
                    rest[2], n.Eval) and rest[2].call.fn == "wgmma_commit":
                self.put(self.tiles.product(product, "wgmma"), depth, path)
                return 3
            case n.Store() as wiped, n.Eval(call=n.Call(fn="wgmma_fence")) if len(rest) > 3 and is_wiped(wiped, rest[2]) and isinstance(
                    rest[3], n.Eval) and rest[3].call.fn == "wgmma_commit":
                assert isinstance(rest[2], n.Mma)
                self.put(self.tiles.product(rest[2], "wgmma", clear=True), depth, path)
                return 4
            case n.Alloc(init=None) as made, _ if made.buffer.dtype.name == "mbarrier":
                counted = self._barriers(made.buffer, rest[1:], path, depth)
                if not counted and _begun_in_branch(made.buffer.name, rest[1:]):
                    self.waiting[made.buffer.name] = made.buffer
                    return 1
                return 1 + counted if counted else 0
            case n.Eval(call=n.Call(fn="mbar_init", args=(n.Region(buffer=b), *_))), _ if b.name in self.waiting:
                return self._barriers(self.waiting.pop(b.name), rest, path, depth)
            case n.Let(names=(_,)) as named, _ if isinstance(named.value.type, TileType) or is_named_sum(named):
                return self._named(rest, path, depth)
            case n.Eval(call=n.Call(fn="assume" | "assertion", args=(n.Expr() as cond,))), _ if isinstance(cond.type, TileType):
                return self._named(rest, path, depth)
            case n.Alloc(init=n.Expr() as first) as made, _ if made.buffer.space == "fragment" and isinstance(uniform(first).type, TileType):
                return self._named(rest, path, depth)
            case _:
                return 0

    def _barriers(self, b: n.Buffer, rest: list[n.Stmt], path: StatementPath, depth: int) -> int:
        """`T.alloc_barrier` with the number of arrivals of each, which the next statements say: how many of those were written, 0 for none."""
        after = rest[0] if rest else None
        if isinstance(after, n.For) and len(b.shape) == 1 and after.hi == b.shape[0] and len(after.body) == 1:
            inner = after.body[0]
            if isinstance(inner, n.Eval) and inner.call.fn == "mbar_init" and inner.call.args[0] == region(b, after.var):
                each = inner.call.args[1]
                if isinstance(each, n.Expr) and after.var.name not in names_read(each):
                    counts = f"[{self.to.text(each)}] * {self.to.text(b.shape[0], UNARY)}"
                    self.put(f"{self.to.names[b.name]} = T.alloc_barrier({counts})", depth, path)
                    return 1
        count = int_value(b.shape[0]) if len(b.shape) == 1 else None
        arrivals = []
        for i, s in enumerate(rest[:count or 0]):
            if isinstance(s, n.Eval) and s.call.fn == "mbar_init" and s.call.args[0] == region(b, i) and isinstance(s.call.args[1], n.Expr):
                arrivals.append(self.to.text(s.call.args[1]))
        if count is None or len(arrivals) != count:
            return 0
        alike = f"[{arrivals[0]}] * {count}" if len(set(arrivals)) == 1 else f"[{', '.join(arrivals)}]"
        shown = arrivals[0] if count == 1 else alike
        self.put(f"{self.to.names[b.name]} = T.alloc_barrier({shown})", depth, path)
        return count

    def _named(self, rest: list[n.Stmt], path: StatementPath, depth: int) -> int:
        """Tiles that have a name, with the statements that use them, as one loop over their elements."""
        def axes() -> Callable[[int], n.Var]:
            used = {*self.to.names.values(), *self.tiles.taken}

            def axis(k: int) -> n.Var:
                name = fresh(AXES[k] if k < len(AXES) else f"i{k}", used)
                used.add(name)
                return n.Var(f"{AXIS}{name}", I32)
            return axis
        aliases = self.tiles.aliases
        loops = together(rest, axes, lambda a, b: a == b or aliases is None or aliases.may_be_one(a, b))
        for found in loops:
            self.tiles.fits([d for _, d in found.axes], "what is worked out element by element")
            before = self.to.names
            with self.tiles.loop(found.axes, found.body) as (head, body):
                self.put(head, depth, path)
                self.block(body, path, depth + 1)
            self.to.names = before
        return loops[0].count if loops else 0

    def _statement(self, s: n.Stmt, path: StatementPath, depth: int) -> None:
        to = self.to
        match s:
            case n.Let():
                if len(s.names) != 1:
                    raise refuse("KIR-B002", "TileLang gives one value a name at a time")
                if self.warps is not None and not self.in_thread and s.value.type == I32 and divides(s.value):  # else it stands wherever the name is read
                    self.put(f'{to.names[s.names[0]]} = T.alloc_var("int32", init=0)', depth, path)
                self.put(f"{to.names[s.names[0]]} = {self._value(s.value)}", depth, path)
            case n.Alloc():
                self._alloc(s, path, depth)
            case n.View():
                self._view(s, path, depth)
            case n.Store():
                for text, deeper in self.tiles.store(s):
                    self.put(text, depth + deeper, path)
            case n.Copy(via="cp_async", grouped=True, signal=None) if self.in_thread:
                self.put(self._own_copy(s), depth, path)
            case n.Copy() if self.in_thread and is_moved(s):
                to_, from_ = (to.place(begin(at)) for at in (s.dst, s.src.at))
                self.put(f'T.call_extern("handle", "{moving(s)}", T.address_of({to_}), T.address_of({from_}))', depth, path)
            case n.Copy():
                self.put(self.tiles.copied(s), depth, path)
            case n.Mma():
                self.put(self.tiles.product(s), depth, path)
            case n.Eval():
                self._eval(s, path, depth)
            case n.For():
                self._for(s, path, depth)
            case n.If():
                self.put(f"if {self._asked(s, path, depth)}:", depth, path)
                self.block(s.then, path, depth + 1)
                if s.orelse:
                    self.put("else:", depth, path)
                    self.block(s.orelse, path, depth + 1)
            case n.While():
                self.put(f"while {to.text(s.cond)}:", depth, path)
                self.block(s.body, path, depth + 1)
            case n.Jump():
                self._jump(s, path, depth)
            case n.Opaque() if s.surface == "tilelang":
                for line in s.text.splitlines():
                    self.lines.append(("    " * depth + line, path))
            case n.Opaque():
                raise refuse("KIR-B002", f"this is {s.surface} source text that KIR does not understand: {s.reason}")
            case n.Hole():
                raise refuse("KIR-B002", f"the hole '{s.name}' is not filled")
            case n.Roles():
                self._roles(s, path, depth)
            case _:
                raise refuse("KIR-B002", f"TileLang has no statement of the kind {type(s).__name__}")

    def _roles(self, s: n.Roles, path: StatementPath, depth: int) -> None:
        """A branch for each range of threads, from the first warp to the last."""
        ends, whole = [r.hi for r in s.roles], self.tiles.threads
        if self.warps is not None or max(ends) * WARP > whole:
            raise refuse("KIR-B304", "roles within a role, or of warps that the CTA has not", "roles of warps of the CTA")
        all_of_it = [r.lo for r in s.roles] == [0, *ends[:-1]] and ends[-1] * WARP == whole and len(ends) > 1
        if not all_of_it and all(r.lo % GROUP == 0 and r.hi % GROUP == 0 for r in s.roles):
            self._groups(s, path, depth)
            return
        name = fresh("tx", {*self.to.names.values(), *self.tiles.taken})
        self.tiles.taken.add(name)
        self.put(f"{name} = T.get_thread_binding()", depth, path)
        runs = _together(s.roles)
        for number, run in enumerate(runs):
            if run[0].registers and not all_of_it and (run[0].lo % GROUP or (run[-1].hi % GROUP and run[-1].hi * WARP < whole)):
                raise refuse("KIR-B304", "registers of part of a warpgroup", "as many registers for all its warps")
            self.put(_head(name, number, run[-1].hi, len(runs)) if all_of_it else _of_warps(name, run[0].lo, run[-1].hi, whole), depth, path)
            if registers := run[0].registers:
                self._registers(registers, path, depth + 1)
            for k, r in enumerate(run):
                if len(run) > 1:
                    self.put(_head(name, k, r.hi, len(run)), depth + 1, path)
                self.tiles.threads, self.warps = (r.hi - r.lo) * WARP, r.lo
                try:
                    self.block(r.body, path, depth + 1 + (len(run) > 1))
                finally:
                    self.tiles.threads, self.warps = whole, None

    def _registers(self, count: int, path: StatementPath, depth: int) -> None:
        """What a role asks for: more than each thread has at launch, or less."""
        if not self.launched:
            raise refuse("KIR-B304", "registers of a role, where how many a thread has at launch is no number", "threads and options as numbers")
        self.put(f"T.set_max_nreg({count}, {int(count > self.launched)})", depth, path)

    def _groups(self, s: n.Roles, path: StatementPath, depth: int) -> None:
        """Parts of the CTA that are whole warpgroups, in whatever order: `with T.ws(..)` for each."""
        whole = self.tiles.threads
        for r in s.roles:
            self.put(f"with T.ws({', '.join(str(g) for g in range(r.lo // GROUP, r.hi // GROUP))}):", depth, path)
            if r.registers:
                self._registers(r.registers, path, depth + 1)
            self.tiles.threads, self.warps = (r.hi - r.lo) * WARP, r.lo
            try:
                self.block(r.body, path, depth + 1)
            finally:
                self.tiles.threads, self.warps = whole, None

    def _value(self, e: n.Expr) -> str:
        """What gets a name: an expression, or what an element held before an atomic operation."""
        if isinstance(e, n.Call) and e.fn == "atomic_load" and e.of is None and _at_gpu(e):
            assert isinstance(e.args[0], n.Region)
            return f'T.atomic_load({self.to.place(e.args[0])}, memory_order="{dict(e.attrs).get("order", "relaxed")}")'
        if not (isinstance(e, n.Call) and e.fn in ("atomic_add", "atomic_max", "atomic_min") and e.of is None):
            return self.to.text(e)
        at, value, *mask = e.args
        attrs = dict(e.attrs)
        order, scope = attrs.pop("order", "relaxed"), attrs.pop("scope", "gpu")
        if mask or not isinstance(at, n.Region) or not isinstance(value, n.Expr) or isinstance(at.type, TileType):
            raise refuse("KIR-B008", f"TileLang has no {e.fn} under a mask whose old value is used", "a branch around it")
        if attrs or scope != "gpu":
            raise refuse("KIR-B008", f"TileLang has no {e.fn} in the scope '{scope}'", "one of the GPU")
        self.tiles.ordered(e)
        shown = "" if order == "relaxed" else f', memory_order="{order}"'
        return f"T.{e.fn}({self.to.place(at)}, {self.to.text(value)}{shown}, return_prev=True)"

    def _own_copy(self, s: n.Copy) -> str:
        """A thread's asynchronous copy of neighbors."""
        last = s.dst.index[-1] if s.dst.index else None
        others = [i for at in (s.src.at, s.dst) for i in at.index[:-1]]
        if not isinstance(last, n.Span) or last.step != 1 or any(isinstance(i, n.Span) for i in others) or s.mask is not None or s.clip or s.attrs:
            raise refuse("KIR-B301", "a thread's asynchronous copy is of neighbors along the last dimension", "a copy of the whole team")
        count = last.extent if isinstance(last.extent, int) else self.to.text(last.extent)
        sides = []
        for at, access in ((s.dst, "w"), (s.src.at, "r")):
            first = build.region(at.buffer, *(i.lo if isinstance(i, n.Span) else i for i in at.index))
            sides.append(f'T.access_ptr({self.to.place(first)}, "{access}", {count})')
        return f"T.ptx_cp_async({', '.join(sides)}, {count}{'' if s.src.mask is None else f', {self.to.text(s.src.mask)}'})"

    # ------------------------------------------------------------------------------------------------------------------ memory
    def _alloc(self, s: n.Alloc, path: StatementPath, depth: int) -> None:
        b, to = s.buffer, self.to
        name, shape = to.names[b.name], ", ".join(to.text(d) for d in b.shape)
        shown = f"({shape}{',' if len(b.shape) == 1 else ''})"
        if b.dtype.kind == "token":
            raise refuse("KIR-B303", f"the barriers '{b.name}' are initialized in another way than T.alloc_barrier does",
                         "a number of arrivals for each, right after its declaration")
        if b.strides is not None:
            strides = ", ".join(to.text(d) for d in b.strides)
            raise refuse("KIR-B302", f"'{b.name}' has rows with gaps (strides {strides}), and TileLang hands out dense ones", "no padding, or a swizzle")
        match b.space:
            case "shared":
                self.put(f"{name} = T.alloc_shared({shown}, {to.dtype(b.dtype)})", depth, path)
            case "fragment" if b.name in self.sums:
                self.put(f'{name} = T.alloc_reducer({shown}, {to.dtype(b.dtype)}, op="{self.sums[b.name]}", replication="all")', depth, path)
            case "fragment" | "register" if b.space == "fragment" or b.name in self.distributed:
                self.tiles.fits([int_value(d) or 1 for d in b.shape], f"'{b.name}'")
                self.put(f"{name} = T.alloc_fragment({shown if b.shape else '(1,)'}, {to.dtype(b.dtype)})", depth, path)
            case "register" if not b.shape:
                init = "" if s.init is None else f", init={to.text(s.init)}"
                self.put(f"{name} = T.alloc_var({to.dtype(b.dtype)}{init})", depth, path)
                return
            case "register":
                self.put(f"{name} = T.alloc_local({shown}, {to.dtype(b.dtype)})", depth, path)
            case other:
                raise refuse("KIR-B002", f"TileLang allocates no {other} memory in a kernel")
        if b.layout is not None and b.layout.name != "auto":
            self.put(f"T.annotate_layout({{{name}: {annotation(b, name, to)}}})", depth, path)
            self.uses_layout = True
        if s.init is not None:
            first = uniform(s.init)
            if isinstance(first.type, TileType):
                raise refuse("KIR-B306", f"'{b.name}' starts with a tile that is computed", "a store after its declaration")
            text, _ = self.tiles.filled(n.Region(b), first)
            self.put(text, depth, path)

    def _view(self, s: n.View, path: StatementPath, depth: int) -> None:
        if (of := as_pixels(s)) is not None:
            self.shown[s.buffer.name] = of  # where it is read
            return
        if s.axes or s.at.index or s.fill is not None:
            raise refuse("KIR-B002", f"'{s.buffer.name}' is a view of other elements, which TileLang has not", "indices of what it views")
        to, b = self.to, s.buffer
        shape = ", ".join(to.text(d) for d in b.shape)
        shown = f"({shape}{',' if len(b.shape) == 1 else ''})"
        if b.dtype == s.at.buffer.dtype:
            self.put(f"{to.names[b.name]} = T.reshape({to.names[s.at.buffer.name]}, {shown})", depth, path)
        else:
            self.put(f"{to.names[b.name]} = T.view({to.names[s.at.buffer.name]}, {shown}, {to.dtype(b.dtype)})", depth, path)

    # ----------------------------------------------------------------------------------------------------------------- control
    def _for(self, s: n.For, path: StatementPath, depth: int) -> None:
        to, attrs = self.to, dict(s.attrs)
        lo, hi, step = to.text(s.lo), to.text(s.hi), to.text(s.step)
        bounds = hi if lo == "0" and step == "1" else f"{lo}, {hi}" if step == "1" else f"{lo}, {hi}, {step}"
        match s.kind:
            case "serial":
                known, head = set[str](), f"T.serial({bounds})"
            case "pipelined":
                known = {"stages", "order", "stage"}
                if step != "1":
                    raise refuse("KIR-B002", "T.Pipelined counts by one", "a loop in steps of one")
                lists = "".join(f", {k}=[{attrs[k]}]".replace(",", ", ").replace(",  ", ", ") for k in ("order", "stage") if k in attrs)
                stages = f", num_stages={to.option(attrs['stages'])}" if "stages" in attrs else ""
                head = f"T.Pipelined({bounds}{stages}{lists})"
            case "unroll":
                known = {"factor"}
                factor = f", unroll_factor={to.option(attrs['factor'])}" if "factor" in attrs else ""
                head = f"T.unroll({bounds}{factor})"
            case "vectorize":
                known, head = set[str](), f"T.vectorized({bounds})"
            case "static":
                known, head = set[str](), f"range({bounds})"
            case "thread":
                self._threads(s, path, depth)
                return
            case _:
                raise refuse("KIR-B304", f"a loop over {s.kind}s: TileLang has CTAs, roles and threads", "the inverse of what spread it over them")
        if extra := [k for k in attrs if k not in known]:
            raise refuse("KIR-B301", f"a loop of TileLang has no option '{extra[0]}'")
        if s.kind in ("serial", "pipelined", "unroll") and self._may_be_idle(s):
            self.put(f"if {lo} < {hi}:", depth, path)
            depth += 1
        self.put(f"for {to.names[s.var.name]} in {head}:", depth, path)
        self.block(s.body, path, depth + 1)

    def _asked(self, s: n.If, path: StatementPath, depth: int) -> str:
        """The condition of a branch. Where a role fills shared memory in it, that of a variable that says whether it is taken: TileLang 0.1.15 adds barriers
        there, and counts the threads that come to them by the condition, wrongly where that holds quotients; of a variable it knows nothing, and counts all."""
        text = self.to.text(s.cond)
        filled = (x.dst if isinstance(x, n.Copy) else x.at for x in statements((*s.then, *s.orelse)) if isinstance(x, n.Copy | n.Store))
        if s.static or self.warps is None or self.in_thread or not any(at.buffer.space == "shared" for at in filled):  # a static one is no branch of its
            return text
        name = fresh("chosen", {*self.to.names.values(), *self.tiles.taken, *self.chosen})
        self.chosen.append(name)
        self.put(f'{name} = T.alloc_var("int32", init=0)', depth, path)
        self.put(f"{name} = T.if_then_else({text}, 1, 0)", depth, path)
        return f"{name} == 1"

    def _may_be_idle(self, s: n.For) -> bool:
        """Whether a loop may run not at all, and TileLang 0.1.15 may take it for one that runs once: a quotient of what is not one number of the launch says
        how often (`T.serial((n - i) // n)`). Such a loop says itself when it runs."""
        facts = self.known
        for block in self.around:
            facts = facts.after(block)
        lo, hi = facts.expanded(s.lo), facts.expanded(s.hi)
        divided = [x for e in (lo, hi) for x in walk(e) if isinstance(x, n.Binary) and x.op in build.DIVISIONS] if is_const(s.step, 1) else [lo, hi]
        chosen = s.kind == "pipelined" and isinstance(hi, n.Select)  # which it leaves alone
        return not chosen and any(names_read(x) - self.sizes for x in divided) and not at_most(lo, hi, facts, 1)

    def _threads(self, s: n.For, path: StatementPath, depth: int) -> None:
        """Code of each thread: the thread's number has a name, and the rest follows."""
        every = lo_hi_step(s) == (0, self.tiles.threads, 1) or (is_const(s.lo, 0) and is_const(s.step, 1) and s.hi == self.team and self.warps is None)
        if self.in_thread or not every or s.attrs:
            raise refuse("KIR-B304", "a loop over some of the CTA's threads", f"one over 0..{self.tiles.threads}")
        alone = s.body[0] if len(s.body) == 1 else None
        if isinstance(alone, n.Eval) and alone.call.fn == "mbar_arrive" and s.var.name not in names_read(alone):
            self.put(f"T.barrier_arrive({self._barrier(alone.call)})", depth, path)
            return
        if isinstance(alone, n.If) and not alone.orelse and len(alone.then) == 1 and s.var.name not in names_read(alone):
            inner = alone.then[0]
            if isinstance(inner, n.Eval) and inner.call.fn == "mbar_arrive":
                self.put(f"if {self.to.text(alone.cond)}:", depth, path)
                self.put(f"T.barrier_arrive({self._barrier(inner.call)})", depth + 1, path)
                return
        self.in_thread, self.to.threads = True, 0
        try:
            first = f" - {self.warps * WARP}" if self.warps else ""
            self.put(f"{self.to.names[s.var.name]} = T.get_thread_binding(){first}", depth, path)
            self.block(s.body, path, depth)
        finally:
            self.in_thread, self.to.threads = False, self.tiles.threads

    def _jump(self, s: n.Jump, path: StatementPath, depth: int) -> None:
        if s.values:
            raise refuse("KIR-B002", "a kernel returns nothing")
        self.put("T.thread_return()" if s.kind == "return" else s.kind, depth, path)

    def _eval(self, s: n.Eval, path: StatementPath, depth: int) -> None:
        to, call = self.to, s.call
        args = [a for a in call.args if isinstance(a, n.Expr)]
        attrs = dict(call.attrs)
        match call.fn:
            case "barrier":
                self.put("T.sync_threads()", depth, path)
            case "grid_barrier":
                self.put("T.sync_grid()", depth, path)
            case "async_commit":
                self.put("T.ptx_commit_group()", depth, path)
            case "print" if len(args) <= 1 and len(attrs) == 1:
                shown = [self.tiles.region(args[0].at)] if args and isinstance(args[0], n.Load) else [to.text(a) for a in args]
                said = repr(str(attrs["format"]))
                self.put(f"T.print({', '.join([*shown, f'msg={said}' if shown else said])})", depth, path)
            case "async_wait":
                self.put(f"T.ptx_wait_group({to.text(args[0])})", depth, path)
            case "named_barrier_sync":
                self.put(f"T.sync_threads({to.text(args[0])}, {to.text(args[1])})", depth, path)
            case "named_barrier_arrive":
                self.put(f"T.named_barrier_arrive({to.text(args[0])}, {to.text(args[1])})", depth, path)
            case "mbar_wait":
                self.put(f"T.barrier_wait({self._barrier(call)}, {to.text(args[0])})", depth, path)
            case "mbar_arrive":
                self.put(f"T.barrier_arrive({self._barrier(call)})", depth, path)
            case "mbar_expect":
                self.put(f"T.mbarrier_expect_tx({self._barrier(call)}, {to.text(args[0])})", depth, path)
            case "set_registers":
                self.put(f"T.set_max_nreg({to.text(args[0])}, {int(bool(attrs.get('grow')))})", depth, path)
            case "atomic_add" | "atomic_max" | "atomic_min":
                for text, deeper in self.tiles.atomic(call):
                    self.put(text, depth + deeper, path)
            case "atomic_store" if _at_gpu(call):
                at = call.args[0]
                assert isinstance(at, n.Region)
                self.put(f'T.atomic_store({to.place(at)}, {to.text(args[0])}, memory_order="{attrs.get("order", "relaxed")}")', depth, path)
            case "fence" if attrs.get("scope") == "gpu":
                self.put('T.call_extern("handle", "__threadfence")', depth, path)
            case "fence_async":
                self.put("T.fence_proxy_async()", depth, path)
            case "bulk_wait":
                self.put(f"T.tma_store_wait({to.text(args[0])}{'' if attrs.get('read') else ', read=False'})", depth, path)
            case "register_fence":
                acc = call.args[0]
                assert isinstance(acc, n.Region)
                count = f", num_regs={to.text(args[0])}" if args else ""
                self.put(f"T.warpgroup_fence_operand({to.names[acc.buffer.name]}{count})", depth, path)
            case "wgmma_wait":
                self.put(f"T.wait_wgmma({to.text(args[0])})", depth, path)
            case "grid_dependency_wait":
                self.put("T.pdl_sync()", depth, path)
            case "grid_dependency_launch":
                self.put("T.pdl_trigger()", depth, path)
            case "prefetch":
                at = call.args[0]
                assert isinstance(at, n.Region)
                place = to.place(begin(at))
                name = f"kir_prefetch_l{attrs.get('level', 2)}"
                self.put(f'T.call_extern("int32", "{name}", T.address_of({place}))', depth, path)
            case fn if fn in _POINTLESS:
                pass
            case _:
                self.put(to.text(call), depth, path)


    def _barrier(self, call: n.Call) -> str:
        at = call.args[0]
        assert isinstance(at, n.Region)
        return self.to.place(at)


def _at_gpu(e: n.Call) -> bool:
    """Whether an access of one element is seen by all threads of the GPU, as TileLang's are."""
    return dict(e.attrs).get("scope", "gpu") == "gpu" and isinstance(e.args[0], n.Region) and not isinstance(e.args[0].type, TileType)


def _together(roles: tuple[n.Role, ...]) -> list[list[n.Role]]:
    """Roles side by side, those of one warpgroup with registers of its own together: all its warps ask for them in one instruction."""
    out: list[list[n.Role]] = []
    for r in roles:
        if r.registers and r.lo % GROUP and out and out[-1][-1].hi == r.lo:
            out[-1].append(r)
        else:
            out.append([r])
    return out


def _head(name: str, number: int, end: int, count: int) -> str:
    """How the branch of one of so many ranges of threads begins, which lie side by side and end at a warp."""
    return f"if {name} < {end * WARP}:" if number == 0 else "else:" if number == count - 1 else f"elif {name} < {end * WARP}:"


def _of_warps(name: str, lo: int, hi: int, threads: int) -> str:
    """How a branch of some warps begins, whatever others do."""
    ends = [f"{name} >= {lo * WARP}" if lo else "", f"{name} < {hi * WARP}" if hi * WARP < threads else ""]
    return f"if {' and '.join(filter(None, ends)) or f'{name} >= 0'}:"


def uniform(e: n.Expr) -> n.Expr:
    """The one value of all elements of a tile, where it is spread from one."""
    return e.args[0] if isinstance(e, n.Call) and e.fn == "broadcast" and isinstance(e.args[0], n.Expr) else e


def lo_hi_step(s: n.For) -> tuple[int | None, int | None, int | None]:
    """The numbers of a loop."""
    return int_value(s.lo), int_value(s.hi), int_value(s.step)


def _anchor(path: StatementPath, s: n.Stmt) -> str:
    """The structural path, with the label where there is one."""
    return "/".join(map(str, path)) + (f" (@{s.label})" if s.label else "")


__all__ = ["Line", "Statements"]


def _begun_in_branch(name: str, rest: Sequence[n.Stmt]) -> bool:
    """Whether the first statement that mentions a barrier is a branch of the binding, one side of which begins it before it uses it."""
    first = next((s for s in rest if _mentions(s, name)), None)
    if not isinstance(first, n.If) or not first.static:
        return False
    used = [next((s for s in block if _mentions(s, name)), None) for block in (first.then, first.orelse)]
    return any(isinstance(s, n.Eval) and s.call.fn == "mbar_init" for s in used) and all(
        s is None or (isinstance(s, n.Eval) and s.call.fn == "mbar_init") for s in used)


def _mentions(s: n.Stmt, name: str) -> bool:
    return any(isinstance(x, n.Region) and x.buffer.name == name for x in walk(s))
