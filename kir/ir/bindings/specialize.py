"""A generic program under a binding: metas replaced, dtypes resolved, static branches decided, static loops unrolled.

Tensors get their shapes and strides. Where the source addresses a tensor of several axes (or strides) as flat memory, the access goes
through a flat view of it, which `raise-regions` turns into regions. Scalars that the binding derives from sizes disappear.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

from kir.base.diagnostic import KirError, Origin, error
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.binding import Binding, check_dtype, expressions, fact_expressions
from kir.ir.bindings.binding_facts import check_extents, check_facts
from kir.ir.bindings.binding_made import check_made
from kir.ir.bindings.binding_uses import check_roles, check_uses, idle_sizes, unmentioned
from kir.ir.bindings.binding_values import shown, words
from kir.ir.bindings.policies import settled
from kir.ir.bindings.statics import Statics
from kir.ir.build import row_major
from kir.ir.canonical import bound_names, outer_names, rename
from kir.ir.dtype_terms import Setting, resolve
from kir.ir.names import Names, unlike
from kir.ir.printer import expr_text
from kir.ir.rebuild.product import accumulate_in_place
from kir.ir.rebuild.promote import promoted
from kir.ir.rules.hygiene import taken_twice
from kir.ir.types import BOOL, DTYPES, F32, I32, I64, DType, TileType, Type, dtype_of
from kir.ir.visit import statements, transform, walk

WARP = 32


def specialize(program: n.Program, binding: Binding) -> n.Program:
    """The program under the binding. Raises KirError KIR-F011 (a name or expression of the binding is wrong), KIR-F012 (something that
    the program needs is not bound), KIR-F013 (what the binding says makes the program ill-typed) and KIR-V004 (a name means two things)."""
    if clashes := tuple(taken_twice(program)):
        raise KirError(*clashes)
    check_uses(program, binding)
    try:
        made = _Specializer(program, binding).run()
    except KirError as bad:  # a name that is not defined, and a size that nothing is over: either may be the other, misspelt
        if bad.diagnostics[0].id in ("KIR-F011", "KIR-F012"):
            raise KirError(*dict.fromkeys((*bad.diagnostics, *idle_sizes(program, binding)))) from bad
        raise
    check_made(made, binding, {"num_warps", "num_stages"} <= {m.name for m in program.metas})
    check_roles(made, binding, {k: t.name or k for k, t in binding.tensors.items()})
    return made


def zero_elsewhere(old: n.Node, new: n.Node) -> n.Node:
    """A masked or clipped load of global memory that does not say what it gives elsewhere: zero, as compiled code and Triton's own
    interpreter have it. A function for `transform`."""
    if isinstance(new, n.Load) and (new.mask is not None or new.clip) and new.other is None and new.at.buffer.space == "global":
        return replace(new, other=build.cast(build.const(0), dtype_of(new.type)))
    return new


def _apart(program: n.Program, binding: Binding) -> n.Program:
    """The program with other names for what its kernels call as the binding calls a size or a tensor."""
    new = ({*binding.sizes} | {t.name for t in binding.tensors.values() if t.name}) - outer_names(program)

    def away(own: list[str]) -> dict[str, str]:
        taken, names = {*own, *new, *outer_names(program)}, {}
        for x in own:
            if x in new:
                names[x] = unlike(x, taken)
                taken.add(names[x])
        return names
    kernels = tuple(rename(k, away([*(a.name for a in k.grid), *bound_names(k.body)])) for k in program.kernels)
    functions = tuple(rename(f, away([*(x.name for x in f.params), *bound_names(f.body)])) for f in program.functions)
    same = all(a is b for a, b in zip((*kernels, *functions), (*program.kernels, *program.functions), strict=True))
    return program if same else replace(program, kernels=kernels, functions=functions)


def _every_name(program: n.Program, binding: Binding) -> set[str]:
    """All names of a program and of what it is bound to."""
    out = {*outer_names(program), *binding.sizes, *(t.name for t in binding.tensors.values() if t.name)}
    for k in program.kernels:
        out |= {*(a.name for a in k.grid), *bound_names(k.body)}
    for f in program.functions:
        out |= {*(x.name for x in f.params), *bound_names(f.body)}
    return out


class _Specializer:
    def __init__(self, program: n.Program, binding: Binding) -> None:
        self.program, self.binding = _apart(program, binding), binding
        self.names = Names(_every_name(self.program, binding))
        self.settings: dict[str, Setting] = {}
        self.dtypes: dict[str, DType] = {}
        self.values: dict[str, n.Expr] = {}
        self.buffers: dict[str, n.Buffer] = {}
        self.views: list[n.View] = []
        self.extents: list[tuple[tuple[str | int, ...], n.Expr]] = []
        """Extents of tensors and of the grid, with where the binding states them."""

    def run(self) -> n.Program:
        self.metas()
        sizes = {x: n.Var(x, I32) for x in self.binding.sizes}
        params = [n.Param(x, "size", I32) for x in self.binding.sizes]
        known = {**sizes, **{k: v for k, v in self.values.items() if isinstance(v, n.Const) and v.dtype == I32}}
        self.narrow(known)
        params += self.scalars(sizes, known)
        params += self.tensors(known)
        self.grid(known)
        if idle := idle_sizes(self.program, self.binding):
            raise KirError(*idle)
        self.derived_dtypes()
        functions, kernels = [], []
        for f in self.program.functions:
            functions.append(self.function(f))
        for k in self.program.kernels:
            kernels.append(self.kernel(k, known))
        own = {p.name: n.Var(p.name, p.of) for p in params if p.role == "size" and isinstance(p.of, DType) and p.of == I32}
        facts = fact_expressions(self.binding.facts, {**sizes, **own}, lambda number: self.binding.at("facts", number))
        check_facts(self.binding, facts)
        check_extents(self.binding, facts, self.extents)
        renamed = {k: t.name for k, t in self.binding.tensors.items() if t.name}
        maps = tuple(replace(m, of=renamed.get(m.of, m.of)) for m in self.program.tensor_maps)
        made = replace(self.program, metas=(), params=tuple(params), facts=facts, tensor_maps=maps, functions=tuple(functions), kernels=tuple(kernels))
        made = settled(made, self.settings)
        used = {x.fn for k in made.kernels for s in k.body for x in walk(s) if isinstance(x, n.Call)}
        used |= {
            str(v) for k in made.kernels for s in k.body for x in walk(s) if isinstance(x, n.Call) for key, v in x.attrs if key == "combine"
        }
        made = replace(made, functions=tuple(f for f in made.functions if f.name in used))
        filled: n.Program = transform(made, zero_elsewhere) if self.binding.elsewhere == "zero" else made
        return filled

    # ------------------------------------------------------------------------------------------------------------ the header
    def metas(self) -> None:
        b = self.binding
        missing = []
        for m in self.program.metas:
            if m.kind == "dtype" and isinstance(m.default, str) and "(" in m.default:
                continue
            if m.name in b.sizes and m.name not in b.metas:
                self.values[m.name] = n.Var(m.name, I32)
                continue
            if m.name not in b.metas and isinstance(text := b.scalars.get(m.name), str):
                self.values[m.name] = expressions({m.name: text}, {x: n.Var(x, I32) for x in b.sizes}, "scalar")[m.name]
                continue
            if m.name in b.metas:
                value: Setting = b.metas[m.name]
            elif m.name in b.options:
                value = b.options[m.name]
            elif m.name in b.absent:
                value = None
            elif m.default is not None or m.kind in ("any", "str", "fn"):
                value = m.default
            else:
                missing.append(m.name)
                continue
            self.setting(m, value)
        if missing := [x for x in missing if x not in unmentioned(self.program, set(missing))]:
            raise error(
                "KIR-F012",
                f"the binding gives no value for {', '.join(missing)}",
                origin=b.at("metas"),
                needs="an entry under [metas] for each",
                attempt="kir bind FILE::KERNEL, which writes a binding with all that the source leaves open",
                subject=self.program.name,
            )
        for name in b.absent:
            self.settings[f"absent:{name}"] = True
        for p in self.program.params:
            self.settings.setdefault(f"absent:{p.name}", False)

    def setting(self, m: n.Meta, value: Setting) -> None:
        self.settings[m.name] = value
        if m.kind == "dtype" or (isinstance(value, str) and m.kind == "any" and value in DTYPES):
            check_dtype(str(value), f"meta '{m.name}'", self.binding.at("metas", m.name))
            self.dtypes[m.name] = DTYPES[str(value)]
        elif isinstance(value, bool):
            self.values[m.name] = build.const(value, BOOL) if m.kind != "int" else build.const(int(value), I32)
            self.dtypes[m.name] = BOOL
        elif isinstance(value, int):
            dtype = BOOL if m.kind == "bool" else F32 if m.kind == "float" else I32 if -(2**31) <= value < 2**31 else I64
            self.values[m.name] = build.const(value, dtype)
            self.dtypes[m.name] = dtype
        elif isinstance(value, float):
            self.values[m.name] = build.const(value, F32)
            self.dtypes[m.name] = F32
        elif value is None:
            # Questions about what is left out are answered by its setting, the name itself holds no number.
            self.values[m.name] = build.const(0, I32) if m.kind != "bool" else build.const(False, BOOL)

    def narrow(self, known: Mapping[str, n.Expr]) -> None:
        """Raises KirError KIR-F011 for a meta that stands in an expression of the binding and is no whole number of 32 bits."""
        b = self.binding
        used = words([*b.grid, *b.scalars.values(), *(x for t in b.tensors.values() for x in (*t.shape, *(t.strides or ())))])
        for name in b.metas:
            if name in used and name not in known and name not in b.scalars:
                raise b.refusal(("metas", name), "KIR-F011", f"'{name}' = {shown(b.metas[name])} stands in an expression of the binding",
                                needs="a whole number of 32 bits")

    def scalars(self, sizes: Mapping[str, n.Expr], known: Mapping[str, n.Expr]) -> list[n.Param]:
        b = self.binding
        out = []
        texts = {k: v for k, v in b.scalars.items() if isinstance(v, (str, int))}
        given = expressions(texts, known, "scalar", lambda key: b.at("scalars", key))
        for p in self.program.params:
            if isinstance(p.of, n.Buffer) or dict(p.attrs).get("implicit"):
                continue
            dtype = p.of
            if p.name in b.dtypes:
                dtype = self.scalar_dtype(p, dtype)
            if p.name in sizes:
                if dtype.is_symbolic:
                    dtype = I32
                self.values[p.name] = build.cast(sizes[p.name], dtype)
                self.dtypes[p.name] = dtype
                continue
            if p.name in given:
                if dtype.is_symbolic:
                    dtype = I32
                self.fitting(p.name, given[p.name], dtype)
                self.values[p.name] = build.cast(given[p.name], dtype)
            elif p.name in b.scalars:
                dtype = F32 if dtype.is_symbolic else dtype
                self.fitting(p.name, build.const(float(b.scalars[p.name]), F32), dtype)
                self.values[p.name] = build.const(b.scalars[p.name], dtype)  # type: ignore[arg-type]  # a float: the texts are in given
            elif p.name in b.absent:
                self.values[p.name] = build.const(0, I32)
                dtype = I32
            elif p.name in b.tensors:
                continue
            else:
                if dtype.is_symbolic:
                    if _used(self.program, p.name):
                        raise error(
                            "KIR-F012",
                            f"the binding gives no value or dtype for the scalar '{p.name}'",
                            origin=b.at("scalars"),
                            needs="an entry under [scalars], [dtypes] or sizes",
                            subject=self.program.name,
                        )
                    continue
                out.append(n.Param(p.name, p.role if p.role == "size" and dtype.is_integer else "scalar", dtype))
                self.values[p.name] = n.Var(p.name, dtype)
            if p.name in b.dtypes and p.name not in b.scalars and p.name not in {q.name for q in out}:
                out.append(n.Param(p.name, "scalar", dtype))
            self.dtypes[p.name] = dtype
            if p.name in b.dtypes and p.name not in b.scalars:
                self.values[p.name] = n.Var(p.name, dtype)
        return out

    def scalar_dtype(self, p: n.Param, declared: DType) -> DType:
        """The dtype that the binding gives a scalar. One that the source declares stands: a caller's integer is converted to it. Raises
        KirError KIR-F011 where the binding says something else than a number of that kind."""
        said = self.binding.dtypes[p.name]
        wanted = DTYPES[said]
        if declared.is_symbolic:
            return wanted
        if (wanted.is_integer, wanted.is_float) != (declared.is_integer, declared.is_float) or (wanted != declared and not self.binding.recorded):
            raise self.binding.refusal(
                ("dtypes", p.name), "KIR-F011", f"the source declares '{p.name}' as {declared}, and the binding says {wanted}",
                subject=self.program.name, needs="no entry under [dtypes] for what the source declares itself")
        return declared

    def fitting(self, name: str, value: n.Expr, dtype: DType) -> None:
        """Raises KirError KIR-F011 for a scalar whose value its dtype cannot hold: a fraction or text of an integer, a number beyond its range."""
        given = value.value if isinstance(value, n.Const) else None
        kind = dtype_of(value.type)
        low, high = (-(1 << dtype.bits - 1), 1 << dtype.bits) if dtype.is_integer else (0, 0)
        if dtype.is_integer and (kind.is_float or (given is not None and not low <= given < high)):
            raise self.binding.refusal(("scalars", name), "KIR-F011", f"the scalar '{name}' is {dtype}, and the binding says {self.binding.scalars[name]}",
                                       subject=self.program.name, needs="a whole number in its range, or an expression over the sizes")

    def untouched(self, p: n.Param, known: Mapping[str, n.Expr]) -> n.Param:
        """A tensor that the source, which does not declare it, never touches."""
        t = self.binding.tensors[p.name]
        check_dtype(t.dtype, f"tensor '{p.name}'", self.binding.at("tensors", p.name, "dtype"))
        shape = self.whole(p.name, "shape", t.shape, known)
        strides = self.whole(p.name, "strides", t.strides, known) if t.strides is not None else None
        self.dtypes[p.name] = DTYPES[t.dtype]
        self.extents += [(("tensors", p.name, "shape", i), x) for i, x in enumerate(shape)]
        buffer = n.Buffer(t.name or p.name, DTYPES[t.dtype], shape, "global", None, None if strides == row_major(shape) else strides, t.align)
        return n.Param(buffer.name, t.role or "in", buffer, attrs=n.attrs(**dict(p.attrs), exact=True) if t.exact else p.attrs)  # type: ignore[arg-type]  # a role

    def aligned(self, p: n.Param, align: int) -> n.Attrs:
        """The attributes of a parameter without what the source was read to be aligned to. Raises KirError KIR-F011 where the binding gives less."""
        attrs = dict(p.attrs)
        if (taken := attrs.pop("aligned", 0)) and (not isinstance(taken, int) or taken > align):
            raise self.binding.refusal(("tensors", p.name, "align"), "KIR-F011",
                                       f"tensor '{p.name}' is aligned to {align} bytes, and the kernel was read where it is aligned to {taken}",
                                       needs="the kernel read under this binding")
        return n.attrs(**attrs)

    def tensors(self, known: Mapping[str, n.Expr]) -> list[n.Param]:
        b = self.binding
        out = []
        for p in self.program.params:
            if not isinstance(p.of, n.Buffer):
                if p.name in b.tensors and not b.recorded:
                    out.append(self.untouched(p, known))
                continue
            if p.name in b.absent:
                self.dtypes[p.name] = F32
                self.buffers[p.name] = replace(p.of, dtype=F32, shape=(build.const(1),) * len(p.of.shape))
                continue
            if self.is_stated(p.of) and not (p.name in b.tensors and b.tensors[p.name].shape):
                out.append(self.stated(p))
                continue
            if p.name not in b.tensors:
                raise error(
                    "KIR-F012",
                    f"the binding gives no shape for the tensor '{p.name}'",
                    origin=b.at("tensors"),
                    needs=f"a table [tensors.{p.name}], or its name under absent",
                    subject=self.program.name,
                )
            t = b.tensors[p.name]
            check_dtype(t.dtype, f"tensor '{p.name}'", b.at("tensors", p.name, "dtype"))
            dtype = DTYPES[t.dtype]
            if not p.of.dtype.is_symbolic and p.of.dtype != dtype:
                raise b.refusal(("tensors", p.name, "dtype"), "KIR-F011", f"tensor '{p.name}' is {p.of.dtype} in the source, and {dtype} in the binding")
            self.dtypes[p.name] = dtype
            shape = self.whole(p.name, "shape", t.shape, known)
            if self.is_stated(p.of):
                self.agreeing(p, shape)
            self.extents += [(("tensors", p.name, "shape", i), x) for i, x in enumerate(shape)]
            strides = None
            if t.strides is not None:
                strides = self.whole(p.name, "strides", t.strides, known)
                if strides == row_major(shape):
                    strides = None
            name, attrs = t.name or p.name, self.aligned(p, t.align)
            buffer = n.Buffer(name, dtype, shape, "global", None, strides, t.align)
            role = t.role or p.role
            exact = n.attrs(**dict(attrs), exact=True) if t.exact else attrs
            out.append(n.Param(name, role, buffer, attrs=exact))  # type: ignore[arg-type]  # checked above
            if self.is_stated(p.of) and len(p.of.shape) > 1 and (seen := self.as_written(p.of, buffer)) is not None:
                self.buffers[p.name] = seen
                self.views.append(n.View(seen, n.Region(buffer)))
                continue
            if len(p.of.shape) == len(shape) and (strides is None or len(shape) > 1):
                self.buffers[p.name] = buffer
                for own, actual in zip(p.of.shape, shape, strict=True):
                    if isinstance(own, n.Var):
                        self.values[own.name] = build.cast(actual, own.of if isinstance(own.of, DType) else I32)
                continue
            extent: n.Expr = build.const(1)
            for d, s in zip(shape, strides or row_major(shape), strict=True):
                extent = build.add(extent, build.mul(build.sub(d, 1), s))
            flat = n.Buffer(self.names.fresh(f"{name}_flat"), dtype, (extent,), "global")
            self.buffers[p.name] = flat
            self.views.append(n.View(flat, n.Region(buffer)))
            if len(p.of.shape) == 1 and isinstance(own := p.of.shape[0], n.Var):
                self.values[own.name] = build.cast(extent, own.of if isinstance(own.of, DType) else I64)
        return out

    def as_written(self, of: n.Buffer, buffer: n.Buffer) -> n.Buffer | None:
        """A tensor in the shape in which the source declares and addresses it, where the binding gives its memory another; None where both
        have the same. An extent that nothing else gives is what the binding says."""
        if len(of.shape) == len(buffer.shape):
            for own, actual in zip(of.shape, buffer.shape, strict=True):
                if isinstance(own, n.Var) and own.name not in self.values:
                    self.values[own.name] = build.cast(actual, own.of if isinstance(own.of, DType) else I32)
        s = self.statics()
        shape = s.buffer(of).shape
        strides = row_major(shape) if of.strides is None else tuple(s.expr(d) for d in of.strides)
        if (shape, strides) == (buffer.shape, buffer.strides or row_major(buffer.shape)):
            return None
        return n.Buffer(f"{buffer.name}_view", buffer.dtype, shape, "global", None, None if strides == row_major(shape) else strides)

    def agreeing(self, p: n.Param, shape: tuple[n.Expr, ...]) -> None:
        """Raises KirError KIR-F011 where the binding gives a tensor another number of elements than the source: the same memory may have any shape, but
        not another size. What quotients decide is not compared."""
        assert isinstance(p.of, n.Buffer)
        s = self.statics()
        if len(p.of.shape) == 1 or not all(not isinstance(x, n.Var) or x.name in self.values for d in p.of.shape for x in walk(d)):
            return
        stated = tuple(s.expr(d) for d in p.of.shape)
        ours, theirs = (_elements(x) for x in (stated, shape))
        if ours == theirs or any(isinstance(x, n.Binary) and x.op in QUOTIENTS for e in (ours, theirs) for x in walk(e)):
            return
        differ = [i for i, (a, b) in enumerate(zip(stated, shape, strict=False)) if a != b] if len(stated) == len(shape) else []
        at, place, counts = ("tensors", p.name, "shape"), f"the tensor '{p.name}' has", (expr_text(ours), expr_text(theirs))
        if len(differ) != 1:
            raise self.binding.refusal(at, "KIR-F011", f"{place} {counts[0]} elements in the source, and {counts[1]} in the binding", needs="the same number")
        axis = differ[0]
        said = f"axis {axis} of the tensor '{p.name}' is {expr_text(stated[axis])} in the source, and {expr_text(shape[axis])} in the binding"
        raise self.binding.refusal((*at, axis), "KIR-F011", said, needs="no shape, or the source's own")

    def whole(self, name: str, field: str, texts: list[str | int], known: Mapping[str, n.Expr]) -> tuple[n.Expr, ...]:
        """Extents or strides of a tensor. Raises KirError KIR-F011 for an expression that is no whole number."""
        out = expressions({f"{name}.{field}[{i}]": x for i, x in enumerate(texts)}, known, "tensor",
                          lambda key: self.binding.at("tensors", name, field, _last(key)))
        for i, e in enumerate(out.values()):
            if not dtype_of(e.type).is_integer:
                raise self.binding.refusal(("tensors", name, field, i), "KIR-F011", f"{field}[{i}] of the tensor '{name}' is no whole number: {texts[i]}",
                                           needs="an expression over the sizes, such as ceildiv(N, 2)")
        return tuple(out.values())

    def is_stated(self, b: n.Buffer) -> bool:
        """Whether the source itself says what shape a tensor has: no extent is implicit."""
        return not any(isinstance(x, n.Var) and x.name in self.implicit for d in (*b.shape, *(b.strides or ())) for x in walk(d))

    @cached_property
    def implicit(self) -> frozenset[str]:
        """Sizes that the source does not have: only the binding says what they are."""
        return frozenset(p.name for p in self.program.params if dict(p.attrs).get("implicit"))

    def stated(self, p: n.Param) -> n.Param:
        """A tensor with the shape, strides and dtype of the source; a table of the binding may rename it."""
        assert isinstance(p.of, n.Buffer)
        t = self.binding.tensors.get(p.name)
        s = self.statics()
        buffer = s.buffer(p.of)
        strides = None if p.of.strides is None else tuple(s.expr(d) for d in p.of.strides)
        if strides == row_major(buffer.shape):
            strides = None
        name = t.name if t is not None and t.name else p.name
        role = t.role if t is not None and t.role else p.role
        if t is not None and t.dtype and DTYPES[t.dtype] != buffer.dtype:
            raise self.binding.refusal(("tensors", p.name, "dtype"), "KIR-F011",
                                       f"tensor '{p.name}' is {buffer.dtype} in the source, and {t.dtype} in the binding")
        if t is not None and t.strides is not None:
            raise self.binding.refusal(("tensors", p.name, "strides"), "KIR-F011", f"the source says itself what the strides of '{p.name}' are",
                                       needs="no such line")
        buffer = replace(buffer, name=name, strides=strides, align=t.align if t is not None else 16)
        attrs = self.aligned(p, buffer.align)
        self.dtypes[p.name] = buffer.dtype
        self.buffers[p.name] = buffer
        exact = n.attrs(**dict(attrs), exact=True) if t is not None and t.exact else attrs
        return n.Param(name, role, buffer, attrs=exact)  # type: ignore[arg-type]  # checked above

    def grid(self, known: Mapping[str, n.Expr]) -> None:
        if not self.binding.grid and not any(self.mentions_implicit(a.extent) for k in self.program.kernels for a in k.grid):
            return
        if not self.binding.grid:
            raise error(
                "KIR-F012", "the binding gives no grid", origin=self.binding.at("grid"), subject=self.program.name,
                needs='grid = [".."], an expression for each axis',
            )
        given = expressions({f"grid[{i}]": x for i, x in enumerate(self.binding.grid)}, known, "grid", lambda key: self.binding.at("grid", _last(key)))
        self.extents += [(("grid", i), x) for i, x in enumerate(given.values())]
        for kernel in self.program.kernels:
            for i, a in enumerate(kernel.grid):
                if isinstance(a.extent, n.Var) and a.extent.name in self.implicit:
                    self.values[a.extent.name] = given.get(f"grid[{i}]", build.const(1))

    def mentions_implicit(self, e: n.Expr) -> bool:
        """Whether an expression depends on what the source leaves open."""
        return any(isinstance(x, n.Var) and x.name in self.implicit for x in walk(e))

    def derived_dtypes(self) -> None:
        for m in self.program.metas:
            if m.kind == "dtype" and isinstance(m.default, str) and "(" in m.default:
                self.dtypes[m.name] = resolve(DType(m.default, "symbolic", 0), self.dtypes, self.settings)

    # --------------------------------------------------------------------------------------------------------------- bodies
    def statics(self) -> Statics:
        return Statics(self.dtypes, self.settings, dict(self.values), dict(self.buffers), set(self.names.taken), self.at)

    def at(self, name: str) -> Origin | None:
        """Where the binding says what a meta is."""
        for section in ("metas", "heuristics", "options"):
            if name in getattr(self.binding, section):
                return self.binding.at(section, name)
        return None

    def function(self, f: n.Function) -> n.Function:
        s = self.statics()
        params: list[n.Var | n.Buffer] = []
        for x in f.params:
            if isinstance(x, n.Buffer):
                made_buffer = s.buffer(x)
                s.buffers[x.name] = made_buffer
                params.append(made_buffer)
            else:
                made = n.Var(x.name, self.type(x.of))
                s.values[x.name] = made
                params.append(made)
        body = s.block(f.body)
        return replace(f, params=tuple(params), results=tuple(self.type(t) for t in f.results), body=promoted(body))

    def type(self, t: Type) -> Type:
        if isinstance(t, DType):
            return resolve(t, self.dtypes, self.settings)
        if isinstance(t, TileType):
            return TileType(resolve(t.dtype, self.dtypes, self.settings), t.shape)
        return t

    def kernel(self, k: n.Kernel, known: Mapping[str, n.Expr]) -> n.Kernel:
        s = self.statics()
        for a in k.grid:
            s.values[a.name] = n.Var(a.name, I32)
        body = s.block(k.body)
        used = {x.buffer.name for st in statements(body) for x in walk(st) if isinstance(x, n.Region)}
        views = tuple(v for v in self.views if v.buffer.name in used)
        names = frozenset({a.name for a in k.grid} | {p.name for p in self.program.params} | set(self.binding.sizes)
                          | {t.name for t in self.binding.tensors.values() if t.name})
        made = promoted((*views, *body), names)
        made = promoted(accumulate_in_place(made), names)
        stages = self.settings.get("num_stages")
        if isinstance(stages, int) and stages > 1 and self.implicit:
            made = pipelined(made, stages)
        grid = tuple(n.Axis(a.name, s.expr(a.extent)) for a in k.grid)
        threads = self.binding.options.get("threads")
        return replace(k, grid=grid, threads=build.const(threads) if isinstance(threads, int) else s.expr(k.threads), body=made)


QUOTIENTS = frozenset({"floordiv", "ceildiv", "mod", "tdiv", "trem", "min", "max"})
"""Operations after which two numbers of elements are not compared: facts may make them equal."""


def _elements(shape: tuple[n.Expr, ...]) -> n.Expr:
    """The number of elements of a shape, in normal form."""
    total: n.Expr = build.const(1)
    for d in shape:
        total = build.mul(total, d)
    return total



def pipelined(block: n.Block, stages: int) -> n.Block:
    """Serial loops that hold a product directly, as Triton pipelines them when a launch has that many stages."""
    out: list[n.Stmt] = []
    for s in block:
        match s:
            case n.For():
                body = pipelined(s.body, stages)
                direct = any(isinstance(x, n.Mma) for x in body)
                if s.kind == "serial" and direct:
                    s = replace(s, kind="pipelined", attrs=n.attrs(**{**dict(s.attrs), "stages": stages}))
                out.append(replace(s, body=body))
            case n.While():
                out.append(replace(s, body=pipelined(s.body, stages)))
            case n.If():
                out.append(replace(s, then=pipelined(s.then, stages), orelse=pipelined(s.orelse, stages)))
            case _:
                out.append(s)
    return tuple(out)


def _used(program: n.Program, name: str) -> bool:
    return any(isinstance(x, n.Var) and x.name == name for k in program.kernels for s in k.body for x in walk(s))


def _last(key: str) -> int:
    """The number in brackets that a key ends with."""
    return int(key[key.rindex("[") + 1: -1])
