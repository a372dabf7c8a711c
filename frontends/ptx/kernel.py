"""A kernel of a module as a program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from functools import reduce

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.binding import Binding, expressions
from kir.ir.types import BF16, BOOL, DTYPES, F16, F32, F64, I8, I16, I32, I64, DType
from kir.ir.visit import transform, walk
from kir.surface.ptx.form.bits import KINDS
from kir.surface.ptx.form.operands import Descriptor
from kir.surface.ptx.form.syntax import Variable

from .flow.blocks import Block, blocks_of
from .flow.dominators import flow_of
from .flow.structure import structured
from .machine.known import Numbers
from .machine.machine import Machine
from .machine.places import Symbol
from .machine.run import Run
from .output.cleanup import cleaned
from .output.forward import forwarded
from .output.loops import Loops
from .registers.arrays import arrays_of
from .registers.bases import bases_of, pointer_parameters
from .registers.kinds import kinds_of
from .registers.lasting import lasting, uses_of
from .source.module import Entry, Module

BLOCK = ("threads_x", "threads_y", "threads_z")
AXES = "xyz"
_SCALARS: Mapping[str, DType] = {"u8": I8, "s8": I8, "b8": I8, "u16": I16, "s16": I16, "b16": I16, "u32": I32, "s32": I32, "b32": I32, "u64": I64, "s64": I64,
                                 "b64": I64, "f32": F32, "f64": F64, "f16": F16, "bf16": BF16, "pred": BOOL}
ROUNDS = 8
"""How often a kernel is run before what it does settles."""


@dataclass(frozen=True)
class Launch:
    """What is known of a launch: extents of a CTA, bytes of dynamic shared memory."""

    block: tuple[n.Expr, n.Expr, n.Expr]
    shared: n.Expr
    metas: tuple[n.Meta, ...] = ()


@dataclass
class Geometry:
    """The launch as the kernel sees it."""

    block: tuple[n.Expr, n.Expr, n.Expr]
    axes: set[int] = field(default_factory=set)

    @property
    def threads(self) -> n.Expr:
        """Threads of a CTA."""
        return build.mul(build.mul(self.block[0], self.block[1]), self.block[2])

    def special(self) -> dict[str, n.Expr]:
        """The special registers that have a value here."""
        x, y, z = self.block
        t = n.Var("t", I32)
        flat, plane = build.is_const(y, 1) and build.is_const(z, 1), build.is_const(z, 1)
        out: dict[str, n.Expr] = {"tid.x": t if flat else build.mod(t, x), "laneid": build.mod(t, 32)}
        row = build.floordiv(t, x)
        out["tid.y"] = build.const(0) if build.is_const(y, 1) else row if plane else build.mod(row, y)
        out["tid.z"] = build.const(0) if plane else build.floordiv(t, build.mul(x, y))
        for k, a in enumerate(AXES):
            out[f"ntid.{a}"] = self.block[k]
            out[f"ctaid.{a}"] = n.Var(f"block_{a}", I32)
            out[f"nctaid.{a}"] = n.Var(f"grid_{k}", I32)
        return out


def launch_of(m: Module, e: Entry, binding: Binding | None) -> Launch:
    """The launch of a kernel, from what it says itself and from a binding's metas."""
    given = {**(binding.metas if binding is not None else {})}
    if binding is not None and "threads_x" not in given and isinstance(threads := binding.options.get("threads"), int):
        given["threads_x"] = threads
    stated = e.tuning.get("reqntid", ())
    metas: list[n.Meta] = []
    block: list[n.Expr] = []
    for k, name in enumerate(BLOCK):
        value = given.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            block.append(build.const(value))
            metas.append(n.Meta(name, "int", value))
        elif stated:
            block.append(build.const(stated[k] if k < len(stated) else 1))
        elif "threads_x" in given:
            block.append(build.const(1))
        else:
            block.append(n.Var(name, I32))
            metas.append(n.Meta(name, "int", None if k == 0 else 1))
    shared: n.Expr = build.const(0)
    if "shared_bytes" in given or any(v.space == "shared" and v.count is None for v in (*m.variables.values(), *e.form.variables.values())):
        value = given.get("shared_bytes")
        known = isinstance(value, int) and not isinstance(value, bool)
        shared = build.const(int(value)) if known and isinstance(value, int) else n.Var("shared_bytes", I32)
        metas.append(n.Meta("shared_bytes", "int", value if known else None))
    return Launch((block[0], block[1], block[2]), shared, tuple(metas))


def read_kernel(m: Module, e: Entry, binding: Binding | None) -> n.Program:
    """The program of a kernel. What the IR cannot say leaves it as text, with the reason. Raises KirError for PTX that is wrong."""
    launch = launch_of(m, e, binding)
    body: n.Block
    reader = Kernel(m, e, launch, binding)
    try:
        try:
            body = reader.body()
        except RecursionError as bad:
            raise m.text.fail("KIR-F304", "branches nested deeper than can be followed", e.span) from bad
    except KirError as refused:
        first = refused.diagnostics[0]
        if first.id not in ("KIR-F304", "KIR-F306"):
            raise
        where = first.origin
        text = " ".join(m.text.text[e.span[0]:e.span[1]].split())
        body = (n.For(n.Var("t", I32), build.const(0), reader.geometry.threads, build.const(1),
                      (n.Opaque("ptx", text[:2000], first.message, origin=where),), "thread", origin=m.text.at(*e.span)),)
    return reader.program(body)


class Kernel:
    """Reads one kernel."""

    def __init__(self, m: Module, e: Entry, launch: Launch, binding: Binding | None) -> None:
        self.m, self.e, self.launch, self.binding = m, e, launch, binding
        self.geometry = Geometry(launch.block)
        self.named = _called(e)
        self.dtypes: dict[str, DType] = {}
        for p in e.parameters:
            t = binding.tensors.get(self.named[p.name]) if binding is not None else None
            if t is not None and t.dtype in DTYPES:
                self.dtypes[p.name] = DTYPES[t.dtype]
        self.pointers: frozenset[str] = frozenset()
        self.boxed: dict[str, n.Buffer] = {}
        self.made: list[Descriptor] = []

    def body(self) -> n.Block:
        """The statements. Raises KirError."""
        form = self.e.form
        blocks = blocks_of(form)
        flow = flow_of(blocks)
        if not flow.reducible:
            raise form.text.fail("KIR-F304", "a loop that is entered at several places", self.e.span)
        items = structured(flow)
        arrays = arrays_of(blocks)
        kept = lasting(flow, items) | set(arrays)
        given = {}
        if self.binding is not None:
            given = {p.name: self.named[p.name] in self.binding.tensors for p in self.e.parameters
                     if self.named[p.name] in self.binding.tensors or self.named[p.name] in self.binding.scalars}
        self.pointers = pointer_parameters(blocks, form, self.e.parameters, given)
        bases = bases_of(blocks, form, self.pointers)
        kinds = kinds_of(blocks, form)
        loose: set[str] = set()
        found: dict[str, DType] = {}
        described, apart = self.maps(), True
        for _ in range(ROUNDS):
            machine = self._machine(bases, found)
            machine.kinds, machine.lasting, machine.bases, machine.loose = kinds, kept, self._known(bases, machine), set(loose)
            machine.arrays, machine.read, machine.maps = arrays, frozenset(uses_of(blocks).read), described
            machine.again = any(i.parts[:2] == ("mbarrier", "init") for x in frozenset().union(*flow.loops.values()) for i in blocks[x].instructions)
            machine.apart = apart
            machine.names, machine.shapes, machine.sizes = self.named, *self._stated()
            run = Run(machine, blocks)
            made = run.statements(items)
            settled = self._settled(machine)
            if machine.loose == loose and settled == found:
                done = self._finished(machine, run, made)
                if not any(isinstance(x, n.Var) and x.name in machine.origins for s in done for x in walk(s)):
                    return done
                apart = False  # a number of which something is left that is no place: what needs it stays text
            loose, found = machine.loose, settled
        raise form.text.fail("KIR-F304", "memory whose dtype does not settle", self.e.span)

    def maps(self) -> dict[str, Descriptor]:
        """The tensor maps that the binding describes, by the parameters that hold them."""
        out = {}
        b = self.binding
        for p in self.e.parameters:
            m = b.maps.get(self.named[p.name]) if b is not None else None
            if m is None or b is None:
                continue
            t = b.tensors.get(m.of)
            if t is None or t.dtype not in DTYPES:
                continue
            made = n.TensorMap(m.name or self.named[p.name], m.of, tuple(m.box), n.attrs(**{**m.attrs, **({"swizzle": m.swizzle} if m.swizzle else {})}))
            axes = tuple(n.Var(f"{m.of}_extent_{k}", I64) for k in range(len(t.shape)))
            self.boxed[m.of] = n.Buffer(m.of, DTYPES[t.dtype], axes, "global")
            out[p.name] = Descriptor(made, self.boxed[m.of])
        return out

    def _stated(self) -> tuple[dict[str, tuple[n.Expr, ...]], dict[str, n.Expr]]:
        """What the binding says of shapes and of the numbers that the kernel is given, over its sizes."""
        b = self.binding
        if b is None:
            return {}, {}
        sizes: dict[str, n.Expr] = {s: n.Var(s, I32) for s in b.sizes}
        shapes = {}
        for p in self.e.parameters:
            t = b.tensors.get(self.named[p.name])
            if t is not None and t.shape and t.strides is None:
                made = expressions({str(k): d for k, d in enumerate(t.shape)}, sizes, f"tensor '{self.named[p.name]}'")
                shapes[p.name] = tuple(made[str(k)] for k in range(len(t.shape)))
        given = expressions({k: v for k, v in b.scalars.items() if isinstance(v, (str, int))}, sizes, "scalar")
        return shapes, {**given, **{k: v for k, v in sizes.items() if k not in given}}

    def _known(self, bases: Mapping[str, str], m: Machine) -> dict[str, str]:
        return {k: v for k, v in bases.items() if v in m.symbols}

    def _machine(self, bases: Mapping[str, str], found: Mapping[str, DType]) -> Machine:
        form = self.e.form
        machine = Machine(form, (), _fresh((*self.named.values(), *self.m.variables, *form.variables)), self.geometry.special())
        machine.numbers = Numbers(self._ranges())
        for p in self.e.parameters:
            name = self.named[p.name]
            kind = _SCALARS.get(p.words[0] if p.words else "", None)
            if p.name in self.pointers:
                boxed = self.boxed.get(name)
                size = n.Var(f"{name}_extent", I64) if boxed is None else reduce(build.mul, boxed.shape)
                dtype = self.dtypes.get(p.name, found.get(p.name)) if boxed is None else boxed.dtype
                whole = build.mul(size, dtype.bytes if dtype is not None else 1)
                machine.symbols[p.name] = Symbol(p.name, "global", whole, dtype, shape=(size,), boxed=boxed)
            if kind is not None and p.count == 1:
                machine.scalars[p.name] = n.Var(name, kind)
        for v in (*self.m.variables.values(), *form.variables.values()):
            if v.space == "shared":
                machine.symbols[v.name] = Symbol(v.name, "shared", self.launch.shared if v.count is None else build.const(_bytes(v)), align=v.align)
            elif v.space == "local":
                machine.symbols[v.name] = Symbol(v.name, "register", build.const(_bytes(v)))
        threads = [build.int_value(b) for b in self.launch.block]
        if None not in threads:
            machine.threads = (threads[0] or 1) * (threads[1] or 1) * (threads[2] or 1)
        return machine

    def _ranges(self) -> dict[str, tuple[int, int]]:
        threads = [build.int_value(b) for b in self.launch.block]
        most = 1024 if None in threads else (threads[0] or 1) * (threads[1] or 1) * (threads[2] or 1)
        out = {"t": (0, most - 1)}
        for k, a in enumerate(AXES):
            out[f"block_{a}"], out[f"grid_{k}"] = (0, (1 << 31) - 2), (1, (1 << 31) - 1)
            out[BLOCK[k]] = (1, 1024)
        return out

    def _settled(self, machine: Machine) -> dict[str, DType]:
        """The dtypes of parameters whose dtype nobody says, from how they are accessed: the one of most accesses, the narrowest of equals."""
        out = {}
        for name in self.pointers:
            if name in self.dtypes:
                continue
            votes = machine.symbols[name].accessed
            if votes:
                out[name] = max(votes.items(), key=lambda x: (x[1], -x[0].bits, x[0].is_float, x[0].name))[0]
        return out

    def _finished(self, machine: Machine, run: Run, made: n.Block) -> n.Block:
        self.made = machine.made_maps
        for d in self.made:
            symbol = next(s for s in machine.symbols.values() if self.named.get(s.name) == d.map.of)
            if symbol.views:
                raise self.e.form.text.fail("KIR-F304", "a tensor that is accessed by a map and by its address", self.e.span)
            self.boxed[d.map.of] = d.buffer
        if machine.as_numbers & {s.name for s in machine.symbols.values() if s.views}:
            raise self.e.form.text.fail("KIR-F304", "the number of an address", self.e.span)
        places: list[n.Stmt] = [n.Alloc(b) for b in machine.declared]
        places += [n.Alloc(b, build.const(False, BOOL)) for b in run.flags.values()]
        places += [d for s in machine.symbols.values() if s.space == "register" for d in s.declarations()]
        plain = cleaned(forwarded(cleaned((*places, *made))))
        inside = cleaned(forwarded(Loops(machine.fresh).block(plain)))
        loop = n.For(n.Var("t", I32), build.const(0), self.geometry.threads, build.const(1), inside, "thread", origin=self.m.text.at(*self.e.span))
        outside = [d for s in machine.symbols.values() if s.space in ("shared", "global") for d in s.declarations()]
        body = (*outside, loop)
        taken = {x.name for s in body for x in walk(s) if isinstance(x, (n.Buffer, n.Var))}
        own = {v.name: _spelled(v.name, taken) for v in (*self.m.variables.values(), *self.e.form.variables.values()) if "$" in v.name}
        return tuple(_renamed(s, self.named, own) for s in body)

    def program(self, body: n.Block) -> n.Program:
        """The program around a body."""
        read, written = _accesses(body)
        params: list[n.Param] = []
        sizes: list[n.Param] = []
        buffers = {x.buffer.name: x.buffer for s in body for x in walk(s) if isinstance(x, n.Region) and x.buffer.space == "global"}
        maps = [d.map for d in (*self.maps().values(), *self.made)]
        for name, b in self.boxed.items():
            role = "inout" if name in read and name in written else "out" if name in written else "in"
            params.append(n.Param(name, role, b))  # type: ignore[arg-type]  # one of the roles
            sizes += [n.Param(a.name, "size", I64, attrs=n.attrs(implicit=True)) for a in b.shape if isinstance(a, n.Var)]
        for p in self.e.parameters:
            name = self.named[p.name]
            kind = _SCALARS.get(p.words[0] if p.words else "", I64)
            if name in self.boxed or name in (self.binding.maps if self.binding is not None else ()):
                continue
            if p.name in self.pointers or name in buffers:
                dtype = self.dtypes.get(p.name) or (buffers[name].dtype if name in buffers else DTYPES["u8"])
                size = n.Var(f"{name}_extent", I64)
                buffer = buffers.get(name) or n.Buffer(name, dtype, (size,), "global")
                role = "inout" if name in read and name in written else "out" if name in written else "in"
                params.append(n.Param(name, role, buffer))  # type: ignore[arg-type]  # one of the roles
                sizes.append(n.Param(size.name, "size", I64, attrs=n.attrs(implicit=True)))
            else:
                params.append(n.Param(name, "scalar", kind))
        used = {x.name for s in body for x in walk(s) if isinstance(x, n.Var)}
        axes = max([0, *(k for k, a in enumerate(AXES) if f"block_{a}" in used or f"grid_{k}" in used)]) + 1
        axes = max(axes, len(self.binding.grid) if self.binding is not None else 0)
        grid = tuple(n.Axis(f"block_{AXES[k]}", n.Var(f"grid_{k}", I32)) for k in range(axes))
        sizes += [n.Param(f"grid_{k}", "size", I32, attrs=n.attrs(implicit=True)) for k in range(axes)]
        attributes = {}
        if "maxnreg" in self.e.tuning:
            attributes["maxnreg"] = self.e.tuning["maxnreg"][0]
        kernel = n.Kernel(self.e.name, grid, self.geometry.threads, body, attrs=n.attrs(**attributes), origin=self.m.text.at(*self.e.span))
        return n.Program(self.e.name, self.launch.metas, (*params, *sizes), tensor_maps=tuple(maps), kernels=(kernel,))


def _called(e: Entry) -> dict[str, str]:
    """What the parameters are called: without their kernel's name, where KIR has no such word of its own for the launch."""
    short = {p.name: p.name.removeprefix(f"{e.name}_") for p in e.parameters}
    own = {"t", "shared_bytes", *BLOCK, *(f"block_{a}" for a in AXES), *(f"grid_{k}" for k in range(3))}
    own |= {f"{name}_extent{rest}" for name in short.values() for rest in ("", *(f"_{k}" for k in range(6)))}
    return {long: name if name not in own and list(short.values()).count(name) == 1 else long for long, name in short.items()}


def _bytes(v: Variable) -> int:
    kind = KINDS.get(v.words[-1] if v.words else "b8")
    return (v.count or 0) * (kind.bits // 8 if kind is not None else 1)


def _fresh(taken: Iterable[str]) -> Callable[[str], str]:
    """A source of names that nothing else has."""
    counts: dict[str, int] = {}
    used = set(taken)

    def fresh(stem: str) -> str:
        while True:
            counts[stem] = counts.get(stem, 0) + 1
            made = f"{stem}{counts[stem]}" if not stem[-1].isdigit() else f"{stem}_{counts[stem]}"
            if made not in used:
                return made

    return fresh


def _spelled(name: str, taken: set[str]) -> str:
    """A name of PTX without the signs that no name of KIR has, and that nothing else has."""
    made = name.replace("$", "_")
    while any(x == made or x.startswith(f"{made}_") for x in taken):
        made += "_"
    return made


def _renamed(s: n.Stmt, parameters: Mapping[str, str], own: Mapping[str, str]) -> n.Stmt:
    """A statement whose parameters are called without their kernel's name, and what the kernel declares by names of KIR."""
    def leave(old: n.Node, new: n.Node) -> n.Node:
        if isinstance(new, n.Buffer):
            for long, short in (parameters if new.space == "global" else own).items():
                if new.name == long or new.name.startswith(f"{long}_"):
                    return replace(new, name=short + new.name[len(long):])
        return new

    made: n.Stmt = transform(s, leave)
    return made


def _accesses(body: n.Block) -> tuple[set[str], set[str]]:
    """Global buffers that are read, and those that are written; through views too."""
    read: set[str] = set()
    written: set[str] = set()
    under: dict[str, str] = {}
    for x in (y for s in body for y in walk(s)):
        match x:
            case n.View():
                under[x.buffer.name] = x.at.buffer.name
            case n.Store():
                written.add(x.at.buffer.name)
            case n.Copy():
                written.add(x.dst.buffer.name)
            case n.Load():
                read.add(x.at.buffer.name)
            case n.Call():
                regions = {a.buffer.name for a in x.args if isinstance(a, n.Region)}
                written |= regions if x.fn.startswith(("atomic_", "st")) and x.fn != "atomic_load" else set()
                read |= regions
            case _:
                pass
    return {under.get(k, k) for k in read}, {under.get(k, k) for k in written}


__all__ = ["Block", "Kernel", "Launch", "read_kernel"]
