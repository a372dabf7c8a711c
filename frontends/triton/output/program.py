"""From a jit function to a generic program: parameters, metas, grid, body."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import libcst as cst

from kir.base.diagnostic import KirError, Origin
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.binding import Setting
from kir.ir.rebuild.promote import promoted
from kir.ir.types import BOOL, DTYPES, F32, I32, I64, DType, variable
from kir.ir.visit import names_read, statements, transform, walk

from ..._python.project import Module, Project
from ..._python.signature import annotation_text, is_constexpr, nodes_below, parameters, stated_kind, tile_extents
from ..calls.memory import place
from ..host.known_packages import DTYPES as TRITON_DTYPES
from ..host.scope import HostScope
from ..state.inlining import Seen, run_function
from ..state.state import Frame, State
from ..statements.statements import block
from ..types.callers import given_by
from ..types.inference import Facts, Inference
from ..values.emitter import whole
from ..values.operators import pointer_shape, run
from ..values.values import (
    BlockPointer,
    Choice,
    Descriptor,
    Items,
    Jit,
    MetaFunction,
    NotUnderstood,
    Pointer,
    Run,
    Static,
    TypeOf,
    Unknown,
    Value,
    describe,
    is_known,
)
from .as_given import Taken, kind_of

GRID = ("pid_0", "pid_1", "pid_2")
EXTENTS = ("grid_0", "grid_1", "grid_2")
LAUNCH = ("num_warps", "num_stages")
"""Options of a launch, which a kernel may also take as parameters of that name."""


def read_kernel(project: Project, module: Module, node: cst.FunctionDef, given: Mapping[str, Setting] | None = None,
                callers: Sequence[cst.FunctionDef] = (), numbers: bool = False, values: Mapping[str, Value] | None = None,
                watched: cst.FunctionDef | None = None, pointers: frozenset[str] = frozenset(), integers: frozenset[str] = frozenset(),
                exact: bool = False) -> n.Program:
    """The generic program of a kernel; with what `given` metas have for their values, and as their defaults. Of a function that others call, its
    parameters are as its `callers` give them; under `numbers`, those that each of them writes as a number (an axis) have that of the first; where `values` are
    given, they are like those; `pointers` and `integers` are so although the text does not show it. What is not understood is in it as `opaque`
    statements, each with its reason. Raises Seen for the first call of what is
    `watched`, and NotUnderstood for `values` that no parameter holds."""
    scope = HostScope(project, module, module.owners.get(id(node), ()))
    inference = Inference(scope)
    fn = Jit(module, node)
    facts = inference.facts(fn)
    facts = replace(facts, pointers=facts.pointers | pointers, integers=facts.integers | integers) if pointers or integers else facts
    called = given_by(inference, fn, callers)
    tiles = called.tiles | {name: max(axes, called.tiles.get(name, 0)) for name, axes in facts.tiles.items()}  # what the body shows is the least
    r = State(scope, block, watched=watched)
    frame = Frame(fn, scope)
    r.frames.append(frame)
    r.out.reserve(x for p in parameters(node) for x in (p.name.value, *filter(None, tile_extents(p))))
    r.places, r.extents = tuple(map(r.out.own, GRID)), tuple(map(r.out.own, EXTENTS))
    options = {x: x if any(p.name.value == x and is_constexpr(p) for p in parameters(node)) else r.out.own(x) for x in LAUNCH}
    r.warps = options["num_warps"]
    metas: list[n.Meta] = []
    params: list[n.Param] = []
    extents: list[n.Param] = []
    r.returns = not is_kernel(fn, inference) or bool(tiles.keys() - facts.pointers - facts.integers - facts.numbers) or any(map(tile_extents, parameters(node)))
    if values is not None:
        frame.env.update(Taken(r, metas, params, extents, exact=exact).all(values))
    for p in parameters(node) if values is None else ():
        if r.returns and tiles.get(p.name.value) and (not is_constexpr(p) or p.name.value in called.tiles) and p.name.value not in facts.pointers:
            _tile(r, p.name.value, tile_extents(p) or ("",) * tiles[p.name.value], frame, metas, params)
        elif p.name.value in called.metas:
            _meta(p, facts, scope, frame, metas)
        else:
            _parameter(r, p, facts, scope, frame, metas, params, extents)
    for name, value in ((called.numbers if numbers else {}) | dict(given or {})).items():
        if (known := _known(scope, next((m.kind for m in metas if m.name == name), ""), value)) is not None:
            frame.env[name] = known[0]
            metas = [replace(m, default=value) if m.name == name else m for m in metas]
    r.metas = {q.name for q in params}
    _read_body(r, node)
    sized = _sized({m.name for m in metas if m.kind == "any"}, r.out.block)
    if values is None and (r.pointed - pointers or sized - integers):
        return read_kernel(project, module, node, given, callers, numbers, None, watched, pointers | r.pointed, integers | sized)
    mentioned = {x.name for s in r.out.block for x in walk(s) if isinstance(x, n.Buffer)}
    r.out.block[:0] = [n.View(b, n.Region(r.memory)) for b in r.views.values() if r.memory is not None and b.name in mentioned]
    if r.memory is not None and {r.memory.name, *(b.name for b in r.views.values())} & mentioned:
        params = [replace(q, attrs=n.attrs(**dict(q.attrs), alias=r.memory.name)) if isinstance(q.of, n.Buffer) and q.of.space == "global" else q
                  for q in params]
        params.append(n.Param(r.memory.name, "in", r.memory, attrs=n.attrs(addressed=True)))
        extents.extend(n.Param(d.name, "size", I64, attrs=n.attrs(implicit=True)) for d in r.memory.shape if isinstance(d, n.Var))
    params.extend(n.Param(name, "scalar", I64, attrs=n.attrs(address=of)) for of, name in r.addresses.items())
    body = ordered(promoted(tuple(r.out.block)))
    grid_sizes = [n.Param(r.extents[k], "size", I32, attrs=n.attrs(implicit=True)) for k in range(max(facts.axes, r.axes))]
    written, read = {r.aliases.get(x, x) for x in r.written}, {r.aliases.get(x, x) for x in r.read}
    if any(isinstance(s, n.Opaque) for s in _statements(body)):
        written |= {q.name for q in params if isinstance(q.of, n.Buffer) and q.of.space == "global"}
        read |= written
    settled = [_role(q, q.name in read, q.name in written) for q in params]
    named = {m.name for m in metas} | {q.name for q in params}
    dtype_metas = [n.Meta(name, "dtype", text) for text, name in r.dtype_terms.items()]
    metas += [*(n.Meta(options[x], "int", v) for x, v in zip(LAUNCH, (4, 3), strict=True) if options[x] not in named), *dtype_metas]
    functions = tuple(replace(f, body=ordered(f.body)) for f in r.functions.values())
    kernel = n.Kernel(
        node.name.value,
        tuple(n.Axis(r.places[k], n.Var(r.extents[k], I32)) for k in range(max(facts.axes, r.axes))),
        build.mul(n.Var(options["num_warps"], I32), 32),
        body,
        origin=module.origin(node),
    )
    return n.Program(node.name.value, tuple(metas), (*settled, *extents, *grid_sizes), functions=functions, kernels=(kernel,))


def _sized(metas: set[str], body: Sequence[n.Stmt]) -> frozenset[str]:
    """Which of some metas are extents of tiles, count rounds, or divide and leave a rest, which makes them whole numbers."""
    if not metas:
        return frozenset()
    nodes = [x for s in body for x in walk(s)]
    extents: list[object] = [d for x in nodes if isinstance(x, n.Alloc) for d in x.buffer.shape]
    extents += [a for x in nodes if isinstance(x, n.Call) and x.fn in ("iota", "broadcast", "reshape") for a in (x.args if x.fn == "iota" else x.args[1:])]
    extents += [e for x in nodes if isinstance(x, n.For) for e in (x.lo, x.hi, x.step)]
    extents += [e for x in nodes if isinstance(x, n.Binary) and x.op in ("floordiv", "mod", "tdiv", "tmod") for e in (x.a, x.b)]
    return frozenset(v.name for d in extents if isinstance(d, n.Expr) for v in walk(d) if isinstance(v, n.Var) and v.name in metas)


def given_by_all(project: Project, callers: Sequence[tuple[Module, cst.FunctionDef]], node: cst.FunctionDef,
                 given: Mapping[str, Setting] | None = None, through: bool = False) -> list[dict[str, Value]]:
    """What other functions (with values of metas that are `given`) give a function, as the reading of each comes to its first call, `through` others too;
    of what is not understood nothing is said. One for each kinds of values that are given, in the order of the callers."""
    out: dict[tuple[object, ...], dict[str, Value]] = {}
    direct = [(module, f) for module, f in callers if given or through or node.name.value in module.code(f)]
    for module, caller in direct:
        try:
            read_kernel(project, module, caller, dict(given or {}), watched=node)
        except Seen as found:
            if not any(isinstance(v, Unknown) for v in found.values.values()):
                out.setdefault(tuple(kind_of(v) for v in found.values.values()), found.values)
        except KirError:
            continue
    return list(out.values())


def _known(scope: HostScope, kind: str, value: Setting) -> tuple[Value] | None:
    """What a meta of this kind is under a value of a binding's; None where the value is no literal of it."""
    match kind, value:
        case "bool", bool() | int():
            return (bool(value),)
        case "int", int() if not isinstance(value, bool):
            return (value,)
        case "float", float() | int() if not isinstance(value, bool):
            return (float(value),)
        case "str", str():
            return (value,)
        case "dtype", str() if value in DTYPES:
            return (TypeOf(DTYPES[value]),)
        case "fn", str():
            try:
                return (scope.lookup(value),)
            except NotUnderstood:
                return None
        case "any", bool() | int() | float():
            return (value,)
    return None


def ordered(body: n.Block) -> n.Block:
    """Atomics whose result is read order memory before and after them, as Triton has it where nothing is said (`sem`): tickets and counters are made of
    these. Where nobody reads the result, nothing is learned by it, and it is taken for relaxed: that is less than what it does."""
    read = frozenset[str]().union(*(names_read(s) for s in body))

    def found(old: n.Node, x: n.Node) -> n.Node:
        if not (isinstance(x, n.Let) and isinstance(x.value, n.Call) and x.value.fn.startswith("atomic_") and read.intersection(x.names)):
            return x
        return x if "order" in dict(x.value.attrs) else replace(x, value=replace(x.value, attrs=n.attrs(**dict(x.value.attrs), order="acq_rel")))
    return tuple(transform(s, found) for s in body)


def _read_body(r: State, node: cst.FunctionDef) -> None:
    """The statements of the function, and what a helper returns."""
    origin = r.root.module.origin(node)
    try:
        value = run_function(r, node.body)
        returned = _returned(r, value, origin)
    except NotUnderstood as bad:
        first = next((s.reason for s in _statements(tuple(r.out.block)) if isinstance(s, n.Opaque)), bad.reason)  # what it returns came of this
        del r.out.block[:]
        r.out.emit(n.Opaque("triton", r.root.module.code(node).strip(), first, origin=origin))
        return
    for s in returned:
        r.out.emit(s)


def _returned(r: State, value: Value, origin: Origin | None) -> n.Block:
    """What a helper returns; in the arms of a static branch where a meta decides."""
    if isinstance(value, Choice) and value.static:
        return (n.If(value.cond, _returned(r, value.a, origin), _returned(r, value.b, origin), True, origin=origin),)
    chosen = next((v for v in value.items if isinstance(v, Choice) and v.static), None) if isinstance(value, Items) else None
    if chosen is not None and isinstance(value, Items):
        arms = [Items(tuple((v.a if k else v.b) if isinstance(v, Choice) and v.cond == chosen.cond else v for v in value.items)) for k in (True, False)]
        return (n.If(chosen.cond, _returned(r, arms[0], origin), _returned(r, arms[1], origin), True, origin=origin),)
    results = tuple(_result(r, v) for v in (value.items if isinstance(value, Items) else (value,))) if value is not None else ()
    return (n.Jump("return", results, origin=origin),) if results else ()


def _result(r: State, v: Value) -> n.Expr:
    """A value that a helper returns; a pointer as the address of the element that it names."""
    match v:
        case Run():
            return v.expr
        case int() | float() | bool() | Static():
            return run(v)
        case Pointer():
            return n.Address(place(r, v)) if not pointer_shape(v) else _fail("it returns a tile of pointers")
        case Unknown():
            return _fail(v.reason)
        case _:
            return _fail(f"it returns {describe(v)}")


def _fail(reason: str) -> n.Expr:
    raise NotUnderstood(reason)


def _statements(body: n.Block) -> list[n.Stmt]:
    return list(statements(body))


def _role(q: n.Param, read: bool, written: bool) -> n.Param:
    if not isinstance(q.of, n.Buffer):
        return q
    return n.Param(q.name, "inout" if read and written else "out" if written else "in", q.of, q.value, q.attrs)


def _default(p: cst.Param, scope: HostScope) -> Value:
    if p.default is None:
        return None
    try:
        return scope.evaluate(p.default)
    except NotUnderstood:
        return None


def _parameter(
    r: State, p: cst.Param, facts: Facts, scope: HostScope, frame: Frame, metas: list[n.Meta], params: list[n.Param], extents: list[n.Param]
) -> None:
    name = p.name.value
    known = facts.texts | facts.booleans | (facts.extents if r.returns else set())  # before the run, or Triton refuses it; what is launched must say so
    if is_constexpr(p) or (not annotation_text(p) and name in known):
        _meta(p, facts, scope, frame, metas)
        return
    if name in facts.descriptors and name not in facts.pointers:
        rank = facts.descriptors[name]
        shape = tuple(n.Var(r.out.own(f"{name}.shape_{k}"), I32) for k in range(rank))
        block = tuple(n.Var(r.out.own(f"{name}.block_{k}"), I32) for k in range(rank))
        buffer = n.Buffer(name, variable(name), shape, "global")
        said = {f"block_{k}": v.name for k, v in enumerate(block) if v.name != f"{name}_block_{k}"}
        params.append(n.Param(name, "in", buffer, attrs=n.attrs(**said)))
        extents.extend(n.Param(v.name, "size", I32, attrs=n.attrs(implicit=True)) for v in shape)
        metas.extend(n.Meta(v.name, "int") for v in block)
        frame.env[name] = Descriptor(Pointer(buffer), shape, (), block)
        return
    if name in facts.blocks:
        _block_pointer(r, name, facts.blocks[name], frame, metas, params, extents)
        return
    if name in facts.pointers:
        extent = n.Var(r.out.own(f"{name}.extent"), I64)
        buffer = n.Buffer(name, variable(name), (extent,), "global")
        params.append(n.Param(name, "in", buffer))
        extents.append(n.Param(extent.name, "size", I64, attrs=n.attrs(implicit=True)))
        frame.env[name] = Pointer(buffer)
        return
    if name in facts.functions:
        frame.env[name] = MetaFunction(name)
        metas.append(n.Meta(name, "fn"))
        return
    word = annotation_text(p)
    if not word and p.default is None and name in facts.dtypes - facts.integers - facts.numbers:  # a helper's: only a compile-time value is a dtype
        metas.append(n.Meta(name, "dtype"))
        frame.env[name] = TypeOf(variable(name))
        return
    dtype: DType = I32 if name in facts.integers and stated_kind(p) != "scalar" else variable(name)
    if word in TRITON_DTYPES and TRITON_DTYPES[word].name in DTYPES and word != "bool":
        dtype = TRITON_DTYPES[word]
    params.append(n.Param(name, "scalar", dtype))
    frame.env[name] = Run(n.Var(name, dtype))


def _block_pointer(
    r: State, name: str, axes: int, frame: Frame, metas: list[n.Meta], params: list[n.Param], extents: list[n.Param]
) -> None:
    """A block pointer that a helper is given: the pointer in it, its shape, strides and offsets as numbers, its block as metas, which its caller decides."""
    extent = n.Var(r.out.own(f"{name}.extent"), I64)
    buffer = n.Buffer(name, variable(name), (extent,), "global")
    params.append(n.Param(name, "in", buffer))
    extents.append(n.Param(extent.name, "size", I64, attrs=n.attrs(implicit=True)))
    parts = [tuple(n.Var(r.out.own(f"{name}.{part}_{k}"), I64) for k in range(axes)) for part in ("shape", "stride", "offset")]
    params.extend(n.Param(v.name, "scalar", I64) for part in parts for v in part)
    block = tuple(n.Var(r.out.own(f"{name}.block_{k}"), I32) for k in range(axes))
    metas.extend(n.Meta(v.name, "int") for v in block)
    frame.env[name] = BlockPointer(Pointer(buffer), parts[0], parts[1], parts[2], block)


def _tile(r: State, name: str, extents: Sequence[str], frame: Frame, metas: list[n.Meta], params: list[n.Param]) -> None:
    """A tile that a helper is given: its extents are metas, which its caller decides; one that has a name may be that of several tiles."""
    shape = tuple(build.const(int(x[1:])) if x.startswith("=") else n.Var(x or r.out.own(f"{name}.shape_{k}"), I32) for k, x in enumerate(extents))
    buffer = n.Buffer(name, variable(name), shape, "fragment")
    params.append(n.Param(name, "in", buffer))
    have = {m.name for m in metas}
    metas.extend(n.Meta(v.name, "int") for v in shape if isinstance(v, n.Var) and v.name not in have)
    frame.env[name] = Run(whole(buffer))


def _meta(p: cst.Param, facts: Facts, scope: HostScope, frame: Frame, metas: list[n.Meta]) -> None:
    name = p.name.value
    default = _default(p, scope)
    value: int | float | bool | str | None = default if is_known(default) else None  # type: ignore[assignment]  # a literal
    stated = stated_kind(p)
    if stated in _STATED and not (stated == "dtype" and isinstance(default, TypeOf)):
        metas.append(n.Meta(name, stated, value))
        frame.env[name] = _STATED[stated](name)
    elif name in facts.functions:
        metas.append(n.Meta(name, "fn"))
        frame.env[name] = MetaFunction(name)
    elif (name in facts.dtypes and not {name} & (facts.integers | facts.numbers)) or isinstance(default, TypeOf):
        metas.append(n.Meta(name, "dtype", default.dtype.name if isinstance(default, TypeOf) else None))
        frame.env[name] = TypeOf(variable(name))
    elif isinstance(value, bool) or (name in facts.booleans and name not in facts.integers and name not in facts.texts):
        metas.append(n.Meta(name, "bool", value))
        frame.env[name] = Static(n.Var(name, BOOL))
    elif name in facts.texts or isinstance(value, str):
        metas.append(n.Meta(name, "str", value))
        frame.env[name] = Static(n.Var(name, I32))
    elif name in facts.integers or isinstance(value, int) or name in LAUNCH:
        metas.append(n.Meta(name, "int", value))
        frame.env[name] = Static(n.Var(name, I32))
    elif isinstance(value, float):
        metas.append(n.Meta(name, "float", value))
        frame.env[name] = Static(n.Var(name, F32))
    else:
        metas.append(n.Meta(name, "any", value))
        frame.env[name] = Static(n.Var(name, variable(name)))


_STATED: dict[str, Callable[[str], Value]] = {
    "fn": MetaFunction,
    "dtype": lambda name: TypeOf(variable(name)),
    "bool": lambda name: Static(n.Var(name, BOOL)),
    "str": lambda name: Static(n.Var(name, I32)),
    "int": lambda name: Static(n.Var(name, I32)),
    "float": lambda name: Static(n.Var(name, F32)),
    "any": lambda name: Static(n.Var(name, variable(name))),
}
"""What a meta of a stated kind is while its kernel is read."""


def is_kernel(fn: Jit, inference: Inference) -> bool:
    """Whether a jit function can be launched: it has an effect and returns nothing."""
    effects = False
    for node in nodes_below(fn.node.body):
        if (
            isinstance(node, cst.Return)
            and node.value is not None
            and not (isinstance(node.value, cst.Name) and node.value.value == "None")
        ):
            return False
        if isinstance(node, cst.Call):
            if isinstance(node.func, cst.Attribute) and node.func.attr.value in ("store",):
                effects = True
            found = inference.callee(fn, node.func, set())
            if isinstance(found, str) and (found in ("store", "store_tensor_descriptor", "_experimental_descriptor_store") or found.startswith("atomic_")):
                effects = True
            elif isinstance(found, Jit) and found.node is not fn.node and not effects:
                effects = is_kernel(found, inference) or _has_effect(found, inference)
    return effects


def _has_effect(fn: Jit, inference: Inference) -> bool:
    return any(
        isinstance(node, cst.Call)
        and isinstance(found := inference.callee(fn, node.func, set()), str)
        and (found == "store" or found.startswith("atomic_"))
        for node in nodes_below(fn.node.body)
    )
