"""Memory that a kernel reaches by address: its parameters, what it declares, and under which dtypes it takes them."""

from __future__ import annotations

from collections import Counter
from dataclasses import field

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I64, U8, DType, Space


@dataclass
class Symbol:
    """Memory with an address. `own` is its dtype where that is known, `bytes` its size; `views` are the buffers as which it is accessed."""

    name: str
    space: Space
    bytes: n.Expr
    own: DType | None = None
    align: int = 0
    shape: tuple[n.Expr, ...] = ()
    boxed: n.Buffer | None = None
    """The tensor as tensor maps describe it, of a parameter that has some; what reaches it by its address sees its elements in a row."""
    views: dict[DType, n.Buffer] = field(default_factory=dict)
    accessed: Counter[DType] = field(default_factory=Counter)
    shaped: dict[str, n.Buffer] = field(default_factory=dict)
    """Views of shared memory as matrices, by name."""
    starts: dict[str, int] = field(default_factory=dict)
    """The byte that each begins at."""

    def buffer(self, dtype: DType) -> n.Buffer:
        """The memory as elements of a dtype."""
        if dtype not in self.views:
            if dtype == self.own and self.shape and self.boxed is None:
                self.views[dtype] = n.Buffer(self.name, dtype, self.shape, self.space)
            else:
                name = self.name if dtype == self.own and self.boxed is None else f"{self.name}_{dtype.name}"
                size = build.floordiv(self.bytes, dtype.bytes) if dtype.bytes > 1 else self.bytes
                self.views[dtype] = n.Buffer(name, dtype, (size,), self.space)
        return self.views[dtype]

    def matrix(self, dtype: DType, span: int, panel: int, swizzled: bool, start: int = 0) -> n.Buffer:
        """The memory from byte `start` on as rows of `span` bytes, in panels of so many bytes (0: one), swizzled within eight rows as wgmma and TMA do."""
        name = f"{self.name}_{dtype.name}_{span}{f'_{panel}' if panel else ''}{f'_at_{start}' if start else ''}{'' if swizzled else '_flat'}"
        if name not in self.shaped:
            self.starts[name] = start
            left = build.sub(self.bytes, start) if start else self.bytes
            rows = [build.floordiv(left, panel), build.const(panel // span)] if panel else [self._rows(span, swizzled)]
            layout = n.Layout("swizzle", {128: (3, 4, 3), 64: (2, 4, 3), 32: (1, 4, 3)}[span]) if swizzled else None
            self.shaped[name] = n.Buffer(name, dtype, (*rows, build.const(span // dtype.bytes)), self.space, layout)
        return self.shaped[name]

    def _rows(self, span: int, swizzled: bool) -> n.Expr:
        """Rows of so many bytes; whole groups of eight where they are swizzled."""
        return build.mul(build.floordiv(self.bytes, 8 * span), 8) if swizzled else build.floordiv(self.bytes, span)

    @property
    def start(self) -> n.Region:
        """Where an address into it starts."""
        return n.Region(n.Buffer(self.name, self.own or U8, (self.bytes,), self.space), (build.const(0, I64),))

    def declarations(self) -> list[n.Stmt]:
        """What declares it and its views in a kernel: one array where it is accessed as one, else bytes and views of them."""
        if self.space == "global":
            own = self.boxed or self.buffer(self.own or U8)
            return [n.View(b, n.Region(own, (build.const(0, I64),) * len(own.shape))) for d, b in self.views.items() if b is not own]
        if not self.views and not self.shaped:
            return []
        if len(self.views) == 1 and not self.shaped:
            b = next(iter(self.views.values()))
            return [n.Alloc(n.Buffer(b.name, b.dtype, b.shape, b.space, align=self.align if self.align > b.dtype.bytes else 0))]
        whole = n.Buffer(self.name, U8, (self.bytes,), self.space, align=max(self.align, 1024 if self.shaped else 16))
        views = [*(b for d, b in self.views.items() if d != U8), *self.shaped.values()]
        return [n.Alloc(whole), *(n.View(b, n.Region(whole, (build.const(self.starts.get(b.name, 0)),))) for b in views)]


__all__ = ["Symbol"]
