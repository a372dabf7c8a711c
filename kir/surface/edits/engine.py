"""From a changed program to an edited source, checked by reading it back.

The smallest span is tried first: the statements that changed; then whole loops and branches around them, from the inside out; then the
body of the kernel. An edit counts only if the edited text, read under the binding, is the changed program.
"""
from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path as File

from kir.analysis.normal.normal_form import normalize
from kir.analysis.normal.regions import raised
from kir.base.dataclass import dataclass
from kir.base.diagnostic import Diagnostic, KirError, error
from kir.base.store import write_atomic
from kir.ir import nodes as n
from kir.ir.binding import Binding
from kir.ir.bindings.binding_uses import pruned
from kir.ir.bindings.specialize import specialize
from kir.ir.canonical import alpha_equal, bound_names, content_hash
from kir.ir.paths import Path
from kir.ir.printer import expr_text
from kir.ir.rules.verify import verify
from kir.ir.visit import transform, walk
from kir.surface import Body, EditableFrontend, EditingBackend, Outline, backend, frontend
from kir.surface.edits.change import Change, changes, nesting
from kir.surface.edits.history import History
from kir.surface.edits.place import Places, Unplaced, source_names
from kir.surface.edits.splice import Splice, between, coalesced, ends_of, inverse, spliced, unified

MISSING = "_no_name_for_"


@dataclass(frozen=True)
class SourceEdit:
    """What to write: the text of the file before and after, the spans that differ, how far the edit had to reach (`none`, `statement`,
    `block`, `kernel`), why no smaller one would do, and the binding before and after (its grid and options follow the launch)."""

    file: str
    kernel: str
    before: str
    after: str
    splices: tuple[Splice, ...]
    level: str
    passed_over: tuple[str, ...]
    binding: Binding
    new_binding: Binding

    def diff(self, name: str = "") -> str:
        """The edit as a unified diff; "" when nothing changes."""
        return unified(self.before, self.after, name or File(self.file).name)

    def write(self, program: n.Program, history: History | None = None) -> None:
        """Write the file; `program` is what the kernel was read as before. Raises KirError KIR-C104 when the file is no longer what was
        read."""
        path = File(self.file)
        if path.read_bytes() != self.before.encode():
            raise error("KIR-C104", f"{self.file} changed while the passes ran", needs="the file as it was read")
        if history is not None and self.level != "undo":
            history.remember(self.after, self.kernel, inverse(self.before, self.splices), content_hash(program), self.binding.text())
        write_atomic(path, self.after.encode())

    def undone(self) -> str:
        """The text before, made from the text after and the spans alone."""
        return spliced(self.after, inverse(self.before, self.splices))


def edit_source(surface: str, source: File, kernel: str, binding: Binding, old: n.Program, new: n.Program,
                history: History | None = None) -> SourceEdit:
    """The edit that makes a kernel, read under its binding as `old`, be read as `new` (up to local names). With a history, a program that
    the file held before comes back as the very text of then (level `undo`).

    Raises KirError: KIR-C101 (the surface has no edits in place), KIR-C102 (the change reaches beyond the kernel), KIR-C103 (no edit reads
    back as the changed program), and the backend's refusals of what it cannot say.
    """
    reader, writer = frontend(surface), backend(surface)
    if not isinstance(reader, EditableFrontend) or not isinstance(writer, EditingBackend):
        raise error("KIR-C101", f"kernels of surface '{surface}' cannot be edited in place", attempt="kir opt FILE --emit ..")
    outline = reader.outline(source, kernel)
    if alpha_equal(old, new):
        return SourceEdit(str(source), kernel, outline.text, outline.text, (), "none", (), binding, binding)
    for earlier in history.before(outline.text, kernel) if history is not None else ():
        if earlier.program == content_hash(new):
            spans = between(outline.text, earlier.text)
            return SourceEdit(str(source), kernel, outline.text, earlier.text, spans, "undo", (), binding, Binding.parse(earlier.binding))
    _check_interface(old, new)
    return _Attempt(reader, writer, source, kernel, outline, binding, _rebound(writer, binding, old, new), old, normalize(new)).run()


def _check_interface(old: n.Program, new: n.Program) -> None:
    for what, a, b in (("parameters", old.params, new.params), ("facts", old.facts, new.facts), ("workspaces", old.workspaces, new.workspaces),
                       ("tensor maps", old.tensor_maps, new.tensor_maps), ("functions", old.functions, new.functions),
                       ("metas", old.metas, new.metas), ("launch plan", old.plan, new.plan)):
        if a != b:
            raise error("KIR-C102", f"the passes changed the program's {what}, which are not in the kernel's source",
                        needs="passes that change statements only", attempt="kir opt FILE --emit ..")
    if len(new.kernels) != 1 or len(old.kernels) != 1:
        raise error("KIR-C102", f"the program has {len(new.kernels)} kernels after the passes, and its source has one")


def _rebound(writer: EditingBackend, binding: Binding, old: n.Program, new: n.Program) -> Binding:
    """The binding under the new launch: grid, and launch options that differ."""
    before, after = writer.launch(old), writer.launch(new)
    options = dict(binding.options)
    for key, value in after.options:
        if dict(before.options).get(key) != value:
            options[key] = value
    if before.threads != after.threads or (old.kernels[0].threads != new.kernels[0].threads):
        options.pop("threads", None)
        if new.kernels[0].threads == n.Const(1, new.kernels[0].threads.type):  # type: ignore[arg-type]  # threads are a scalar
            options["threads"] = 1
    grid: list[str | int] = [*binding.grid] if before.grid == after.grid else [expr_text(e) for e in after.grid]
    return replace(binding, grid=grid, options=options)


@dataclass
class _Attempt:
    reader: EditableFrontend
    writer: EditingBackend
    source: File
    kernel: str
    outline: Outline
    binding: Binding
    bound: Binding
    old: n.Program
    new: n.Program

    def __post_init__(self) -> None:
        self.whole_binding = self.bound
        self.failed: dict[str, KirError | Unplaced] = {}

    def run(self) -> SourceEdit:
        """The smallest edit that reads back."""
        tried: list[str] = []
        deepest = max(nesting(self.old.kernels[0].body), nesting(self.new.kernels[0].body))
        refusals: tuple[Diagnostic, ...] = ()
        for depth in (*range(deepest, -1, -1), None):
            level = "kernel" if depth is None else "statement" if depth == deepest else "block"
            try:
                splices = self.ended(coalesced(self.whole() if depth is None else self.local(depth)))
                after = spliced(self.outline.text, splices)
                self.check(after)
            except Unplaced as why:
                tried.append(f"{level}: {why}")
            except KirError as bad:
                refusals = bad.diagnostics
                tried.append(f"{level}: {bad.diagnostics[0].message}")
            except ValueError as why:
                tried.append(f"{level}: {why}")
            else:
                return SourceEdit(str(self.source), self.kernel, self.outline.text, after, splices, level if splices else "none",
                                  tuple(dict.fromkeys(tried)), self.binding, self.bound)
        if refusals and refusals[0].id.startswith("KIR-B"):
            raise KirError(*refusals)
        raise error("KIR-C103", f"no edit of {self.kernel} reads back as the changed program", origin=self.old.kernels[0].origin,
                    notes=tuple(dict.fromkeys(tried)), attempt="kir opt FILE --emit ..")

    def check(self, text: str) -> None:
        """The edited text must be read as the new program. Raises Unplaced, or KirError where it cannot even be read; edits of several depths may be one text,
        which is read once."""
        if text in self.failed:
            raise self.failed[text]
        try:
            self.read_back(text)
        except (KirError, Unplaced) as why:
            self.failed[text] = why
            raise

    def read_back(self, text: str) -> None:
        """As `check`, of a text that was not read yet."""
        generic = self.reader.parse_text(self.source, text, self.kernel)
        self.bound = pruned(generic, self.whole_binding)
        made = raised(specialize(generic, self.bound))
        if any(d.severity == "error" for d in verify(made)) or not alpha_equal(made, self.new):
            raise Unplaced("it would be read as another program")

    def ended(self, splices: Sequence[Splice]) -> tuple[Splice, ...]:
        """Splices whose new lines end as the lines of the file do."""
        end = ends_of(self.outline.text)
        return tuple(Splice(s.start, s.end, re.sub(r"\r?\n", end, s.text)) for s in splices)

    # ------------------------------------------------------------------------------------------------------------------ spans
    def local(self, depth: int) -> list[Splice]:
        """Splices for what changed, with compound statements nested deeper than `depth` in one piece."""
        old, new = self.old.kernels[0], self.new.kernels[0]
        places = Places.of(self.outline, old, _line_starts(self.outline.text))
        found = places.grown(list(changes(old.body, new.body, (old.name,), (new.name,), depth)))
        body = self.writer.body(self.new, self._names(found))
        out: list[Splice] = []
        for change in found:
            if (policy := self._with_cache_policy(change, places)) is not None:
                out.append(policy)
                continue
            lines = _picked(body, change)
            if any(MISSING in line for line in lines):
                name = re.findall(rf"{MISSING}(\w+)", "\n".join(lines))[0]
                raise Unplaced(f"the source has no name for '{name}' there")
            out += places.splices(change, old.body, lines)
        return [s for s in out if self.outline.text[s.start:s.end] != s.text]

    def _with_cache_policy(self, change: Change, places: Places) -> Splice | None:
        """The splice for a statement of which only the cache policy of its one access changed, on a surface that can write just that."""
        write = getattr(self.writer, "with_cache_policy", None)
        if write is None or change.head or change.end - change.start != 1 or change.new_end - change.new_start != 1:
            return None
        before, after = _block(self.old, change.path)[change.start], _block(self.new, change.new_path)[change.new_start]
        policies = [x.cache for x in walk(after) if isinstance(x, (n.Load, n.Store)) and x.at.buffer.space == "global"]
        owner = places.owner.get((*change.path, change.start))
        if owner is None or len(policies) != 1 or _uncached(before) != _uncached(after):
            return None
        text = write(self.outline.text[owner.start:owner.end], policies[0])
        return None if text is None else Splice(owner.start, owner.end, text)

    def whole(self) -> list[Splice]:
        """One splice for the body of the kernel."""
        kernel = self.new.kernels[0]
        taken = {*self.outline.parameters, *self.outline.modules}
        local = self.writer.spelled([*(a.name for a in kernel.grid), *bound_names(kernel.body)], taken)
        body = self.writer.body(self.new, {**self._outer(), **local})
        if body.refusals:
            raise KirError(*body.refusals)
        for name in sorted(body.needs):
            if name not in self.outline.modules:
                raise Unplaced(f"the file does not import '{name}'")
        opening = [f"{local[a.name]} = {self.writer.axis(i)}" for i, a in enumerate(kernel.grid)]
        lines = [*opening, *body.opening, *("    " * line.depth + line.text for line in body.lines)]
        missing = re.findall(rf"{MISSING}(\w+)", "\n".join(lines))
        if missing:
            raise Unplaced(f"the kernel has no parameter for '{missing[0]}'")
        first, last = self.outline.body[0], self.outline.body[-1]
        return [Splice(first.start, last.end, f"\n{first.indent}".join(lines))]

    # ------------------------------------------------------------------------------------------------------------------ names
    def _outer(self) -> dict[str, str]:
        """What the source calls sizes, scalars, tensors and functions."""
        out = {f.name: f.name for f in self.new.functions}
        for q in self.new.params:
            if isinstance(q.of, n.Buffer):
                key = next((k for k, t in self.binding.tensors.items() if (t.name or k) == q.name), None)
            else:
                alike = [k for k, text in self.binding.scalars.items() if text == q.name]
                alike.sort(key=lambda k: "stride" in k)  # an extent by its own name reads better than by that of a stride
                key = q.name if q.name in self.outline.parameters and q.name not in self.binding.scalars else next(iter(alike), None)
            out[q.name] = key if key is not None else MISSING + q.name
        return out

    def _names(self, found: Sequence[Change]) -> Mapping[str, str]:
        """Names for local edits: the source's own, new ones for what the edits bind, and marks for what has no name there."""
        kernel = self.new.kernels[0]
        known = dict(source_names(self.outline, self.old.kernels[0]))
        made: dict[str, str] = {}
        for change in found:
            block = _block(self.new, change.new_path)[change.new_start:change.new_end]
            if change.head:
                before = _block(self.old, change.path)[change.start]
                if isinstance(before, n.For) and isinstance(block[0], n.For) and before.var.name in known:
                    made[block[0].var.name] = known[before.var.name]
                continue
            fresh = [x for x in bound_names(block) if x not in known]
            made.update(self.writer.spelled(fresh, {*self.outline.names, *self.outline.modules, *known.values(), *made.values()}))
        out = {a.name: self.writer.axis(i) for i, a in enumerate(kernel.grid)}
        for name in bound_names(kernel.body):
            out[name] = made.get(name) or known.get(name) or MISSING + name
        return {**self._outer(), **out}


def _line_starts(text: str) -> list[int]:
    return [0, *(found.end() for found in re.finditer(r"\r\n|\r|\n", text))]


def _block(program: n.Program, path: Path) -> n.Block:
    block: n.Block = program.kernels[0].body
    rest = list(path[1:])
    while rest:
        index, name = rest.pop(0), rest.pop(0)
        assert isinstance(index, int) and isinstance(name, str)
        block = getattr(block[index], name)
    return block


def _uncached(s: n.Stmt) -> n.Stmt:
    """A statement without cache policies."""
    def leave(old: n.Node, new: n.Node) -> n.Node:
        return replace(new, cache="") if isinstance(new, (n.Load, n.Store)) else new
    made: n.Stmt = transform(s, leave)
    return made


def _picked(body: Body, change: Change) -> list[str]:
    """The lines of the changed statements, relative to their own indentation. Raises Unplaced for one that the surface cannot say."""
    wanted = {(*change.new_path, i) for i in range(change.new_start, change.new_end)}
    size = len(change.new_path) + 1
    if any(path[:size] in wanted for path in body.refused):
        raise Unplaced("the surface cannot say a changed statement")
    out: list[tuple[int, str]] = []
    taking = False
    for line in body.lines:
        if line.path is not None:
            taking = line.path[:size] in wanted and not (change.head and (len(line.path) > size or (out and out[-1][1].endswith(":"))))
        if taking:
            out.append((line.depth, line.text))
    if change.head:
        out[-1] = (out[-1][0], out[-1][1].removesuffix(":"))
    least = min((depth for depth, _ in out), default=0)
    return ["    " * (depth - least) + text for depth, text in out]


