"""What the rest of KIR sees of this frontend."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError, did_you_mean, error, usage
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.binding import Binding
from kir.ir.bindings.binding_values import check_launch, check_values, shown, wrong
from kir.ir.nodes import Program
from kir.ir.types import BOOL, DTYPES
from kir.ir.visit import walk
from kir.surface import KernelRef
from kir.surface.launches.assembled import Found, assembled
from kir.surface.launches.record import HostLaunch, Specialization
from kir.surface.launches.values import Value as HostValue

from .kernel import read_kernel
from .launch.arguments import compile_time, named_arguments, with_members
from .launch.binding_skeleton import UNKNOWN, skeleton
from .launch.class_arguments import offered
from .launch.dispatch import Written
from .launch.entries import cuda_calls, cuda_launches
from .launch.geometry import BLOCK, Geometry, words_of
from .launch.host_parts import Passed
from .launch.specializations import specializations, with_bytes_guessed
from .reader import reading
from .source.source import Node, Sources, Unit, fragment_arguments, fragment_type, unit_of
from .source.syntax import declared_name, text
from .source.tree import project_of
from .suffixes import SUFFIXES
from .symbols.index import Index
from .symbols.overloaded import named, of_signature, signature
from .symbols.symbols import Bindings, Function, Scope, TParam, Value
from .symbols.template_candidates import samples
from .types.c_types import Prim
from .types.errors import NotUnderstood
from .values.loads import rvalue
from .values.reading import Reading
from .values.shared_pool_views import in_pool
from .values.values import Scalar, TypeName, constant

DEFAULT_TARGET = "sm_80"


@dataclass(frozen=True)
class Opened:
    """A translation unit: its files, and what they declare."""

    sources: Sources
    index: Index
    main: Unit

    def kernels(self) -> list[Function]:
        """The kernels that the file itself defines, in order."""
        found = [f for fs in self.index.functions.values() for f in fs if f.kernel and f.body is not None and f.unit is self.main]
        return sorted(found, key=lambda f: f.node.start_byte)


    def bring(self, path: Path) -> None:
        """A further file, with what it includes, where it can be read."""
        before = len(self.sources.units)
        if path.resolve() not in self.sources.seen:
            with suppress(KirError):
                self.sources.read(path, 1)
            for unit in self.sources.units[before:]:
                self.index.add(unit)


MOST_KEPT = 8
"""Programs that were read last and are kept."""


class CudaFrontend:
    """Reads kernels of CUDA C++ from source."""

    surface = "cuda"
    finds = "a __global__ function"
    suffixes = SUFFIXES

    def __init__(self) -> None:
        self._opened: dict[tuple[str, str, int], Opened] = {}
        self._kept: list[tuple[Opened, Function, object, Program]] = []

    def open(self, source: Path, target: str = DEFAULT_TARGET) -> Opened:
        """A file with its includes. Raises KirError KIR-F201 to KIR-F206."""
        try:
            stamp = source.stat().st_mtime_ns
        except OSError as bad:
            raise error("KIR-F201", f"{source.name} cannot be read: {bad.__class__.__name__}") from bad
        key = (str(source), target, stamp)
        if key not in self._opened:
            sources, main = unit_of(source, target)
            index = Index()
            for unit in sources.units:
                index.add(unit)
            if len(self._opened) > 16:
                self._opened.clear()
            self._opened[key] = Opened(sources, index, main)
        return self._opened[key]

    def kernels(self, source: Path) -> tuple[KernelRef, ...]:
        """The kernels of a file, in order. Raises KirError KIR-F201 to KIR-F208 when it cannot be read."""
        opened = self.open(source)
        found = opened.kernels()
        if not found and b"__global__" in opened.main.mapped.source.encode():
            _whole(opened, None)
        return tuple(KernelRef(name, str(source), opened.main.origin(f.node).line, self.surface) for name, f in named(found))

    def parse(self, source: Path, kernel: str) -> Program:
        """The program of one kernel, `name` or `name<arguments>`; a template without arguments stays opaque. Raises KirError KIR-F201 to
        KIR-F210."""
        return self.instantiate(source, kernel, None)

    def instantiate(self, source: Path, kernel: str, binding: Binding | None) -> Program:
        """`parse` under a binding: its metas name template arguments and the block, its option `target` the architecture."""
        if binding is not None:
            check_values(binding)
        target = str(binding.options.get("target", DEFAULT_TARGET)) if binding is not None else DEFAULT_TARGET
        try:
            opened = self.open(source, target)
        except KirError as bad:
            if binding is not None and "target" in binding.options and bad.diagnostics[0].id == "KIR-F206":
                raise KirError(*(replace(d, origin=binding.at("options", "target")) for d in bad.diagnostics)) from bad
            raise
        name, given = split_name(kernel)
        fn = self._find(opened, source, name)
        _whole(opened, fn)
        try:
            fn, bindings = _overload(opened, fn, given, binding)
        except NotUnderstood as bad:
            origin = fn.unit.origin(fn.node)
            raise error("KIR-F209", f"'{name}' has no such instantiation: {bad.reason}", origin=origin, needs=_wanted(fn)) from bad
        metas = binding.metas if binding is not None else {}
        words = words_of(fn)
        if binding is not None:
            check_launch(binding, words)
        block = {b: int(metas[words[b]]) for b in BLOCK if words[b] in metas and isinstance(metas[words[b]], int)}
        if binding is not None and "threads_x" not in block and isinstance(threads := binding.options.get("threads"), int):
            block["threads_x"] = threads
        if "threads_x" in block:
            block.setdefault("threads_y", 1)
            block.setdefault("threads_z", 1)
        absent = frozenset(binding.absent) if binding is not None else None
        shared = metas.get(words["shared_bytes"])
        program = self._read_once(opened, fn, bindings, block, absent, shared if isinstance(shared, int) else None, binding)
        if isinstance(shared, int) and binding is not None:
            for s in (s for k in program.kernels for x in k.body for s in walk(x)):
                if isinstance(s, n.Opaque) and s.reason.endswith(in_pool(shared)):
                    raise wrong(binding, ("metas", words["shared_bytes"]), f"shared_bytes = {shared} is too small: {s.reason}", "bytes for all of them")
        return program if binding is None else replace(program, metas=tuple(
            replace(m, default=metas[m.name]) if m.name in metas else m for m in program.metas))  # read with these values

    def _read_once(self, opened: Opened, fn: Function, bindings: Bindings | None, block: dict[str, int], absent: frozenset[str] | None, shared: int | None,
                   binding: Binding | None) -> Program:
        """`read_kernel`, of the same kernel under the same values once: bindings that differ in shapes and facts alone are tried one after the other."""
        said = None if binding is None else (binding.arrays, binding.maps, {k: (t.align, t.dtype, len(t.shape)) for k, t in binding.tensors.items()})
        key = (bindings, block, absent, shared, said)
        for of, which, held, made in self._kept:
            if of is opened and which is fn and held == key:
                return made
        made = read_kernel(opened.sources, opened.index, fn, bindings, block, absent, shared, binding)
        self._kept = [*self._kept[1 - MOST_KEPT:], (opened, fn, key, made)]
        return made

    def samples(self, source: Path, kernel: str) -> tuple[str, ...]:
        """Names under which a template may be tried when nobody names arguments (`kernel<half, 8>`), to measure what of a package is read;
        the plain name of a kernel that is no template. Raises KirError KIR-F201 to KIR-F208."""
        fn = self._find(self.open(source), source, split_name(kernel)[0])
        return tuple(f"{fn.name}<{words}>" for words in samples(fn)) or (fn.name,)

    def skeleton(self, source: Path, kernel: str) -> Binding:
        """A binding with what the source says, and "?" where a person must decide. Raises KirError KIR-F201 to KIR-F210."""
        opened = self.open(source)
        name, given = split_name(kernel)
        fn = self._find(opened, source, name)
        program = self.parse(source, kernel)
        return skeleton(opened.main, fn, program, self._roles(source, fn) if fn.params and given is None else None)

    def launches(self, source: Path, kernel: str) -> list[Found]:
        """What each launch of a kernel that the C++ around it shows says of it. Raises KirError KIR-F201 to KIR-F210."""
        opened = self.open(source)
        fn = self._find(opened, source, split_name(kernel)[0])
        found = cuda_launches(opened.sources, opened.main, source, fn.name)
        return [self._assembled(source, kernel, fn, each) for each in found]

    def enough(self, each: Specialization) -> Specialization | None:
        """A specialization that was refused for its bytes of shared memory with more of them, which are guessed; None where there are no more."""
        return with_bytes_guessed(each)

    def specializations(self, source: Path, part: tuple[int, int] = (0, 1)) -> list[Specialization]:
        """Every specialization of the file's kernels that the project around it names, and a guess for each kernel that it says nothing of; of part k of m
        those of every m-th kernel from the k-th on. Raises KirError KIR-F201 to KIR-F210."""
        opened = self.open(source)

        def is_read(name: str) -> bool:
            try:
                program = self.parse(source, name)
            except KirError:
                return False
            return not any(isinstance(x, n.Opaque) for k in program.kernels for x in walk(k))

        def means(fn: Function, p: TParam, words: str) -> bool:
            if p.kind == "type" and words in DTYPES:
                return True
            try:
                _argument(reading(opened.sources, opened.index, Geometry((_ONE, _ONE, _ONE))), p.kind, words, fn.scope.inner())
            except (NotUnderstood, KirError, ValueError):
                return False
            return True

        def offers(fn: Function) -> dict[str, list[str]]:
            """Classes for the parameters of a template; the file of each becomes one of this translation unit."""
            if not fn.params:
                return {}
            if opened.sources.project is None:
                opened.sources.project = project_of(source)
            found = offered(fn, opened.index, opened.sources.units, opened.sources.project)
            for path in dict.fromkeys(path for each in found.values() for paths, _ in each for path in paths):
                opened.bring(path)
            kinds = {p.name: p for p in fn.params}
            return {name: [made for _, made in each if means(fn, kinds[name], made)] for name, each in found.items()}

        return list(specializations(opened.sources, opened.main, source, opened.kernels(), is_read, means, offers, part))

    def calls(self, source: Path, function: str, arguments: Sequence[Passed]) -> list[tuple[str, Binding | None]]:
        """The kernels that one call of a host function launches, each with the binding of that launch (None where the call does not tell it all)."""
        opened = self.open(source)
        out: list[tuple[str, Binding | None]] = []
        for each in cuda_calls(opened.sources, opened.main, source, function, arguments):
            fn = next((f for f in opened.kernels() if f.name == each.kernel), None)
            if fn is not None:
                made = self._assembled(source, fn.name, fn, each)
                out.append((fn.name, None if made.open else made.binding.changed(recorded=True)))
        return out

    def _assembled(self, source: Path, kernel: str, fn: Function, launch: HostLaunch) -> Found:
        skeleton = self.skeleton(source, kernel)
        kinds = {p.name: p for p in fn.params or ()}
        opened = self.open(source)
        metas = {k: (v.reason if kinds[k].kind == "type" or kinds[k].function else _number(opened, fn, v)) if isinstance(v, Written) and k in kinds else v
                 for k, v in compile_time(fn, launch).items()}
        more = {k: UNKNOWN for k in metas if k not in skeleton.metas and k not in {p.name for p in fn.params or ()}}
        tensors = {k: replace(t, role="" if fn.params else t.role) for k, t in skeleton.tensors.items()}
        whole = with_members(skeleton.changed(metas={**skeleton.metas, **more}, tensors=tensors), fn, launch)
        return assembled(whole, launch, named_arguments(fn, launch), metas)

    def _roles(self, source: Path, fn: Function) -> dict[str, str]:
        """What a template does to its tensors, as the first of its samples that is read shows; of one that is read under none, what is const."""
        for words in samples(fn):
            try:
                program = self.parse(source, f"{fn.name}<{words}>")
            except KirError:
                continue
            if not any(isinstance(x, n.Opaque) for k in program.kernels for x in walk(k)):
                return {p.name: p.role for p in program.params if isinstance(p.of, n.Buffer)}
        names = {name: q for q in fn.parameters() if (d := q.child_by_field_name("declarator")) is not None and (name := text(declared_name(d) or d))}
        return {name: "in" for name, q in names.items() if re.search(r"\bconst\b[^*]*\*", text(q))}

    def _find(self, opened: Opened, source: Path, name: str) -> Function:
        whole, bracket, types = name.partition("(")
        plain = whole.split("::")[-1]
        kernels = opened.kernels()
        found = [f for f in kernels if f.name == plain]
        if bracket and found:
            one = of_signature(found, bracket + types)
            if one is None:
                raise usage("KIR-F208", f"no kernel '{plain}' takes {bracket}{types}", attempt=signature(found[0]),
                            notes=(f"those of the name take {'; '.join(signature(f) for f in found)}",))
            return one
        if not found:
            _whole(opened, None)
            names = [f.name for f in kernels]
            if not names:
                raise error("KIR-F208", f"there is no CUDA kernel in {source.name}", needs="a function declared __global__")
            raise usage("KIR-F208", f"there is no kernel '{plain}' in {source.name}", attempt=did_you_mean(plain, names),
                        notes=(f"its kernels are {', '.join(sorted(set(names)))}",))  # fmt: skip
        return next((f for f in found if f.arguments is None), found[-1])


def _number(opened: Opened, fn: Function, written: Written) -> HostValue:
    """The number that the text of a template argument is where the kernel stands, such as an enumerator; the text where it is none."""
    r = reading(opened.sources, opened.index, Geometry((_ONE, _ONE, _ONE)))
    try:
        found = constant(rvalue(r, _argument(r, "value", written.reason, fn.scope.inner())))
    except (NotUnderstood, KirError, ValueError):
        return written
    return written if found is None else build.const(found)


def split_name(kernel: str) -> tuple[str, str | None]:
    """`k<half, 8>` as name and arguments."""
    m = re.fullmatch(r"([\w:]+?)\s*<(.*)>", kernel.strip(), re.DOTALL)
    return (m[1], m[2]) if m else (kernel.strip(), None)


def _whole(opened: Opened, fn: Function | None) -> None:
    """Raises KirError KIR-F210 for text that is no C++: in the kernel, or (without one) in the file outside functions."""
    unit = opened.main if fn is None else fn.unit
    node = unit.root if fn is None else fn.node
    fault = next(unit.faults(node), None)
    if fault is not None:
        what = f"'{text(fault)}' is missing here" if fault.is_missing else "this is no C++"
        raise error("KIR-F210", what if not fault.is_missing else f"a '{fault.type}' is missing here", origin=unit.origin(fault))


def _wanted(fn: Function) -> str:
    return f"arguments for <{', '.join(p.name for p in fn.params or ())}>"


def _overload(opened: Opened, fn: Function, given: str | None, binding: Binding | None) -> tuple[Function, Bindings | None]:
    """The kernel of a name whose result these template arguments allow (`std::enable_if_t<.., void>`), and the arguments. Raises NotUnderstood where none
    of several does."""
    others = [f for f in opened.kernels() if f.name == fn.name and f.params and f.arguments is None]
    if len(others) < 2 or fn not in others:
        return fn, _arguments(opened, fn, given, binding)
    why: NotUnderstood | None = None
    for each in others:
        bindings = _arguments(opened, each, given, binding)
        kind = each.node.child_by_field_name("type")
        if bindings is None or kind is None:
            return fn, bindings
        r = reading(opened.sources, opened.index, Geometry((_ONE, _ONE, _ONE)))
        try:
            r.types.base_type(kind, each.scope.inner(**bindings))
        except NotUnderstood as bad:
            why = bad
            continue
        return each, bindings
    raise why or NotUnderstood("no overload")


def _arguments(opened: Opened, fn: Function, given: str | None, binding: Binding | None) -> Bindings | None:
    """Template arguments: named after the kernel, else by the binding. None for a template whose arguments are open."""
    if fn.params is None or not fn.params:
        if given is not None:
            raise NotUnderstood("it is no template")
        return {}
    one = Geometry((_ONE, _ONE, _ONE))
    r = reading(opened.sources, opened.index, one)
    scope = fn.scope.inner()
    if given is not None:
        listed = fragment_arguments(given)
        if listed is None:
            raise NotUnderstood(f"<{given}> are no template arguments")
        return r.types.bound(fn.params, r.types.arguments(listed, scope), fn.scope, fn.node)
    if binding is None:
        return None
    known: Bindings = {}
    words = words_of(fn)
    have = {*(p.name for p in fn.params), *(words[b] for b in BLOCK), words["shared_bytes"]}
    for meta in binding.metas:
        if meta not in have:
            raise binding.refusal(("metas", meta), "KIR-F011", f"the template '{fn.name}' has no parameter '{meta}' (metas of the binding)", key=True,
                                  attempt=did_you_mean(meta, have), needs=_wanted(fn))
    for p in fn.params:
        if p.name in binding.metas:
            try:
                known[p.name] = r.types.fitted(p, _argument(r, p.kind, binding.metas[p.name], scope), scope)
            except NotUnderstood as bad:
                raise binding.refusal(("metas", p.name), "KIR-F209", f"'{p.name}' = {shown(binding.metas[p.name])} is no argument of the template "
                                      f"'{fn.name}': {bad.reason}",
                                      needs=_wanted(fn) + ": a dtype or type for a type, a whole number or true or false for a value") from bad
    for q in fn.parameters():
        d, kind = q.child_by_field_name("declarator"), q.child_by_field_name("type")
        name = declared_name(d) if d is not None else None
        if name is None or kind is None or text(name) not in binding.tensors:
            continue
        dtype = DTYPES.get(binding.tensors[text(name)].dtype)
        if dtype is not None and any(p.name == text(kind) and p.kind == "type" for p in fn.params):
            known.setdefault(text(kind), TypeName(Prim(dtype)))
    return r.types.bound(fn.params, (), fn.scope, fn.node, known)


_ONE = build.const(1)


def _argument(r: Reading, kind: str, setting: object, scope: Scope) -> Value:
    """A template argument from the value of a meta: a dtype or type by its name, a number, a bool, or C++ text."""
    if isinstance(setting, bool):
        return Scalar(build.const(setting, BOOL))
    if isinstance(setting, int) and kind != "type":
        return Scalar(build.const(setting))
    if not isinstance(setting, str):
        raise NotUnderstood(f"{setting} is a {'number, and a type is asked for' if kind == 'type' else 'fraction'}")
    words = setting
    if kind == "type" and words in DTYPES:
        return TypeName(Prim(DTYPES[words]))
    if kind == "type":
        node: Node = fragment_type(words)
        return TypeName(r.types.base_type(node, scope))
    listed = fragment_arguments(words)
    if listed is None:
        raise NotUnderstood(f"{words} is no template argument")
    return r.types.arguments(listed, scope)[0]


FRONTEND = CudaFrontend()
