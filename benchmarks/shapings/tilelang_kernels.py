"""TileLang kernels whose tensors the source declares in one form, and the binding in another: flat, as rows, and through views."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from textwrap import dedent, indent

from .kernel import Factors, Kernel, Memory, bounded, product, sized
from .triton_kernels import MOST, some

HEAD = "import tilelang\nimport tilelang.language as T\n\n\n"
KINDS = {"f32": "float32", "i32": "int32"}


def kernel(rng: Random, family: str, body: str, memories: Mapping[str, Memory], shapes: Mapping[str, Sequence[object]]) -> Kernel:
    """A factory whose arguments are the sizes; `shapes` are what the source declares."""
    names = tuple(dict.fromkeys(f for m in memories.values() for f in (*m.factors, *m.below) if isinstance(f, str)))
    tensors = ", ".join(f'{name}: T.Tensor(({", ".join(map(str, shapes[name]))},), "{KINDS[m.dtype]}")' for name, m in memories.items())
    text = f"{HEAD}def make({', '.join(names)}):\n    @T.prim_func\n    def k({tensors}):\n{indent(dedent(body).strip(), '        ')}\n    return k\n"
    return Kernel("tilelang", family, text, "k", memories, (), sized(rng, names, MOST), bounded(rng, names), {}, {})


def elementwise(rng: Random) -> Kernel:
    """Neighbors of a flat tensor, one chunk a CTA."""
    f = some(rng, "B", "GR", "PG", "HW")
    total, block = product(f), rng.choice((8, 16, 32))
    body = f"""
        with T.Kernel(T.ceildiv({total}, {block}), threads=32) as bx:
            for j in T.Parallel({block}):
                if bx * {block} + j < {total}:
                    Y[bx * {block} + j] = X[{rng.choice((f"bx * {block} + j", f"{total} - 1 - (bx * {block} + j)"))}] * 2.0 + 1.0
        """
    return kernel(rng, "elementwise", body, {"X": Memory(f), "Y": Memory(f, written=True)}, {"X": [total], "Y": [total]})


def groups(rng: Random) -> Kernel:
    """A group a CTA of flat tensors, or of a view of one."""
    f: Factors = rng.choice((("B", "GR", "PG", "HW"), ("B", "GR", 4, "HW"), ("B", "GR", "PG", 8)))
    total, size, block = product(f), product(f[-2:]), rng.choice((8, 16))
    viewed = rng.random() < 0.5
    first = f"Z = T.view(X, ({total},))" if viewed else "pass"
    name = "Z" if viewed else "X"
    body = f"""
        with T.Kernel({product(f[:-2])}, threads=32) as bx:
            {first}
            for s in T.serial(T.ceildiv({size}, {block})):
                for j in T.Parallel({block}):
                    if s * {block} + j < {size}:
                        Y[bx * {size} + s * {block} + j] = {name}[bx * {size} + s * {block} + j] * 2.0 + 1.0
        """
    if not viewed:
        body = body.replace("            pass\n", "")
    return kernel(rng, "groups", body, {"X": Memory(f), "Y": Memory(f, written=True)}, {"X": [product(f[:2]), size] if viewed else [total], "Y": [total]})


def rows(rng: Random) -> Kernel:
    """Tensors with rows in the source itself, which the binding shapes otherwise; turned or not."""
    m, n = rng.choice(((("M",), ("N",)), (("M", "K"), ("N",)), (("M",), ("PG", "HW")), (("M",), (8,))))
    rows_, cols, block = product(m), product(n), rng.choice((4, 8))
    turned = rng.random() < 0.4
    body = f"""
        with T.Kernel(T.ceildiv({cols}, {block}), {rows_}, threads=32) as (bx, by):
            for j in T.Parallel({block}):
                if bx * {block} + j < {cols}:
                    Y[{f"bx * {block} + j, by" if turned else f"by, bx * {block} + j"}] = X[by, bx * {block} + j] * 2.0 + C[bx * {block} + j]
        """
    whole: Factors = (*m, *n)
    out: Factors = (*n, *m) if turned else whole
    return kernel(rng, "rows", body, {"X": Memory(whole), "C": Memory(n), "Y": Memory(out, written=True)},
                  {"X": [rows_, cols], "C": [cols], "Y": [cols, rows_] if turned else [rows_, cols]})


FAMILIES = {f"tilelang {each.__name__}": each for each in (elementwise, groups, rows)}
