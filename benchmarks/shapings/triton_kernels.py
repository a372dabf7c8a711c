"""Triton kernels of the usual families, each addressing its tensors flat, with sizes, masks and steps drawn at random."""
from __future__ import annotations

from collections.abc import Sequence
from random import Random
from textwrap import dedent, indent

from .kernel import Factors, Kernel, Memory, bounded, product, sized

HEAD = "import triton\nimport triton.language as tl\n\n\n@triton.jit\n"
MOST = {"B": 3, "GR": 3, "PG": 4, "HW": 13, "M": 6, "N": 21, "K": 5}


def kernel(rng: Random, family: str, params: Sequence[str], body: str, memories: dict[str, Memory], grid: Sequence[str],
           steps: dict[str, int] | None = None, scalars: dict[str, str] | None = None, **metas: int) -> Kernel:
    """A kernel of a body, whose tensors come first; each of `params` is a size, unless `scalars` says what it is."""
    text = f"{HEAD}def k({', '.join([*memories, *params, *(f'{m}: tl.constexpr' for m in metas)])}):\n{indent(dedent(body).strip(), '    ')}\n"
    names = tuple(dict.fromkeys(f for m in memories.values() for f in (*m.factors, *m.below) if isinstance(f, str)))
    return Kernel("triton", family, text, "k", memories, tuple(grid), sized(rng, names, MOST, steps), bounded(rng, names, steps), dict(metas),
                  {p: (scalars or {}).get(p, p) for p in params})


def block(rng: Random) -> int:
    return rng.choice((4, 8, 16, 32))


def some(rng: Random, *names: str) -> Factors:
    """Factors of a memory: at least two of the names, in some order, perhaps with a number."""
    chosen: Factors = tuple(rng.sample(names, rng.randint(2, len(names))))
    return (*chosen, rng.choice((2, 4, 6, 8))) if rng.random() < 0.3 else chosen


def elementwise(rng: Random) -> Kernel:
    """One chunk a CTA, or every so many; neighbors, reversed, shifted, every second."""
    f = some(rng, "B", "GR", "PG", "HW")
    place, extra = rng.choice([("at", ""), ("total - 1 - at", ""), ("at - 1", " & (at >= 1)"), ("at + 3", " & (at + 3 < total)"), ("at // 2 * 2", ""),
                               ("(at + 5) % total", ""), ("at * 2", " & (at * 2 < total)")])
    if rng.random() < 0.4:
        body = f"""
            for start in range(tl.program_id(0) * BLOCK, total, tl.num_programs(0) * BLOCK):
                at = start + tl.arange(0, BLOCK)
                mask = at < total
                x = tl.load(X + ({place}), mask=mask{extra}, other=0.0)
                tl.store(Y + at, x * 2.0 + 1.0, mask=mask)
            """
        grid = str(rng.choice((1, 2, 3)))
    else:
        body = f"""
            at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
            mask = at < total
            x = tl.load(X + ({place}), mask=mask{extra}, other=0.0)
            tl.store(Y + at, x * 2.0 + 1.0, mask=mask)
            """
        grid = f"ceildiv({product(f)}, BLOCK)"
    return kernel(rng, "elementwise", ["total"], body, {"X": Memory(f), "Y": Memory(f, written=True)}, [grid], None, {"total": str(product(f))},
                  BLOCK=block(rng))


def rows(rng: Random) -> Kernel:
    """A row a CTA: a sum, and each element by it."""
    f = some(rng, "B", "M", "K")
    last = rng.choice((("HW",), ("PG", "HW"), ("N",)))
    width = str(product(last))
    cols = rng.choice(("cols", "N - 1 - cols"))
    if rng.random() < 0.5:
        body = f"""
            row = tl.program_id(0)
            total = tl.zeros([BLOCK], dtype=tl.float32)
            for start in range(0, N, BLOCK):
                cols = start + tl.arange(0, BLOCK)
                total += tl.load(X + row * N + {cols}, mask=cols < N, other=0.0)
            s = tl.sum(total, axis=0)
            for start in range(0, N, BLOCK):
                cols = start + tl.arange(0, BLOCK)
                x = tl.load(X + row * N + cols, mask=cols < N, other=0.0)
                tl.store(Y + row * N + cols, x + s, mask=cols < N)
            tl.store(R + row, s)
            """
        size = block(rng)
    else:
        body = f"""
            row = tl.program_id(0)
            cols = tl.arange(0, BLOCK)
            x = tl.load(X + row * N + ({cols}), mask=cols < N, other=0.0)
            s = tl.sum(x, axis=0)
            tl.store(Y + row * N + cols, x + s, mask=cols < N)
            tl.store(R + row, s)
            """
        size = 64
    whole: Factors = (*f, *last)
    return kernel(rng, "rows", ["N"], body, {"X": Memory(whole), "Y": Memory(whole, written=True), "R": Memory(f, written=True)}, [str(product(f))], None,
                  {"N": width}, BLOCK=size)


def groups(rng: Random) -> Kernel:
    """A group of channels a CTA, as a group norm takes them: in one run, or channel by channel, with the channels' own weights."""
    f: Factors = rng.choice((("B", "GR", "PG", "HW"), ("B", "GR", "PG", 8), ("B", "GR", 4, "HW"), ("B", "K", "GR", "PG", "HW")))
    outer, (pg, hw) = f[:-2], f[-2:]
    way = rng.choice(("run", "channels", "split"))
    if way == "run":
        body = """
            base = tl.program_id(0) * PG * HW
            total = tl.zeros([BLOCK], dtype=tl.float32)
            for start in range(0, PG * HW, BLOCK):
                at = start + tl.arange(0, BLOCK)
                total += tl.load(X + base + at, mask=at < PG * HW, other=0.0)
            s = tl.sum(total, axis=0)
            for start in range(0, PG * HW, BLOCK):
                at = start + tl.arange(0, BLOCK)
                mask = at < PG * HW
                x = tl.load(X + base + at, mask=mask, other=0.0)
                w = tl.load(W + (tl.program_id(0) % GR) * PG + at // HW, mask=mask, other=0.0)
                tl.store(Y + base + at, (x - s) * w, mask=mask)
            """
        grid = [str(product(outer))]
    elif way == "channels":
        body = """
            base = tl.program_id(0) * PG * HW
            total = 0.0
            for c in range(PG):
                for start in range(0, HW, BLOCK):
                    at = start + tl.arange(0, BLOCK)
                    total += tl.sum(tl.load(X + base + c * HW + at, mask=at < HW, other=0.0), axis=0)
            for c in range(PG):
                w = tl.load(W + (tl.program_id(0) % GR) * PG + c)
                for start in range(0, HW, BLOCK):
                    at = start + tl.arange(0, BLOCK)
                    x = tl.load(X + base + c * HW + at, mask=at < HW, other=0.0)
                    tl.store(Y + base + c * HW + at, (x - total) * w, mask=at < HW)
            """
        grid = [str(product(outer))]
    else:
        body = """
            b = tl.program_id(0)
            g = tl.program_id(1)
            base = (b * GR + g) * PG * HW
            for start in range(0, PG * HW, BLOCK):
                at = start + tl.arange(0, BLOCK)
                mask = at < PG * HW
                x = tl.load(X + base + at, mask=mask, other=0.0)
                w = tl.load(W + g * PG + at // HW, mask=mask, other=0.0)
                tl.store(Y + base + at, x * w, mask=mask)
            """
        grid = [str(product(f[:-3])), str(f[-3])]
    return kernel(rng, "groups", ["GR", "PG", "HW"], body, {"X": Memory(f), "W": Memory(f[-3:-1]), "Y": Memory(f, written=True)}, grid, None,
                  {"GR": str(f[-3]), "PG": str(pg), "HW": str(hw)}, BLOCK=block(rng))


def tiles(rng: Random) -> Kernel:
    """Tiles of two axes: copied, turned, with a row of biases; whole rows and columns masked, or only the end of the memory."""
    turned, batch = rng.random() < 0.5, rng.random() < 0.5
    first: Factors = ("B",) if batch else ()
    m, n = rng.choice(((("M",), ("N",)), (("M",), ("PG", "HW")), (("GR", "PG"), ("HW",)), (("M",), (8,))))
    mask = rng.choice(("(rows < M)[:, None] & (cols < N)[None, :]", "(rows < M)[:, None] & (cols < N)[None, :]",
                       "((rows < M)[:, None] & (cols < N)[None, :]) & (rows[:, None] * N + cols[None, :] < M * N)"))
    place = "cols[None, :] * M + rows[:, None]" if turned else "rows[:, None] * N + cols[None, :]"
    back = "tl.program_id(2) * M * N" if batch else "0"
    shifted = rng.choice((0, 0, 0, 1, -1))
    read = f"rows[:, None] * N + cols[None, :] + {shifted}" if shifted else "rows[:, None] * N + cols[None, :]"
    more = "" if not shifted else " & (cols + 1 < N)[None, :]" if shifted > 0 else " & (cols >= 1)[None, :]"
    body = f"""
        rows = tl.program_id(0) * BM + tl.arange(0, BM)
        cols = tl.program_id(1) * BN + tl.arange(0, BN)
        mask = {mask}
        x = tl.load(X + {back} + {read}, mask=mask{more}, other=0.0)
        b = tl.load(C + cols, mask=cols < N, other=0.0)
        tl.store(Y + {back} + {place}, x + b[None, :], mask=mask)
        """
    whole: Factors = (*first, *m, *n)
    out: Factors = (*first, *n, *m) if turned else whole
    grid = [f"ceildiv({product(m)}, BM)", f"ceildiv({product(n)}, BN)", *map(str, first)]
    return kernel(rng, "tiles", ["M", "N"], body, {"X": Memory(whole), "C": Memory(n), "Y": Memory(out, written=True)}, grid, None,
                  {"M": str(product(m)), "N": str(product(n))}, BM=rng.choice((2, 4, 8)), BN=rng.choice((4, 8, 16)))


def windows(rng: Random) -> Kernel:
    """Sums over windows that overlap, or reach over rows: in the whole memory, or within a row."""
    f = some(rng, "B", "GR", "PG", "HW")
    step, own = rng.choice((1, 2, 3, 4)), rng.random() < 0.5
    if own:
        last = f[-1]
        body = f"""
            row = tl.program_id(0)
            at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
            total = tl.zeros([BLOCK], dtype=tl.float32)
            for w in range(-{step}, {step} + 1):
                total += tl.load(X + row * N + at + w, mask=(at + w >= 0) & (at + w < N), other=0.0)
            tl.store(Y + row * N + at, total, mask=at < N)
            """
        return kernel(rng, "windows", ["N"], body, {"X": Memory(f), "Y": Memory(f, written=True)}, [str(product(f[:-1])), f"ceildiv({last}, BLOCK)"],
                      None, {"N": str(last)}, BLOCK=block(rng))
    body = f"""
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        total = tl.zeros([BLOCK], dtype=tl.float32)
        for w in range({step + 2}):
            total += tl.load(X + at * {step} + w, mask=at * {step} + w < total_size, other=0.0)
        tl.store(Y + at, total, mask=at < total_size)
        """
    return kernel(rng, "windows", ["total_size"], body, {"X": Memory(f), "Y": Memory(f, written=True)}, [f"ceildiv({product(f)}, BLOCK)"], None,
                  {"total_size": str(product(f))}, BLOCK=block(rng))


def gathers(rng: Random) -> Kernel:
    """Elements, or rows, that another tensor names; into one of the same form, and added up where several meet."""
    whole = some(rng, "B", "GR", "PG", "HW")
    if rng.random() < 0.5:
        body = """
            at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
            mask = at < n
            i = tl.load(I + at, mask=mask, other=0)
            x = tl.load(X + i, mask=mask, other=0.0)
            tl.store(Y + at, x, mask=mask)
            tl.atomic_add(Z + i, x, mask=mask)
            """
        return kernel(rng, "gathers", ["n"], body, {"X": Memory(whole), "I": Memory(("K", "M"), "i32", below=whole), "Y": Memory(("K", "M"), written=True),
                                                    "Z": Memory(whole, written=True)}, ["ceildiv(K * M, BLOCK)"], None, {"n": "K * M"}, BLOCK=block(rng))
    rows_, last = whole[:-1], whole[-1]
    outer: Factors = ("K", "M")
    mask = rng.choice(("cols < N", "(cols < N) & (i >= 0)"))
    body = f"""
        r = tl.program_id(0)
        i = tl.load(I + r)
        cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(X + i * N + cols, mask={mask}, other=0.0)
        tl.store(Y + r * N + cols, x, mask=cols < N)
        """
    return kernel(rng, "gathers", ["N"], body, {"X": Memory(whole), "I": Memory(outer, "i32", below=rows_), "Y": Memory((*outer, last), written=True)},
                  ["K * M", f"ceildiv({last}, BLOCK)"], None, {"N": str(last)}, BLOCK=block(rng))


def unmasked(rng: Random) -> Kernel:
    """Chunks that fill the memory, or rows that chunks fill, with no mask: what divides what is a fact, or not needed."""
    size = rng.choice((4, 8))
    f: Factors = (*rng.sample(("B", "GR", "PG"), rng.randint(1, 3)), rng.choice((size, size * 2, "HW")))
    steps = {"HW": size} if "HW" in f else {}
    if rng.random() < 0.5:
        body = """
            at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
            tl.store(Y + at, tl.load(X + at) * 2.0)
            """
        grid = [f"{product(f)} // BLOCK"]
    else:
        body = """
            row = tl.program_id(0)
            at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
            tl.store(Y + row * N + at, tl.load(X + row * N + at) * 2.0)
            """
        grid = [str(product(f[:-1])), f"{f[-1]} // BLOCK"]
    return kernel(rng, "unmasked", ["N"], body, {"X": Memory(f), "Y": Memory(f, written=True)}, grid, steps, {"N": str(f[-1])}, BLOCK=size)


def channels(rng: Random) -> Kernel:
    """An element's channel from its place: a bias by `// HW % C`, with a column of numbers added up in a loop."""
    f: Factors = rng.choice((("B", "K", "HW"), ("B", "GR", "PG", "HW"), ("B", 4, "HW"), ("B", "K", 8)))
    channel, last = f[1:-1], f[-1]
    body = """
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = at < total
        c = at // HW % C
        x = tl.load(X + at, mask=mask, other=0.0) + tl.load(V + c, mask=mask, other=0.0)
        for b in range(total // (C * HW)):
            x += tl.load(X + b * C * HW + at % (C * HW), mask=mask, other=0.0)
        tl.store(Y + at, x, mask=mask)
        """
    return kernel(rng, "channels", ["total", "C", "HW"], body, {"X": Memory(f), "V": Memory(channel), "Y": Memory(f, written=True)},
                  [f"ceildiv({product(f)}, BLOCK)"], None, {"total": str(product(f)), "C": str(product(channel)), "HW": str(last)}, BLOCK=block(rng))


FAMILIES = {f"triton {each.__name__}": each for each in (elementwise, rows, groups, tiles, windows, gathers, unmasked, channels)}
