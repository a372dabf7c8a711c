"""What must be decided before a kernel with tile products can be written for threads, decided and written down by passes.

A product that leaves its instruction open, or that several warps do together, does not say which warp computes what, through which memory
its operands come and with which instructions. `planned` applies the passes that say it, each with all its preconditions; what a pass
refuses is left as it was. The result is a tile program in which nothing is open, and the steps as pipeline text.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.hardware.target import target
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.printer import expr_text
from kir.ir.rules.verify import verify
from kir.ir.types import DType, dtype_of, shape_of
from kir.ir.visit import blocks_of, statements, walk
from kir.rewrite import Step, apply
from kir.rewrite.anchor import anchor_text
from kir.rewrite.base import found_sites
from kir.rewrite.driver import forward_site, tried
from kir.rewrite.edit import Path, enclosing, node_at, places
from kir.rewrite.pipelines.text import Direction
from kir.rewrite.precondition import Context
from kir.rewrite.registry import pass_class

WARP = 32
TARGET = "sm_80"
"""The oldest target that the backend writes for: a plan for it serves every later one."""


def is_open(k: n.Kernel) -> bool:
    """Whether a kernel has a product that leaves something to decide."""
    return any(isinstance(s, n.Mma) and s.via in ("auto", "mma_sync") and not s.pending for s in _of_the_cta(k.body))


def _of_the_cta(block: n.Block) -> Iterator[n.Stmt]:
    for s in block:
        yield s
        if not (isinstance(s, n.For) and s.kind in ("warp", "warpgroup", "thread")):
            for b in blocks_of(s):
                yield from _of_the_cta(b)


def planned(program: n.Program, kernel: str) -> tuple[n.Program, tuple[str, ...]]:
    """The program with a kernel's products decided, and the steps that did it."""
    plan = _Plan(program, kernel)
    plan.run()
    if any(d.severity == "error" for d in verify(plan.program)):  # a step whose result is no program is not taken: found out one by one
        plan = _Plan(program, kernel, verified=True)
        plan.run()
    return plan.program, tuple(plan.steps)


@dataclass
class _Plan:
    program: n.Program
    kernel: str
    steps: list[str] = field(default_factory=list)
    context: Context = field(default_factory=lambda: Context(target=target(TARGET)))
    verified: bool = False
    """Whether each step is verified, not the last alone."""

    def run(self) -> None:
        """Every decision, from the loops inward."""
        before = self._shared()
        self._each(n.Copy, lambda path: self.step("tma-load", path, "backward") or self.step("tma-store", path, "backward"))
        stages = self._unpipelined()
        self._each(n.Let, self._inline)
        self._staged()
        for name, count in stages.items():
            self._ring(name, count)
        self._each(n.Mma, self._instruction)
        self._each(n.Mma, self._divided)
        self._each(n.Mma, self._stepped)
        self._each(n.Mma, self._through_registers)
        self._each(n.Store, self._epilogue)
        self._each(n.Alloc, lambda path: self._swizzled(path, self._shared() - before))

    # ------------------------------------------------------------------------------------------------------------- applying
    def at(self, path: Path) -> n.Stmt:
        """The statement at a path."""
        found = node_at(self.program, path)
        assert isinstance(found, n.Stmt)
        return found

    def paths(self, kind: type[n.Stmt]) -> list[Path]:
        """Where statements of a kind stand, in reading order."""
        return [p for p, s in places(self.program) if p[0] == self.kernel and isinstance(s, kind)]

    def _each(self, kind: type[n.Stmt], do: object) -> None:
        """Does something at each statement of a kind, last first, so that what is done leaves the places before it alone."""
        assert callable(do)
        for path in reversed(self.paths(kind)):
            do(path)

    def step(self, name: str, path: Path, direction: Direction = "forward", **options: object) -> bool:
        """Takes a step if every precondition holds."""
        try:
            item = pass_class(name).with_options(options)
            if direction == "forward":
                site = forward_site(self.program, item, path)
            else:
                found = found_sites(item.match_inverse(self.program, path, node_at(self.program, path)))
                site = next(t for s in found if (t := tried(self.program, s)) is not None)
            done = apply(self.program, site.params, site, direction, context=self.context, verified=self.verified)
        except (KirError, StopIteration):
            return False
        self.steps.append(str(Step.of(site.params, anchor_text(self.program, site.path), direction)))
        self.program = done.program
        return True

    # ------------------------------------------------------------------------------------------------------------ decisions
    def _unpipelined(self) -> dict[str, int]:
        """Pipelined loops as serial ones, and the stages of each by its variable."""
        out: dict[str, int] = {}
        for path in self.paths(n.For):
            s = self.at(path)
            assert isinstance(s, n.For)
            stages = dict(s.attrs).get("stages")
            if s.kind == "pipelined" and self.step("pipeline", path, "backward"):
                out[s.var.name] = stages if isinstance(stages, int) else 1
        return out

    def _inline(self, path: Path) -> None:
        """A named tile that is read from global memory, or converted, is written where it is used."""
        s = self.at(path)
        assert isinstance(s, n.Let)
        if shape_of(s.value.type):
            name = "retain-tile" if isinstance(s.value, n.Load) else "cache-converted-value" if isinstance(s.value, n.Cast) else ""
            if name:
                self.step(name, path, "backward")

    def _staged(self) -> None:
        """Operands in global memory go through shared memory, in the widest vectors that are provably aligned."""
        before = self._shared()
        for path, s in [(path, self.at(path)) for path in reversed(self.paths(n.Mma))]:  # staging moves what comes after it
            assert isinstance(s, n.Mma)
            hoist = len([p for p in path if p == "body"])
            for e in (s.b, s.a):
                for x in walk(e):
                    if isinstance(x, n.Load) and x.at.buffer.space == "global" and shape_of(x.type):
                        self.step("stage-shared", self._now(path, s), value=expr_text(x), hoist=hoist)
        for path in self.paths(n.Copy):
            s = self.at(path)
            if isinstance(s, n.Copy) and s.dst.buffer.name in self._shared() - before:
                self._vector(path)

    def _vector(self, path: Path) -> bool:
        s = self.at(path)
        assert isinstance(s, n.Copy)
        return any(self.step("vectorize-global", path, width=size // s.dst.buffer.dtype.bytes)
                   for size in (16, 8, 4) if size > s.dst.buffer.dtype.bytes)

    def _now(self, path: Path, s: n.Mma) -> Path:
        """Where a product stands after statements came before it."""
        found = [p for p in self.paths(n.Mma) if len(p) == len(path) and self._acc(p) == s.acc and int(p[1]) >= int(path[1])]
        return found[0] if found else path

    def _acc(self, path: Path) -> n.Region:
        s = self.at(path)
        assert isinstance(s, n.Mma)
        return s.acc

    def _shared(self) -> set[str]:
        return {s.buffer.name for k in self.program.kernels for s in statements(k.body)
                if isinstance(s, n.Alloc) and s.buffer.space == "shared"}

    def _ring(self, variable: str, stages: int) -> None:
        """As many stages as the loop was told to keep in flight, filled by cp.async where the copies allow it."""
        def loop() -> Path:
            return next(p for p in self.paths(n.For) if isinstance(s := self.at(p), n.For) and s.var.name == variable)
        if stages >= 2 and self.step("ring-buffer", loop(), stages=stages, distance=stages - 1) and self._in_chunks():
            self.step("async-copy", loop(), pending=stages - 2)

    def _in_chunks(self) -> bool:
        """Whether all that is copied from global to shared memory moves in vectors: CUDA has no compiler that would choose the chunks of cp.async."""
        copies = [s for p in self.paths(n.Copy) if isinstance(s := self.at(p), n.Copy) and s.src.at.buffer.space == "global"
                  and s.dst.buffer.space == "shared"]
        return all(s.via != "plain" for s in copies)

    def _instruction(self, path: Path) -> None:
        """An open product runs on tensor cores if its dtypes and shape do, otherwise on the scalar units."""
        s = self.at(path)
        assert isinstance(s, n.Mma)
        if s.via == "auto" and not s.pending and self.step("mma", path, "backward"):
            self.step("mma", path, via="mma_sync")

    def _divided(self, path: Path) -> None:
        """The grid of warps whose parts are nearest to squares."""
        s, kernel = self.at(path), next(k for k in self.program.kernels if k.name == self.kernel)
        warps = (int_value(kernel.threads) or 0) // WARP
        assert isinstance(s, n.Mma)
        shape = [d if isinstance(d, int) else 0 for d in shape_of(s.acc.type)]
        if warps < 2 or len(shape) != 2 or s.via != "mma_sync" or ("body" in path and self._in_a_part(path)):
            return
        grids = [(r, warps // r) for r in range(1, warps + 1) if warps % r == 0 and shape[0] % (16 * r) == 0 == shape[1] % (8 * (warps // r))]
        for rows, columns in sorted(grids, key=lambda g: (abs(shape[0] // g[0] - shape[1] // g[1]), g)):
            if self.step("warp-partition", path, rows=rows, columns=columns):
                return

    def _in_a_part(self, path: Path) -> bool:
        return any(isinstance(s, n.For) and s.kind in ("warp", "warpgroup", "thread") for _, s in enclosing(self.program, path))

    def _stepped(self, path: Path) -> None:
        """Steps as deep as an instruction, unrolled."""
        s = self.at(path)
        assert isinstance(s, n.Mma)
        depth, a = shape_of(s.a.type)[-1], dtype_of(s.a.type)
        if s.via == "mma_sync" and isinstance(a, DType) and isinstance(depth, int) and depth > 256 // a.bits and self.step(
                "register-tile", path, step=256 // a.bits):
            self.step("unroll", path, factor=depth * a.bits // 256, form="hint")

    def _through_registers(self, path: Path) -> None:
        """Operands in shared memory go through fragments, by ldmatrix where their elements have 16 bits."""
        s = self.at(path)
        assert isinstance(s, n.Mma)
        if s.via != "mma_sync":
            return
        at = path
        for e, trans in ((s.a, False), (s.b, True)):
            if isinstance(e, n.Load) and e.at.buffer.space == "shared" and self.step("stage-fragment", at, value=expr_text(e)):
                copy = (*at[:-1], int(at[-1]) + 1)
                if not (trans and self.step("ldmatrix", copy, trans=True, num=4)):
                    self.step("ldmatrix", copy, trans=trans)
                at = (*at[:-1], int(at[-1]) + 2)

    def _epilogue(self, path: Path) -> None:
        """A result in fragments of mma.sync is staged, if that makes its stores to global memory wide."""
        s = self.at(path)
        assert isinstance(s, n.Store)
        fragments = {x.acc.buffer.name for k in self.program.kernels for x in statements(k.body)
                     if isinstance(x, n.Mma) and x.via == "mma_sync"}
        if s.at.buffer.space != "global" or not any(isinstance(x, n.Load) and x.at.buffer.name in fragments for x in walk(s.value)):
            return
        before, count = self.program, len(self.steps)
        if self.step("stage-epilogue", path):
            copies = [p for p in self.paths(n.Copy) if isinstance(c := self.at(p), n.Copy) and c.dst == s.at]
            if len(copies) != 1 or not self._vector(copies[0]):
                self.program = before
                del self.steps[count:]

    def _swizzled(self, path: Path, staged: set[str]) -> None:
        """Rows that a warp reads together lie in different banks."""
        s = self.at(path)
        assert isinstance(s, n.Alloc)
        b, columns = s.buffer, int_value(s.buffer.shape[-1]) if s.buffer.shape else None
        if b.name not in staged or columns is None or b.dtype.bits < 8:
            return
        row = columns * b.dtype.bytes
        if row % 32 or row & (row - 1):
            return
        bits, size = (min(row, 128) // 16).bit_length() - 1, max(row, 128).bit_length() - 1
        self.step("swizzle-shared", path, bits=bits, base=4, shift=size - 4)
