"""What every carrier pass does: kernels that compute its contract the naive way give place to a hole, or to a recorded answer.

Forward, the naive form is that of `naive.kir` beside the contract, or whatever one thread does that meets the contract, repeated over
grid axes that number instances. Backward, an answer is recognized by what it computes: a recorded one by its text, any other by running
it against the contract's oracle.
"""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain, islice, permutations, product
from typing import TYPE_CHECKING, ClassVar

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError, error
from kir.ir import nodes as n
from kir.ir.build import is_const
from kir.ir.canonical import alpha_equal
from kir.ir.visit import once, regions, statements, transform, updated
from kir.lineage.carrier import Contract, fill
from kir.lineage.carrier.cutting import CannotOutline, Outline, answer_of, outlines
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.base import found_sites
from kir.rewrite.edit import kernel_of, replace_kernel
from kir.rewrite.match import matched_as, params_as
from kir.rewrite.registry import pass_class

GATED = "the contract's shapes and inputs"
"""What an answer was judged on: the gate runs it, and proves nothing of other inputs."""

if TYPE_CHECKING:
    from kir.lineage.carrier.recognition import Known


@dataclass(frozen=True)
class Carrier(Pass):
    """`answer` is the name, hash or first digits of a hash of the answer; without one the hole stays open. `kernel` is the name of the
    kernel that computes it the naive way; `naive` is the hash of how that is written, where it is not as the contract's own program. `order`: of
    an answer's kernel the grid axes are put in that order, in which those that number instances need not be last. `asks`: what all kernels of the answer ask
    of their surface's compiler (`tl_disable_thread_storage_sync=true`), as `surface-option` would of each."""

    carrier: ClassVar[Contract]

    answer: str = ""
    kernel: str = "main"
    naive: str = ""
    order: tuple[int, ...] = ()
    asks: tuple[str, ...] = ()

    # ------------------------------------------------------------------------------------------------------------- forward
    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel that is the contract's naive program, once or for each instance along its last grid axes; and at one that does the
        same with one thread in other words."""
        if not isinstance(node, n.Kernel) or not self._may_be_here(program):
            return None
        found = self._found(program, path, node)
        if self.asks and isinstance(found, Site):
            try:
                self._filled(found)
            except KirError as refused:
                return Miss(refused.diagnostics[0].message)
        return found

    def _found(self, program: n.Program, path: Path, node: n.Kernel) -> Site | Miss | None:
        near = ""
        ways = tuple(outlines(self.carrier, program, (node.name,), node.name))
        for outline in ways:
            try:
                if self._is_naive(program, outline):
                    return Site(path, replace(self, kernel=node.name, order=self._order(outline)), {"outline": outline})
            except KirError as bad:
                near = near or bad.diagnostics[0].message
        if self.naive or not is_const(node.threads, 1) or any(isinstance(s, n.Hole) for s in node.body):
            return Miss(near or f"it has the operands of {self.carrier.id}, and is not its naive program") if ways else None
        for outline in ways:
            found = self._recognized(program, outline)
            if isinstance(found, str):
                return Site(path, replace(self, kernel=node.name, naive=found, order=self._order(outline)), {"outline": outline})
            near = near or found.reason
        return Miss(near) if near else None

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The hole, and the answer in it."""
        made = self._filled(site if "outline" in site.captures else _again(self, program, site.path))
        at = [k.name for k in program.kernels].index(str(site.path[0]))
        return Rewritten(made, (made.kernels[at].name,), {site.path: ((made.kernels[at].name,),)})

    def _filled(self, site: Site) -> n.Program:
        """The program with the hole, and what fills it. Raises KirError where the answer's kernels may not ask for what they are to."""
        outline: Outline = site.captures["outline"]
        made, at = outline.holed, [k.name for k in outline.holed.kernels].index(str(outline.path[0]))
        if self.answer:
            from kir.lineage.carrier.recognition import known
            more = len(made.kernels) - 1
            made = fill(self.carrier, made, outline.path, known(self.carrier, self.answer, outline.dtype).program, verified=False)
            made = _in_order(made, made.kernels[at], self.order)
            made = asking(made, tuple(k.name for k in made.kernels[at:len(made.kernels) - (more - at)]), self.asks)
        return made

    # ------------------------------------------------------------------------------------------------------------ backward
    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At an open hole for the contract, and at the first of the kernels that meet it."""
        if not isinstance(node, n.Kernel) or not self._may_be_here(program):
            return None
        if len(node.body) == 1 and isinstance(node.body[0], n.Hole):
            return Site(path, replace(self, answer="", kernel=node.name)) if node.body[0].contract == self.carrier.id else None
        first = program.kernels.index(node)
        near = ""
        for count in range(1, len(program.kernels) - first + 1):
            names = tuple(k.name for k in program.kernels[first:first + count])
            name = node.name if count == 1 else self.kernel
            order, turned, ways = self._ways(program, names, name)
            with suppress(KirError):
                if any(self._is_naive(turned, outline) for outline in ways):
                    return None
            asks, bare = asked_of(program, names)
            others = self._ways(bare, names, name) if asks else ((), bare, ())
            for look, mine, (axes, whole, outlined) in ((self._recorded, (), (order, turned, ways)), (self._recorded, asks, others),
                                                        (self._recognized, (), (order, turned, ways))):
                for outline in outlined:
                    found = look(whole, outline)
                    if isinstance(found, str) and found:
                        return Site(path, replace(self, answer=found, kernel=name, order=axes, asks=mine), {"outline": outline})
                    near = near or (found.reason if isinstance(found, Miss) else "")
        return Miss(near) if near else None

    def _ways(self, program: n.Program, names: tuple[str, ...], name: str) -> tuple[tuple[int, ...], n.Program, tuple[Outline, ...]]:
        """How kernels may be cut out; where they cannot, one kernel with its grid axes in the first other order in which it can. What comes first is the order
        that leads back."""
        ways = tuple(outlines(self.carrier, program, names, name))
        kernel = next(k for k in program.kernels if k.name == names[0])
        tensors = {r.buffer.name for s in kernel.body for r in regions(s) if r.buffer.space == "global"}
        if ways or len(names) > 1 or kernel.cluster or not 1 < len(kernel.grid) < 4 or len(tensors) != len(self.carrier.operand_dtypes):
            return (), program, ways
        for order in islice(permutations(range(len(kernel.grid))), 1, None):
            turned = once(program, f"_turned {names[0]} {order}", partial(_in_order, program, kernel, order))
            if ways := tuple(outlines(self.carrier, turned, names, name)):
                return tuple(order.index(k) for k in range(len(order))), turned, ways
        return (), program, ()

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The contract's naive program in the place of the answer."""
        node = kernel_of(program, site.path)
        if len(node.body) == 1 and isinstance(node.body[0], n.Hole):
            from kir.lineage.carrier.filling import bind
            at = (node.name, 0)
            made = fill(self.carrier, program, at, self._before(bind(self.carrier, program, at).dtype))
        else:
            made = _labelled_as(self._naive(site.captures["outline"]), self.kernel, node)
        return Rewritten(made, (self.kernel,), {site.path: ((self.kernel,),)})

    # --------------------------------------------------------------------------------------------------------- recognition
    def _may_be_here(self, program: n.Program) -> bool:
        """Whether the program has enough tensors of the contract's dtypes; cheap, as patterns are tried everywhere."""
        have = [p.of.dtype.name for p in program.params if isinstance(p.of, n.Buffer)] + [w.buffer.dtype.name for w in program.workspaces]
        wanted = self.carrier.operand_dtypes
        fixed = [d for d in wanted if d != "T"]
        return len(have) >= len(wanted) and all(have.count(d) >= fixed.count(d) for d in set(fixed))

    def _order(self, outline: Outline) -> tuple[int, ...]:
        """The order of the grid's axes, where it is one of as many as there will be."""
        from kir.lineage.carrier.recognition import known
        if not self.order or not self.answer:
            return ()
        instances = next(k for k in outline.holed.kernels if k.name == outline.path[0]).grid
        with suppress(KirError):
            return self.order if len(known(self.carrier, self.answer, outline.dtype).program.kernels[0].grid) + len(instances) == len(self.order) else ()
        return self.order

    def _before(self, dtype: str) -> n.Program:
        """What stands in the place of the answer before forward."""
        from kir.lineage.carrier.recognition import known, naive
        return known(self.carrier, self.naive, dtype).program if self.naive else naive(self.carrier, dtype)

    def _naive(self, outline: Outline) -> n.Program:
        return fill(self.carrier, outline.holed, outline.path, self._before(outline.dtype), verified=False)

    def _is_naive(self, program: n.Program, outline: Outline) -> bool:
        """Whether the kernels of an outline are the contract's naive program. Raises KirError as `fill`."""
        here = tuple(_outside(k) for k in program.kernels if k.name in outline.names)
        alike = tuple(map(_outside, self._before(outline.dtype).kernels)) == here
        return alike and alpha_equal(self._naive(outline), program)

    def _recorded(self, program: n.Program, outline: Outline) -> str | Miss:
        """The answer that the kernels of an outline are, of those that this pass names or that are recorded, as its parameter spells it."""
        from kir.lineage.carrier.recognition import DIGITS
        here = tuple(_outside(k) for k in program.kernels if k.name in outline.names)
        for found in _answers(self, outline.dtype):
            if tuple(map(_outside, found.program.kernels)) != here:
                continue
            try:
                if alpha_equal(fill(self.carrier, outline.holed, outline.path, found.program, verified=False), program):
                    mine = self.answer and (self.answer == found.name or found.hash.startswith(self.answer))
                    return self.answer if mine else found.hash[:DIGITS]
            except KirError:
                continue
        return ""

    def _recognized(self, program: n.Program, outline: Outline) -> str | Miss:
        """The hash of what was found to meet the contract, which is kept; or why it does not."""
        from kir.lineage.carrier.recognition import DIGITS, agreement, keep
        try:
            cut = answer_of(self.carrier, program, outline)
            if not alpha_equal(fill(self.carrier, outline.holed, outline.path, cut, verified=False), program):
                return Miss(f"it is not put together as an answer to {self.carrier.id} is")
        except CannotOutline as bad:
            return Miss(str(bad))
        except KirError as bad:
            return Miss(bad.diagnostics[0].message)
        found = agreement(self.carrier, cut, outline.dtype)
        if not found.holds:
            return Miss(f"it does not meet {self.carrier.id}: {found.reason}: {found.witness[0]}")
        return keep(self.carrier, cut)[:DIGITS]


def _in_order(program: n.Program, kernel: n.Kernel, order: tuple[int, ...]) -> n.Program:
    """A program with the grid axes of a kernel in another order."""
    if sorted(order) != list(range(len(kernel.grid))):
        return program
    return replace_kernel(program, kernel.name, replace(kernel, grid=tuple(kernel.grid[k] for k in order)))


def asking(program: n.Program, kernels: tuple[str, ...], asks: tuple[str, ...]) -> n.Program:
    """A program of which some kernels ask their surface's compiler for something. Raises KirError KIR-R004 where one may not."""
    for name, (option, _, value) in product(kernels, (text.partition("=") for text in asks)):
        item = pass_class("surface-option").with_options({"option": option, "value": value})
        found = item.match(program, (name,), kernel_of(program, (name,)))
        if not isinstance(found, Site):
            raise error("KIR-R004", f"'{name}' may not ask for {option}={value}" + (f": {found.reason}" if isinstance(found, Miss) else ""), anchor=name)
        program = item.optimize(program, found).program
    return program


def asked_of(program: n.Program, kernels: tuple[str, ...]) -> tuple[tuple[str, ...], n.Program]:
    """What all of some kernels ask of their surface's compiler, and the program in which they do not; nothing where they ask for different things."""
    found = [tuple(found_sites(pass_class("surface-option")().match_inverse(program, (k.name,), k))) if k.attrs else ()
             for k in program.kernels if k.name in kernels]
    texts = {tuple(f"{site.params.options()['option']}={site.params.options()['value']}" for site in each) for each in found}
    if len(texts) != 1 or texts == {()}:
        return (), program
    for site in chain.from_iterable(found):
        program = site.params.deoptimize(program, site).program
    return texts.pop(), program


def _labelled_as(program: n.Program, name: str, before: n.Kernel) -> n.Program:
    """Statements of a kernel that another one had, too, have their labels from there."""
    labels = {s: s.label for s in statements(before.body)}
    return replace(program, kernels=tuple(transform(
        k, lambda _, s: updated(s, label=labels[s]) if isinstance(s, n.Stmt) and s in labels and s.label != labels[s] else s) if k.name == name else k
        for k in program.kernels))


def _outside(k: n.Kernel) -> tuple[n.Expr, tuple[str, ...]]:
    """What two kernels that are one up to places and names have in common at a glance: threads, and kinds of statements."""
    return k.threads, tuple(type(s).__name__ for s in statements(k.body))


def _again(item: Carrier, program: n.Program, path: Path) -> Site:
    found = matched_as(item.match(program, path, kernel_of(program, path)), Site)
    return found


def _answers(item: Carrier, dtype: str) -> Iterator[Known]:
    """The answer that a pass names, if there is one, and every one that is recorded for the contract as it is, in the dtype. (Answers
    that differ may be one program where a size is a literal.)"""
    from kir.lineage.carrier.recognition import known, known_by
    from kir.lineage.carrier.records import recorded
    if item.answer:
        with suppress(KirError):
            yield known(item.carrier, item.answer, dtype)
    for r in recorded(item.carrier):
        if r.record.contract_hash == item.carrier.hash:
            yield known_by(item.carrier, r, dtype)


def meets_contract(program: n.Program, site: Site, context: Context) -> Verdict:
    """Whether the answer does what the contract says: shipped with the gate's record, or run against the oracle now."""
    item = params_as(site, Carrier)
    if not item.answer:
        return proved(f"the hole is left open: what fills it is held to {item.carrier.id}")
    from kir.lineage.carrier.recognition import agreement, known
    outline = _again(item, program, site.path).captures["outline"]
    found = known(item.carrier, item.answer, outline.dtype)
    if found.source == "shipped":
        return proved(f"'{found.name}' ({found.note}) is recorded for {item.carrier.id} with the gate's word", GATED)
    seen = agreement(item.carrier, found.program, outline.dtype)
    if seen.holds:
        return proved(f"it meets {item.carrier.id} in {seen.runs} runs", GATED)
    return refuted(f"the answer '{item.answer}' does not meet {item.carrier.id}: {seen.reason}", *seen.witness,
                   needs=item.carrier.spec.title, attempt=f"kir carrier list, for answers to {item.carrier.id}")
