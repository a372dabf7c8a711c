"""What the rest of KIR sees of this frontend."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import libcst as cst

from kir.analysis.heuristics import settled
from kir.base.diagnostic import KirError, did_you_mean, error, usage
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.binding import Binding
from kir.ir.bindings.binding_uses import unmentioned
from kir.ir.bindings.specialize import specialize
from kir.ir.nodes import Program
from kir.ir.rules.verify import verify
from kir.ir.types import DType, shape_of
from kir.ir.visit import statements, walk
from kir.surface import KernelRef, Outline
from kir.surface.launches.assembled import Assumed, Found, as_called
from kir.surface.launches.record import HostLaunch
from kir.surface.launches.values import FEW, is_number

from .._python.host_values import Lazy
from .._python.outline import outline
from .._python.project import Module, Project, decorator_name
from .launch.guessed import MOST_STEPS, Asked, guesses
from .launch.host_code import allocated_extents, factory_of, left_out, made_of, tensor_extents, tilelang_launches, unrolled_extents
from .output.binding import UNKNOWN, skeleton
from .output.binding_check import check_given, check_readable, is_text, mentioned
from .output.kernel import Side, in_words, read_kernel, read_sides
from .suffixes import SUFFIXES
from .values.values import Value


class TileLangFrontend:
    """Reads kernels of TileLang packages from source."""

    surface = "tilelang"
    finds = "a function under @T.prim_func"
    suffixes = SUFFIXES
    marks = ("prim_func", "tilelang.jit")

    def __init__(self) -> None:
        self._project = Project()

    def module(self, source: Path) -> Module:
        """The parsed file. Raises KirError KIR-F001 and KIR-F002."""
        return self._project.file(source)

    def named(self, source: Path) -> dict[str, cst.FunctionDef]:
        """The kernels of a file by name, in order; the second of a name is `name__2`."""
        if not _mentions(source, self._project):
            return {}
        module = self.module(source)
        out: dict[str, cst.FunctionDef] = {}
        for f in module.functions:
            if not is_kernel(f):
                continue
            name, k = f.name.value, 1
            while name in out:
                k += 1
                name = f"{f.name.value}__{k}"
            out[name] = f
        return out

    def kernels(self, source: Path) -> tuple[KernelRef, ...]:
        """The kernels of a file in order: functions under `T.prim_func`, and eager ones under `tilelang.jit`."""
        found = self.named(source)
        module = self.module(source) if found else None
        if module is None:
            return ()
        makers = {name: [o.name.value for o in module.owners.get(id(f), ())] for name, f in found.items()}
        alone = [k for k, n in Counter(x for names in makers.values() for x in set(names)).items() if n == 1 and k not in found]
        return tuple(KernelRef(name, str(source), module.line(f), self.surface, tuple(k for k in makers[name] if k in alone)) for name, f in found.items())

    def write_back(self, source: Path) -> bytes:
        """The file as its syntax tree is written."""
        return self.module(source).tree.bytes

    def consulted(self) -> tuple[Path, ...]:
        """The files read since this was last asked."""
        return self._project.consulted()

    def find(self, source: Path, kernel: str) -> tuple[Module, cst.FunctionDef]:
        """A kernel by its name, or by that of the factory that makes it alone. Raises KirError KIR-F001 to KIR-F003."""
        module = self.module(source)
        found = self.named(source)
        if kernel not in found:
            for ref in self.kernels(source):
                if kernel in ref.makers:
                    return module, found[ref.name]
            if not found:
                raise error("KIR-F003", f"there is no TileLang kernel in {source.name}", needs="a function under T.prim_func")
            raise usage("KIR-F003", f"there is no kernel '{kernel}' in {source.name}", attempt=did_you_mean(kernel, found),
                        notes=(f"its kernels are {', '.join(found)}",))
        return module, found[kernel]

    def parse(self, source: Path, kernel: str) -> Program:
        """The generic program of one kernel. Raises KirError KIR-F001 to KIR-F003, KIR-F401 and KIR-F402."""
        module, node = self.find(source, kernel)
        return read_kernel(self._project, module, node, kernel)

    def sides(self, source: Path, kernel: str) -> list[tuple[str, Program]]:
        """The generic programs of one kernel, one for each outcome of the conditions of the binding that make it another kernel, each with what
        it assumes in words. Raises KirError as `parse` does."""
        module, node = self.find(source, kernel)
        return [(_label(sides), made) for sides, made in read_sides(self._project, module, node, kernel)]

    def guessed(self, source: Path, kernel: str, side: str = "") -> Iterator[tuple[Program, tuple[str, ...]]]:
        """The program of a kernel, or of one of its `sides`, under values for what only a binding decides: what the code beside it gives parameters of the
        same names, and usual numbers; each with the names of metas that are guessed. Raises KirError as `parse` does."""
        module, node = self.find(source, kernel)
        sides = next((each for each, _ in read_sides(self._project, module, node, kernel) if _label(each) == side), ()) if side else ()
        asked, owners = Asked(), module.owners.get(id(node), ())
        made = read_kernel(self._project, module, node, kernel, assumed=sides, asked=asked)
        asked.needed += [build.compare(op, k.threads, most) for k in made.kernels for op, most in (("ge", 1), ("le", 1024))]
        known: set[str] | None = None
        while known != asked.lists.keys():  # what the values lead to may ask for more lists
            known, more = {*asked.lists}, Asked()
            for guess in guesses(source, owners or (node,), node, asked):
                if asked.steps + more.steps > MOST_STEPS:
                    return
                try:
                    made = read_kernel(self._project, module, node, kernel, guess.given, guess.sizes, assumed=sides, asked=more)
                except KirError:  # the factory's own checks
                    continue
                values = {k: v for k, v in guess.given.items() if isinstance(v, (int, float, str))}
                yield replace(made, metas=tuple(replace(m, default=values[m.name]) if m.name in values else m for m in made.metas)), guess.names
                if guess.whole and not verify(made):
                    break  # with other numbers it would be no other kernel
            asked.steps += more.steps
            asked.lists |= {k: count for k, count in more.lists.items() if k not in known}
            asked.metas |= {k: m for k, m in more.metas.items() if k not in asked.metas and m.default is None}

    def instantiate(self, source: Path, kernel: str, binding: Binding | None) -> Program:
        """The program of a kernel whose factory runs with the values of a binding. Raises KirError as `parse` does."""
        module, node = self.find(source, kernel)
        if binding is None:
            return read_kernel(self._project, module, node, kernel)

        check_given(self._project, module, node, binding)
        given: dict[str, Value] = {**settled(binding).metas, **dict.fromkeys(binding.absent)}
        sized = (*binding.sizes, *(k for k, v in binding.scalars.items() if isinstance(v, str)))
        made = read_kernel(self._project, module, node, kernel, given, sized)
        if is_text(made):
            check_readable(self._project, module, node, kernel, given, binding, made)
        idle = {*binding.metas, *binding.absent} - {m.name for m in made.metas} - {p.name for p in made.params}
        if idle:  # what the source asks, and these values answer before it is asked
            asked = read_kernel(self._project, module, node, kernel).metas
            lists = {m.name for m in asked}
            parts = (n.Meta(x, "int") for x in sorted(idle - lists) if x.rpartition("_")[0] in lists and x.rpartition("_")[2].isdigit())
            made = replace(made, metas=(*made.metas, *(m for m in asked if m.name in idle), *parts))
        values = {k: v for k, v in given.items() if isinstance(v, (int, float, str)) and k in binding.metas}
        values |= dict.fromkeys(unmentioned(made, set(binding.absent)), False)  # what the factory has answered for itself
        return replace(made, metas=tuple(replace(m, default=values[m.name]) if m.name in values else m for m in made.metas))  # read with these values

    def outline(self, source: Path, kernel: str) -> Outline:
        """Where the statements of a kernel stand. Raises KirError KIR-F001 to KIR-F003."""
        return outline(*self.find(source, kernel))

    def parse_text(self, source: Path, text: str, kernel: str) -> Program:
        """The generic program of a kernel in a file that would hold `text`. Raises KirError KIR-F001 to KIR-F003."""
        other = TileLangFrontend()
        other._project = self._project.with_text(source, text)
        return other.parse(source, kernel)

    def skeleton(self, source: Path, kernel: str) -> Binding:
        """A binding with what the source says, and "?" where a person must decide. Raises KirError KIR-F001 to KIR-F003."""
        module, node = self.find(source, kernel)
        questions: dict[str, str] = {}
        program = read_kernel(self._project, module, node, kernel, questions=questions)
        return skeleton(self._project, module, node, program, questions)

    def launches(self, source: Path, kernel: str) -> list[Found]:
        """What each call of a kernel's factory that the Python around it shows says of it. Raises KirError KIR-F001 to KIR-F003."""
        module, node = self.find(source, kernel)
        factory = factory_of(module.owners.get(id(node), ()), node)
        calls = tilelang_launches(source, factory)
        return [self._found(source, kernel, node, each) for each in calls]

    def _found(self, source: Path, kernel: str, node: cst.FunctionDef, call: HostLaunch) -> Found:
        """The binding of one call: extents of tensors as sizes where the kernel can be read so, else as the call has them."""
        skeleton, (module, _) = self.skeleton(source, kernel), self.find(source, kernel)
        for owner in module.owners.get(id(node), ())[:1]:
            if (names := mentioned(module, owner)) is not None:  # a parameter that nothing uses says nothing
                skeleton = skeleton.changed(metas={k: v for k, v in skeleton.metas.items() if k in names})
        # Whole numbers that the kernel is called with, which the call of its factory does not show.
        counts = [q.name for q in self.parse(source, kernel).params if isinstance(q.of, DType) and q.of.is_integer and skeleton.scalars.get(q.name) == UNKNOWN]
        skeleton = skeleton.changed(sizes=[*skeleton.sizes, *counts], scalars={**skeleton.scalars, **{x: x for x in counts}})
        lists = {k: tuple(v) for k, v in call.factory.items() if isinstance(v, (list, tuple)) and v and skeleton.metas.get(k) == UNKNOWN}
        parts = {f"{k}_{at}": v for k, each in lists.items() for at, v in enumerate(each)}
        skeleton = skeleton.changed(metas={**{k: v for k, v in skeleton.metas.items() if k not in lists}, **dict.fromkeys(parts, UNKNOWN)})
        call = replace(call, factory={**{k: v for k, v in call.factory.items() if k not in lists}, **parts})
        given = {k: v.number() if isinstance(v, Lazy) and type(v.default) is int else v for k, v in call.factory.items()
                 if k in skeleton.metas or k in skeleton.sizes}
        factories = self.find(source, kernel)[0].owners.get(id(node), ())
        given |= {k: None for k in left_out(factory_of(factories, node)) if k in skeleton.metas and k not in call.factory}
        shapes = made_of(tensor_extents(node), factories) & {k for k, v in given.items() if is_number(v)}
        tried = [shapes, shapes - allocated_extents(node), shapes - made_of(allocated_extents(node), factories), set[str]()]
        small = dict.fromkeys(unrolled_extents(node) & given.keys(), FEW)
        made = (as_called(skeleton, replace(call, known=call.known.fork()), given, open_, few) for few in ((small, {}) if small else (small,))
                for open_ in tried)
        last = None
        for each in made:
            if not each.open and self._reads(source, kernel, each.binding):
                return replace(each, assumed=(*each.assumed, *(Assumed(f"{x} is any number from 1 on") for x in counts)))
            last = each
        assert last is not None
        return last

    def _reads(self, source: Path, kernel: str, binding: Binding) -> bool:
        """Whether the kernel is read under a binding, with tiles and teams of known size."""
        try:
            made = specialize(self.instantiate(source, kernel, binding), settled(binding))
        except KirError:
            return False
        found = [s for k in made.kernels for s in statements(k.body)]
        tiles = (shape_of(x.type) for s in found for x in walk(s) if isinstance(x, n.Expr))
        return not any(isinstance(s, n.Opaque) or (isinstance(s, n.Alloc) and any(build.int_value(d) is None for d in s.buffer.shape)) for s in found) and (
            all(isinstance(d, int) for shape in tiles for d in shape) and all(build.int_value(k.threads) is not None for k in made.kernels))


def _label(sides: tuple[Side, ...]) -> str:
    """What a side of a kernel assumes, in words."""
    return ", ".join(map(in_words, sides))


def is_kernel(f: cst.FunctionDef) -> bool:
    """Whether a function is a kernel: under `prim_func`, or under `tilelang.jit` with a launch in its own body."""
    words = {decorator_name(d) for d in f.decorators}
    if "prim_func" in words:
        return True
    return "jit" in words and any(_launches(s) for s in f.body.body)


def _launches(s: cst.CSTNode) -> bool:
    if not isinstance(s, cst.With):
        return False
    e = s.items[0].item
    return isinstance(e, cst.Call) and isinstance(e.func, cst.Attribute) and e.func.attr.value == "Kernel"


def _mentions(source: Path, project: Project) -> bool:
    """Whether a file may hold kernels at all: most files are never parsed."""
    if source.resolve() in project._by_path:
        return True
    try:
        data = source.read_bytes()
    except OSError as bad:
        raise error("KIR-F001", f"{source} cannot be read: {bad.__class__.__name__}", needs="a Python file in UTF-8") from bad
    return b"tilelang" in data


FRONTEND = TileLangFrontend()
