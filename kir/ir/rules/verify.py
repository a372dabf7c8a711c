"""The verifier: what must hold of every program, whoever made it. Linear in the size of the program; needs no target.

Names, scopes, types, regions, teams, effects, pairing of asynchronous operations, the launch plan, and normal form. Generic programs
(`is_generic`) may hold metas, symbolic dtypes and static branches; `verify(program, specialized=True)` refuses those too.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kir.base.diagnostic import Diagnostic, KirError, did_you_mean
from kir.base.instructions import table
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.anchors import Path, child_blocks
from kir.ir.dtype_terms import PRECISIONS
from kir.ir.printer import expr_text, region_text, type_text
from kir.ir.rules.checks import Checks, Scope, Team, is_term, same_type
from kir.ir.rules.generic import generic_parts
from kir.ir.rules.kept import keep, sound_again
from kir.ir.rules.pairing import unpaired
from kir.ir.rules.program_rules import header
from kir.ir.rules.wellformed import fits, same_dims
from kir.ir.types import I32, MBARRIER, DType, TupleType, Type, UnitType, dtype_of, shape_of
from kir.ir.visit import walk

VIA_COPY = ("plain", "vector", "cp_async", "bulk", "tma", "ldmatrix", "stmatrix")
VIA_MMA = ("auto", "fma", "mma_sync", "wgmma", "tcgen05")
KINDS = ("serial", "unroll", "vectorize", "pipelined", "static", "warpgroup", "warp", "thread")
LOOP_ATTRS = frozenset({"stages", "factor", "order", "stage", "group", "coalesced_width", "disallow_acc_multi_buffer", "flatten", "warp_specialize",
                        "disable_licm"})
"""What may be said of a loop beside its kind: of pipelines and unrolling, and the options of the surfaces (`tl.range`, `T.Pipelined`)."""
TEAMS = ("thread", "warp", "warpgroup", "role", "cta")
TEAM_THREADS = {"warpgroup": 128, "warp": 32, "thread": 1}


def verify(program: n.Program, *, specialized: bool = False, paired: bool = True) -> tuple[Diagnostic, ...]:
    """Everything that is wrong with a program, in reading order, each with its anchor and (where known) its place in the source. Whether asynchronous
    operations are waited for is asked where they are to be `paired`."""
    return tuple(_Verifier(program, paired).run()) + (tuple(generic_parts(program)) if specialized else ())


def check(program: n.Program, *, specialized: bool = False, paired: bool = True) -> None:
    """Raises KirError with every finding of `verify`, if there is one."""
    found = verify(program, specialized=specialized, paired=paired)
    if found:
        raise KirError(*found)


class _Verifier(Checks):
    """The checks of every kind of statement."""

    def __init__(self, program: n.Program, paired: bool = True) -> None:
        super().__init__(program)
        self.paired = paired

    def run(self) -> Iterator[Diagnostic]:
        yield from header(self.program, self.expressions)
        values: dict[str, Type] = {m.name: n.meta_type(m) for m in self.program.metas}
        values |= {q.name: q.of for q in self.program.params if isinstance(q.of, DType)}
        buffers = {q.name: q.of for q in self.program.params if isinstance(q.of, n.Buffer)}
        buffers |= {w.buffer.name: w.buffer for w in self.program.workspaces}
        metas = {m.name for m in self.program.metas}
        outer = Scope(values, buffers, metas)
        for i, e in self.outer_expressions():
            for d in (*self.scoped(e, outer), *self.expressions.check(e)):
                yield replace(d, anchor=d.anchor or i)
        for f in self.program.functions:
            scope = Scope(values, buffers, metas)
            self.path, self.stmt = (f.name,), None
            for x in f.params:
                yield from self.define(x.name, x.of if isinstance(x, n.Var) else x, scope)
            if f.results and not (f.body and isinstance(f.body[-1], n.Jump) and f.body[-1].kind == "return"):
                yield self.located(Diagnostic("KIR-V022", f"the device function '{f.name}' does not end in a return of its results"))
            yield from self.block(f.body, (f.name,), scope, Team("function", None, False, f))
        for k in self.program.kernels:
            scope = Scope(values, buffers, metas)
            self.path, self.stmt = (k.name,), None
            for a in k.grid:
                yield from self.define(a.name, I32, scope)
            yield from self.block(k.body, (k.name,), scope, Team("cta", build.int_value(k.threads)))
            yield from self.pairing(k) if self.paired else ()

    def outer_expressions(self) -> Iterator[tuple[str, n.Expr]]:
        for k in self.program.kernels:
            yield k.name, k.threads
            for a in k.grid:
                yield k.name, a.extent
        for q in self.program.params:
            if q.value is not None:
                yield q.name, q.value
            if isinstance(q.of, n.Buffer):
                for e in (*q.of.shape, *(q.of.strides or ())):
                    yield q.name, e
        for f in self.program.facts:
            yield self.program.name, f
        for w in self.program.workspaces:
            for e in w.buffer.shape:
                yield w.buffer.name, e


    # ---------------------------------------------------------------------------------------------------------- statements
    def block(self, block: n.Block, path: Path, scope: Scope, team: Team) -> Iterator[Diagnostic]:
        values, buffers, constants = dict(scope.values), dict(scope.buffers), scope.constants
        around = None if self.functions else (*team.key, *self.settings)  # what a call is depends on device functions: nothing is kept then
        labels: set[str] = set()
        for i, s in enumerate(block):
            if s.label is not None:
                if s.label in labels:
                    self.path, self.stmt = (*path, i), s
                    yield self.fail("KIR-V019", f"the label '{s.label}' occurs twice in one block")
                labels.add(s.label)
            if around is not None and sound_again(s, scope, around):
                continue
            self.path, self.stmt = (*path, i), s
            if around is None:
                yield from self.statement(s, (*path, i), scope, team)
            else:
                known, sound = scope.constants, True
                for d in self.statement(s, (*path, i), scope, team):
                    sound = False
                    yield d
                if sound:
                    keep(s, scope, around, known)
        scope.values, scope.buffers, scope.constants = values, buffers, constants

    def statement(self, s: n.Stmt, path: Path, scope: Scope, team: Team) -> Iterator[Diagnostic]:
        match s:
            case n.Let():
                yield from self.let(s, scope, team)
            case n.Alloc():
                yield from self.alloc(s, scope, team)
            case n.View():
                yield from self.view(s, scope)
            case n.Store():
                for e in (s.at, s.value, s.mask):
                    yield from self.value(e, scope)
                yield from self.written(s.at)
                yield from self.bounded(s.at, s.clip, s.mask is not None)
                yield from self.stored(s.value.type, s.at, s.mask)
                yield from self.reads(s.value)
            case n.Copy():
                yield from self.copy(s, scope)
            case n.Mma():
                yield from self.mma(s, scope, team)
            case n.Eval():
                yield from self.value(s.call, scope, root=True)
                yield from self.called(s.call, team)
            case n.For():
                yield from self.loop(s, path, scope, team)
            case n.If() | n.While():
                yield from self.value(s.cond, scope)
                if not (isinstance(s.cond.type, DType) and s.cond.type.may_decide):
                    yield self.fail("KIR-V009", f"the condition is {type_text(s.cond.type)}", needs="one bool")
                if isinstance(s, n.If) and s.static:
                    yield from self.constant(s.cond, scope, "the condition of a static branch")
                for steps, inner in child_blocks(s):
                    yield from self.block(inner, path + steps, scope, team.inside_loop() if isinstance(s, n.While) else team)
            case n.Jump():
                yield from self.jump(s, scope, team)
            case n.Roles():
                yield from self.roles(s, path, scope, team)
            case n.Opaque():
                for name in (*s.reads, *s.writes):
                    if name != "*" and name not in scope.values and name not in scope.buffers:
                        yield self.fail("KIR-V023", f"the opaque text names '{name}', which is not defined here",
                                        attempt=did_you_mean(name, scope.names()))
            case n.Hole():
                for r in (*s.reads, *s.writes):
                    yield from self.value(r, scope)
            case _:
                yield self.fail("KIR-V024", f"there is no statement {type(s).__name__}")

    def let(self, s: n.Let, scope: Scope, team: Team) -> Iterator[Diagnostic]:
        yield from self.value(s.value, scope, root=True)
        yield from self.reads(s.value)
        for x in walk(s.value):
            if isinstance(x, n.Call):
                yield from self.called(x, team)
        kinds: tuple[Type, ...] = s.value.type.elements if isinstance(s.value.type, TupleType) else (s.value.type,)
        if any(isinstance(k, UnitType) for k in kinds):
            yield self.fail("KIR-V009", f"{expr_text(s.value)} has no value", needs="a statement of its own, without let")
        if len(kinds) != len(s.names):
            yield self.fail("KIR-V009", f"{len(s.names)} names for {len(kinds)} results")
        constant = not any(isinstance(x, (n.Load, n.Call)) or (isinstance(x, n.Var) and x.name not in scope.constants)
                           for x in walk(s.value))
        for name, kind in zip(s.names, kinds, strict=False):
            yield from self.define(name, kind, scope)
            if constant:
                scope.constants |= {name}

    def alloc(self, s: n.Alloc, scope: Scope, team: Team) -> Iterator[Diagnostic]:
        b = s.buffer
        yield from self.buffer(b, scope)
        yield from self.value(s.init, scope)
        if s.init is not None and not fits(s.init.type, n.Region(b).type):
            yield self.fail("KIR-V009", f"'{b.name}' begins as {type_text(s.init.type)}",
                            needs=f"a value that broadcasts to {type_text(n.Region(b).type)}")
        if b.space in ("global", "constant", "cluster"):
            yield self.fail("KIR-V011", f"'{b.name}' is allocated in {b.space} memory by a kernel",
                            needs="a parameter or a workspace for global memory, a view of shared memory for cluster memory")
        elif b.space == "shared" and team.level in ("thread", "warp", "warpgroup", "function"):
            yield self.fail("KIR-V011", f"'{b.name}' is shared memory allocated by a {team.level}: shared memory belongs to the CTA",
                            needs="an allocation outside the parallel loop")
        elif b.space == "fragment" and team.level == "thread":
            yield self.fail("KIR-V011", f"'{b.name}' is a fragment of one thread", needs="space `register`")
        if b.dtype.name == "mbarrier" and b.space != "shared":
            yield self.fail("KIR-V011", f"the mbarrier '{b.name}' is in {b.space} memory", needs="space `shared`")
        yield from self.define(b.name, b, scope)

    def buffer(self, b: n.Buffer, scope: Scope) -> Iterator[Diagnostic]:
        for e in (*b.shape, *(b.strides or ())):
            yield from self.value(e, scope)
            if not (isinstance(e.type, DType) and e.type.may_index):
                yield self.fail("KIR-V009", f"an extent or stride of '{b.name}' is {type_text(e.type)}", needs="an integer")
            elif (value := build.int_value(e)) is not None and value < 0 and e in b.shape:
                yield self.fail("KIR-V009", f"'{b.name}' has an extent of {value}")
        if b.strides is not None and len(b.strides) != len(b.shape):
            yield self.fail("KIR-V009", f"'{b.name}' has {len(b.shape)} dimensions and {len(b.strides)} strides")
        if b.layout is not None:
            from kir.ir.layouts.layout import rules
            for d in rules(b.layout, len(b.shape)):
                yield self.located(d)
        if b.align and (b.align & (b.align - 1) or b.align < 0):
            yield self.fail("KIR-V009", f"'{b.name}' is aligned to {b.align} bytes", needs="a power of two")

    def view(self, s: n.View, scope: Scope) -> Iterator[Diagnostic]:
        yield from self.buffer(s.buffer, scope)
        saved = dict(scope.values)
        for a in s.axes:
            yield from self.define(a, I32, scope)
        yield from self.value(s.at, scope)
        scope.values = saved
        yield from self.value(s.fill, scope)
        base = s.at.buffer
        if s.buffer.space != base.space and (s.buffer.space, base.space) != ("cluster", "shared"):
            yield self.fail("KIR-V011", f"'{s.buffer.name}' is in {s.buffer.space} memory, and '{base.name}' in {base.space}",
                            needs="one space")
        if s.axes:
            if len(s.axes) != len(s.buffer.shape):
                yield self.fail("KIR-V009", f"the view '{s.buffer.name}' has {len(s.buffer.shape)} dimensions and {len(s.axes)} axes")
            if s.at.type != s.buffer.dtype:
                yield self.fail("KIR-V009",
                                f"an element of '{s.buffer.name}' is {s.buffer.dtype}, and {region_text(s.at)} is {type_text(s.at.type)}")
        if s.fill is not None and s.fill.type != s.buffer.dtype:
            yield self.fail("KIR-V009", f"the fill of '{s.buffer.name}' is {type_text(s.fill.type)}", needs=f"one {s.buffer.dtype}")
        yield from self.define(s.buffer.name, s.buffer, scope)

    def copy(self, s: n.Copy, scope: Scope) -> Iterator[Diagnostic]:
        for e in (s.src, s.dst, s.mask, s.signal):
            yield from self.value(e, scope)
        yield from self.written(s.dst)
        yield from self.bounded(s.dst, s.clip, s.mask is not None)
        yield from self.bounded(s.src.at, s.src.clip or s.clip, s.src.mask is not None or s.mask is not None)
        src, dst = s.src.type, s.dst.type
        if dtype_of(src) != dtype_of(dst) or not same_dims(shape_of(src), shape_of(dst)):
            yield self.fail("KIR-V009", f"a copy of {type_text(src)} to {type_text(dst)}", needs="one dtype and one shape")
        if s.mask is not None:
            yield from self.stored(src, s.dst, s.mask)
        name = s.via.partition("(")[0]
        if name not in VIA_COPY:
            yield self.fail("KIR-V024", f"there is no way to copy '{s.via}'", attempt=did_you_mean(name, VIA_COPY))
        if s.signal is not None and s.signal.type != MBARRIER:
            yield self.fail("KIR-V015", f"the copy signals {region_text(s.signal)}, which is {type_text(s.signal.type)}",
                            needs="one mbarrier")
        if (s.signal is not None or s.grouped) and name not in ("cp_async", "bulk", "tma"):
            yield self.fail("KIR-V015", f"a copy via {name} is synchronous: it neither signals nor joins a group",
                            needs="cp_async, bulk or tma")
        spaces = {s.src.at.buffer.space, s.dst.buffer.space}
        if name == "cp_async" and (s.src.at.buffer.space, s.dst.buffer.space) != ("global", "shared"):
            yield self.fail("KIR-V011", f"cp_async from {s.src.at.buffer.space} to {s.dst.buffer.space} memory", needs="global to shared")
        if name in ("bulk", "tma") and not spaces & ({"shared", "cluster"} if name == "bulk" else {"shared", "cluster", "fragment"}):
            yield self.fail("KIR-V011", f"{name} from {s.src.at.buffer.space} to {s.dst.buffer.space} memory",
                            needs="shared memory on one side")

    def mma(self, s: n.Mma, scope: Scope, team: Team) -> Iterator[Diagnostic]:
        for e in (s.acc, s.a, s.b):
            yield from self.value(e, scope)
        yield from self.written(s.acc)
        yield from self.reads(s.a, s.b)
        acc, a, b = shape_of(s.acc.type), shape_of(s.a.type), shape_of(s.b.type)
        if len(acc) < 2 or len(a) < 2 or len(b) < 2 or not (same_dims(acc[-2:-1], a[-2:-1]) and same_dims(acc[-1:], b[-1:])
                                                            and same_dims(a[-1:], b[-2:-1])):
            yield self.fail("KIR-V009", f"mma of {type_text(s.acc.type)} += {type_text(s.a.type)} * {type_text(s.b.type)}",
                            needs="[m, n] += [m, k] * [k, n]")
        elif not (same_dims(acc[:-2], a[:-2]) and same_dims(acc[:-2], b[:-2])):
            yield self.fail("KIR-V009", "the batch dimensions of the mma differ", needs="the same leading dimensions on all three")
        if s.via not in VIA_MMA:
            yield self.fail("KIR-V024", f"there is no mma '{s.via}'", attempt=did_you_mean(s.via, VIA_MMA))
        if s.precision not in PRECISIONS and s.precision.removeprefix("%") not in self.metas:
            yield self.fail("KIR-V024", f"there is no precision '{s.precision}'", attempt=did_you_mean(s.precision, PRECISIONS))
        if s.pending and s.via != "wgmma":
            yield self.fail("KIR-V015", f"an mma via {s.via} is synchronous: it cannot be pending", needs="via wgmma")
        if team.level == "thread" and (s.via in ("mma_sync", "wgmma", "tcgen05") or s.acc.buffer.space == "fragment"):
            yield self.fail("KIR-V010", "a tile operation of a team stands in a loop over threads: each thread alone would execute it",
                            needs="the loop outside, or the call mma_sync on each lane's own elements")

    def called(self, call: n.Call, team: Team) -> Iterator[Diagnostic]:
        if call.fn in self.functions or team.level == "function":
            return
        row = table().get(call.fn)
        if row is None:
            return
        if row.level == "warp" and team.level != "thread":
            yield self.fail("KIR-V013", f"'{call.fn}' exchanges values between the lanes of a warp, and stands outside a loop over threads",
                            needs="for .. parallel thread around it")
        if row.level == "warpgroup" and team.level == "warp":
            yield self.fail("KIR-V013", f"'{call.fn}' is executed by a warpgroup, and a single warp executes it here")
        for a in call.args:
            if isinstance(a, n.Region) and call.fn.startswith("mbar_") and a.type != MBARRIER:
                yield self.fail("KIR-V015", f"'{call.fn}' of {region_text(a)}, which is {type_text(a.type)}", needs="one mbarrier")
            if isinstance(a, n.Region) and call.fn.startswith("atomic_") and call.fn != "atomic_load":
                yield from self.written(a)

    # ------------------------------------------------------------------------------------------------- control and teams
    def loop(self, s: n.For, path: Path, scope: Scope, team: Team) -> Iterator[Diagnostic]:
        for e in (s.lo, s.hi, s.step):
            yield from self.value(e, scope)
            if e.type != s.var.of or not (isinstance(e.type, DType) and e.type.may_index):
                yield self.fail("KIR-V009",
                                f"the loop variable '{s.var.name}' is {type_text(s.var.of)}, and {expr_text(e)} is {type_text(e.type)}",
                                needs="one integer dtype")
        if build.is_const(s.step, 0):
            yield self.fail("KIR-V009", f"the loop over '{s.var.name}' has step 0")
        if s.kind not in KINDS:
            yield self.fail("KIR-V024", f"there is no kind of loop '{s.kind}'", attempt=did_you_mean(s.kind, KINDS))
        options = dict(s.attrs)
        for name in options:
            if name not in LOOP_ATTRS:
                yield self.fail("KIR-V024", f"'{name}' says nothing of a loop", attempt=did_you_mean(name, LOOP_ATTRS),
                                needs=f"one of {', '.join(sorted(LOOP_ATTRS))}")
            elif name in ("order", "stage", "group") and not isinstance(options[name], str):
                yield self.fail("KIR-V024", f"'{name}' of the loop is {options[name]!r}", needs="a text with a number for each statement, such as \"0,1\"",
                                attempt="stages, for how many there are" if name == "stage" else "")
        for name in ("stages", "factor"):
            if name in options and not is_term(options[name], self.metas) and not (
                    isinstance(options[name], int) and not isinstance(options[name], bool) and int(options[name]) >= 0):
                yield self.fail("KIR-V024", f"'{name}' of the loop is {options[name]!r}", needs="a number of 0 or more")
        inner = team.inside_loop()
        if s.kind in TEAM_THREADS:
            yield from self.split(s, team)
            inner = Team(s.kind, TEAM_THREADS[s.kind], False, team.function)
        if s.kind == "static":
            for e in (s.lo, s.hi, s.step):
                yield from self.constant(e, scope, "a bound of a static loop")
        values = dict(scope.values)
        yield from self.define(s.var.name, s.var.of, scope)
        if s.kind == "static":
            scope.constants |= {s.var.name}
        yield from self.block(s.body, (*path, "body"), scope, inner)
        scope.values = values

    def split(self, s: n.For, team: Team) -> Iterator[Diagnostic]:
        if team.level in TEAMS and TEAMS.index(s.kind) >= TEAMS.index(team.level):
            yield self.fail("KIR-V012", f"a {team.level} is split into {s.kind}s", needs="a split into smaller teams")
            return
        if not build.is_const(s.lo, 0) or not build.is_const(s.step, 1):
            yield self.fail("KIR-V012", f"the split over '{s.var.name}' does not count 0, 1, 2, ..", needs=f"for {s.var.name} in 0..n")
        count = build.int_value(s.hi)
        if count is not None and team.threads is not None and count * TEAM_THREADS[s.kind] > team.threads:
            yield self.fail("KIR-V012", f"{count} {s.kind}s need {count * TEAM_THREADS[s.kind]} threads, and the team has {team.threads}")

    def jump(self, s: n.Jump, scope: Scope, team: Team) -> Iterator[Diagnostic]:
        for v in s.values:
            yield from self.value(v, scope)
        if s.kind in ("break", "continue"):
            if not team.in_loop:
                yield self.fail("KIR-V022", f"'{s.kind}' outside a loop of this team")
            return
        if team.function is None and self.program.metas:
            return  # A generic program may be a function that others call, read by itself.
        results = team.function.results if team.function is not None else ()
        got = tuple(v.type for v in s.values)
        if len(got) != len(results) or any(not same_type(a, b) for a, b in zip(got, results, strict=True)):
            yield self.fail("KIR-V022", f"a return of ({', '.join(map(type_text, got))})", needs=f"({', '.join(map(type_text, results))})")

    def roles(self, s: n.Roles, path: Path, scope: Scope, team: Team) -> Iterator[Diagnostic]:
        if team.level != "cta":
            yield self.fail("KIR-V012", f"roles of a {team.level}", needs="roles of the CTA")
        taken: dict[int, str] = {}
        names: set[str] = set()
        for r in s.roles:
            if r.name in names:
                yield self.fail("KIR-V019", f"two roles are named '{r.name}'")
            names.add(r.name)
            if not 0 <= r.lo < r.hi or (team.threads is not None and r.hi * 32 > team.threads):
                yield self.fail("KIR-V012", f"the role '{r.name}' has warps {r.lo}..{r.hi}",
                                needs="at least one warp" + (f", within 0..{team.threads // 32}" if team.threads is not None else ""))
            shared = [f"{w} ({taken[w]})" for w in range(r.lo, min(r.hi, r.lo + 64)) if w in taken]
            if shared:
                yield self.fail("KIR-V012", f"the role '{r.name}' shares warp {shared[0]} with another", needs="disjoint warps")
            taken.update((w, r.name) for w in range(r.lo, min(r.hi, r.lo + 64)))
            if r.registers and (r.registers % 8 or not 24 <= r.registers <= 256):
                yield self.fail("KIR-V012", f"the role '{r.name}' asks for {r.registers} registers", needs="a multiple of 8 from 24 to 256")
        for (steps, body), r in zip(child_blocks(s), s.roles, strict=True):
            yield from self.block(body, path + steps, scope, Team("role", 32 * (r.hi - r.lo), False, team.function))

    # ------------------------------------------------------------------------------------------------------------ pairing
    def pairing(self, k: n.Kernel) -> Iterator[Diagnostic]:
        """Asynchronous operations whose completion nothing in the kernel waits for."""
        for each in unpaired(self.program, k, self.functions):
            self.path, self.stmt = each.path, each.stmt
            yield self.located(Diagnostic("KIR-V015", each.why, witness=each.witness))


