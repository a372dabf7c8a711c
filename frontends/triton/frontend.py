"""What the rest of KIR sees of this frontend."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import libcst as cst

from kir.analysis.heuristics import settled
from kir.base.diagnostic import KirError, did_you_mean, error, usage
from kir.ir.binding import Binding, Setting
from kir.ir.bindings.binding_values import wrong
from kir.ir.nodes import Opaque, Program
from kir.ir.visit import statements
from kir.surface import KernelRef, Outline
from kir.surface.launches.assembled import Found, assembled
from kir.surface.launches.values import FEW
from kir.surface.launches.whole import compared, in_rows

from .._python.outline import outline
from .._python.project import Module, Project, is_jit
from .._python.signature import sizes_of_calls
from .host.classes import needs_object
from .host.scope import HostScope
from .launch.binding import skeleton
from .launch.host_code import triton_launches
from .output.program import given_by_all, is_kernel, read_kernel
from .suffixes import SUFFIXES
from .types.inference import Inference
from .values.values import Items, Jit, NotUnderstood, Value, items_of

MOST_KEPT = 24
"""How many readings of kernels a frontend keeps."""


MOST_LAUNCHED = 4
"""Kernels of a file under whose launches a helper is read."""
MOST_BESIDE = 64
"""Files beside a helper's that are looked through for who calls it."""


class TritonFrontend:
    """Reads kernels of Triton packages from source."""

    surface = "triton"
    finds = "a function under @triton.jit with an effect, such as a store"
    suffixes = SUFFIXES
    marks = ("jit",)

    def __init__(self) -> None:
        self._project = Project()
        self._lately: dict[tuple[int, str], tuple[cst.FunctionDef, Program]] = {}

    def module(self, source: Path) -> Module:
        """The parsed file. Raises KirError KIR-F001 and KIR-F002."""
        return self._project.file(source)

    def functions(self, source: Path) -> list[cst.FunctionDef]:
        """All jit functions of a file, in order."""
        module = self.module(source)
        return [f for f in module.functions if is_jit(f, module)]

    def kernels(self, source: Path) -> tuple[KernelRef, ...]:
        """The kernels of a file that can be launched, in order: jit functions with an effect that return nothing."""
        module = self.module(source)
        out = []
        inference = Inference(HostScope(self._project, module))
        for f in self.functions(source):
            if not needs_object(f) and is_kernel(Jit(module, f), inference):
                out.append(KernelRef(f.name.value, str(source), module.line(f), self.surface))
        return tuple(out)

    def helpers(self, source: Path) -> tuple[KernelRef, ...]:
        """The jit functions of a file that return a value, in order."""
        launched = {(k.name, k.line) for k in self.kernels(source)}
        module = self.module(source)
        found = [KernelRef(f.name.value, str(source), module.line(f), self.surface) for f in self.functions(source) if not needs_object(f)]
        return tuple(k for k in found if (k.name, k.line) not in launched)

    def write_back(self, source: Path) -> bytes:
        """The file as its syntax tree is written."""
        return self.module(source).tree.bytes

    def consulted(self) -> tuple[Path, ...]:
        """The files read since this was last asked."""
        return self._project.consulted()

    def find(self, source: Path, kernel: str) -> tuple[Module, cst.FunctionDef]:
        """A kernel by its name. Raises KirError KIR-F001 to KIR-F003."""
        module = self.module(source)
        functions = self.functions(source)
        found = [f for f in functions if f.name.value == kernel]
        if not found:
            names = [f.name.value for f in functions]
            if not names:
                raise error("KIR-F003", f"there is no Triton kernel in {source.name}", needs="a function decorated with triton.jit")
            raise usage(
                "KIR-F003",
                f"there is no kernel '{kernel}' in {source.name}",
                attempt=did_you_mean(kernel, names),
                notes=(f"its kernels are {', '.join(sorted(set(names)))}",),
            )
        return module, found[-1]

    def parse(self, source: Path, kernel: str) -> Program:
        """The generic program of one kernel. Raises KirError KIR-F001 to KIR-F003."""
        return self._read(*self.find(source, kernel), ())

    def instantiate(self, source: Path, kernel: str, binding: Binding | None) -> Program:
        """`parse`; where that leaves something opaque, with the values of a binding's metas, if more is understood so: sizes of tiles that only they
        decide, and functions that a kernel is given. Raises KirError KIR-F001 to KIR-F003, and KIR-F011 for a function that there is not."""
        module, node = self.find(source, kernel)
        generic = self._read(module, node, ())
        if binding is None or not (unread := _opaque(generic)):
            return generic
        try:
            values = settled(binding).metas
        except KirError:
            values = binding.metas
        scope = HostScope(self._project, module, module.owners.get(id(node), ()))
        for m in generic.metas:
            if m.kind == "fn" and isinstance(name := values.get(m.name), str):
                try:
                    scope.lookup(name)
                except NotUnderstood as bad:
                    raise wrong(binding, ("metas", m.name), f"'{m.name}' = {name}: {bad.reason}", "the name of a function that the file has") from None
        given = tuple(sorted((m.name, values[m.name]) for m in generic.metas if m.name in values))
        made = self._read(module, node, given)
        return made if _opaque(made) < unread else generic

    def _read(self, module: Module, node: cst.FunctionDef, given: tuple[tuple[str, Setting], ...]) -> Program:
        """A kernel under values of its metas; what was read lately is kept."""
        key = (id(node), repr(given))
        if key not in self._lately or self._lately[key][0] is not node:
            if len(self._lately) > MOST_KEPT:
                self._lately.clear()
            made = read_kernel(self._project, module, node, dict(given))
            if _opaque(made):  # alone it may not show what it is given
                others = [f for f in module.functions if is_jit(f, module)]
                for numbers in (False, True) if others else ():
                    again = read_kernel(self._project, module, node, dict(given), others, numbers)
                    made = again if _opaque(again) < _opaque(made) else made
                    if not _opaque(made):
                        break
                called = self._given(module, others, node) if _opaque(made) else []
                if len(called) == 1:  # unlike ones make several programs: `as_called`
                    try:
                        again = read_kernel(self._project, module, node, dict(given), values=called[0])
                        made = again if _opaque(again) < _opaque(made) else made
                    except NotUnderstood:
                        pass
            self._lately[key] = node, made
        return self._lately[key][1]

    def _given(self, module: Module, others: Sequence[cst.FunctionDef], node: cst.FunctionDef) -> list[dict[str, Value]]:
        """What a function is given by others of its file, or, where these do not call it, by those of the files beside it that import it."""
        found = given_by_all(self._project, [(module, f) for f in others if f is not node], node)
        if found or is_kernel(Jit(module, node), Inference(HostScope(self._project, module))):
            return found
        beside = [p for p in sorted(module.path.parent.glob("*.py")) if p != module.path][:MOST_BESIDE]
        for path in beside:
            try:
                text = path.read_text(encoding="utf-8")
                other = self._project.file(path) if node.name.value in text and module.path.stem in text else None
            except (OSError, UnicodeDecodeError, KirError):
                continue
            if other is not None and (found := given_by_all(self._project, [(other, f) for f in other.functions if is_jit(f, other)], node)):
                return found
        return []

    def as_called(self, source: Path, kernel: str) -> Program | None:
        """A helper as one of its calls gives it what it takes, where several are unlike, or as a kernel of its file does under the values of the first
        launch that the Python around that kernel shows: sizes and numbers of axes that helpers get from it. None where none is found, or something is
        opaque even so. Raises KirError KIR-F001 to KIR-F003."""
        module, node = self.find(source, kernel)
        functions = self.functions(source)
        reach = {node.name.value}
        for _ in functions:
            reach |= {f.name.value for f in functions if any(name in module.code(f) for name in reach)}
        inference = Inference(HostScope(self._project, module))
        callers = [f for f in functions if f.name.value in reach and f is not node and is_kernel(Jit(module, f), inference)]
        if not callers:
            return None
        others, kernels = [(module, f) for f in functions if f is not node], [(module, f) for f in callers[:MOST_LAUNCHED]]
        for calling, through in ((others, False), (kernels, True)):
            for called in given_by_all(self._project, calling, node, through=through):
                if (made := self._as_given(module, node, called, False)) is not None:
                    return made
        calls: list[dict[str, Value]] = []
        for f in callers[:MOST_LAUNCHED]:
            try:
                found = self.launches(source, f.name.value)
                values = settled(found[0].binding).metas if found else {}
                given = {m.name: values[m.name] for m in self._read(module, f, ()).metas if m.name in values}
                calls += given_by_all(self._project, [(module, f)], node, given) if given else []
            except KirError:
                continue
        for called in sorted(calls, key=parts_of):
            if (made := self._as_given(module, node, called, True)) is not None:
                return made
        return None

    def _as_given(self, module: Module, node: cst.FunctionDef, called: dict[str, Value], exact: bool) -> Program | None:
        try:
            made = read_kernel(self._project, module, node, {}, values=called, exact=exact)
        except NotUnderstood:
            return None
        return None if _opaque(made) else made

    def outline(self, source: Path, kernel: str) -> Outline:
        """Where the statements of a kernel stand. Raises KirError KIR-F001 to KIR-F003."""
        return outline(*self.find(source, kernel))

    def parse_text(self, source: Path, text: str, kernel: str) -> Program:
        """The generic program of a kernel in a file that would hold `text`. Raises KirError KIR-F001 to KIR-F003."""
        other = TritonFrontend()
        other._project = self._project.with_text(source, text)
        return other.parse(source, kernel)

    def skeleton(self, source: Path, kernel: str) -> Binding:
        """A binding with what the source says, and "?" where a person must decide. Raises KirError KIR-F001 to KIR-F003."""
        module, node = self.find(source, kernel)
        return skeleton(self._project, module, node, self._read(module, node, ()))

    def launches(self, source: Path, kernel: str) -> list[Found]:
        """What each launch of a kernel that the Python around it shows says of it. Raises KirError KIR-F001 to KIR-F003."""
        _, node = self.find(source, kernel)
        found = triton_launches(source, node)
        skeleton = self.skeleton(source, kernel) if found else None
        if skeleton is None:
            return []
        program = self.parse(source, kernel)
        usual = compared(program) | dict.fromkeys(sizes_of_calls(node, ("static_range",)), FEW)
        return [assembled(skeleton, each, each.named, usual=usual, in_rows=in_rows(program)) for each in found]


def parts_of(given: dict[str, Value]) -> int:
    """How many values a call gives, each of a tuple for itself."""
    return sum(len(items_of(v)) if isinstance(v, Items) else 1 for v in given.values())


def _opaque(program: Program) -> int:
    """How many statements of a program are not understood."""
    return sum(isinstance(s, Opaque) for k in program.kernels for s in statements(k.body))


FRONTEND = TritonFrontend()
