"""What the trace of a kernel is made with: open loops, guards, constants of what compilers do by themselves, and questions to single statements and values."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from kir.base.dataclass import dataclass
from kir.gate.counts import arithmetic
from kir.gate.counts.numbers import Value, number
from kir.gate.counts.trace import Item, Key, Loop, Op, Team, Wait, operations
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.types import DType, TileType, dtype_of
from kir.ir.visit import once, statements, walk

UNROLLED = ("unroll", "static", "vectorize")
L1_SHARE = 0.6
"""How much of L1 the lines of one access may take before they are thrown out (others are there as well)."""
BY_ITSELF = 4.0
"""Rounds of a loop of scalars that LLVM, and nvcc without a pragma, make one of where they do not know how many there are (nvcc 13.0: four; Triton 3.6 writes
eight, which take as long as if four were under way together)."""
FEW, WHOLE = 16, 64
"""Rounds up to which nvcc writes out a loop whole, where its bounds are numbers, and LLVM does (Triton 3.6, by the loads of what it compiled:
`benchmarks/data/effects`)."""
WHOLLY = 9
"""Rounds up to which they write out a loop inside another, and still make rounds of that one's one (Triton 3.6: loops of 3 by 3 loads become 72)."""
LEAST_COLUMNS = 28
"""Columns that a wgmma takes the time of at least (*micro*: 14 cycles for 8 columns of f16 by 16, 63 for 128)."""
ADDRESS, GUARDED_ADDRESS, BRANCH = 1.0, 5.0, 5.0
"""Instructions of 64-bit arithmetic that an access to global memory takes besides its indices where it moves with a loop: pointers are counted up,
or, under a condition that the loop changes, computed anew (products of 64 bits, a sum with carry, the pointer read from the constants); and those of a
branch around it, where the condition has two sides (an index that may be negative)."""
OWN_ADDRESS = 4.0
"""Instructions of the address of a load in inline PTX, as a cache policy has it in CUDA: it has one of 64 bits of its own, where other loads of an unrolled
loop have a constant beside the register (nvcc 13.0: LEA, IMAD and SHF, 186 for 32 loads more)."""
TILE_ADDRESS = 3.0
"""Instructions of addresses and conditions that each vector of a tile takes where the compiler distributes it."""
UNDER_WAY, GUARDED, BRANCHED = 16.0, 4.0, 2.0
"""Loads that a thread has under way in unrolled code: all that the compiler has registers for, those under a condition, those in a branch of their own."""



@dataclass
class Frame:
    """An open loop (or the kernel): its items so far, what its body changes, and what was computed in it."""

    var: str
    trips: float
    unrolled: bool
    lo: int = 0
    step: int = 1
    items: list[Item] = field(default_factory=list)
    changes: frozenset[str] = frozenset()
    spaces: frozenset[str] = frozenset()
    memo: dict[n.Expr, Key | None] = field(default_factory=dict)
    number: int = 0


Place = tuple[dict[str, Value | n.Expr], list[tuple[str, int]], list[str]]
"""Names at one CTA, axes of the grid with their extents, and what is not known."""


@dataclass(frozen=True)
class Guard:
    """Conditions before an access: their results, whether a loop changes them, and whether one has two sides."""

    keys: tuple[Key, ...] = ()
    moving: bool = False
    two_sided: bool = False


@dataclass
class Stream:
    """The trace of one kernel, and what it declares. `unknown` names what was not counted."""

    team: Team
    threads: int
    shared: int = 0
    registers: int = 0
    stages: int = 1
    unknown: list[str] = field(default_factory=list)


def changed(block: n.Block) -> tuple[frozenset[str], frozenset[str]]:
    """Buffers that a block writes, and the spaces that it writes, with `sync` where it waits for others."""
    names: set[str] = set()
    spaces: set[str] = set()
    for s in statements(block):
        match s:
            case n.Store():
                names.add(s.at.buffer.name)
                spaces.add(s.at.buffer.space)
            case n.Copy():
                names.add(s.dst.buffer.name)
                spaces.add(s.dst.buffer.space)
            case n.Mma():
                names.add(s.acc.buffer.name)
            case n.Eval():
                spaces.add("sync")
                for a in s.call.args:
                    if isinstance(a, n.Region):
                        names.add(a.buffer.name)
                        spaces.add(a.buffer.space)
            case _:
                pass
    return frozenset(names), frozenset(spaces)


def increment(s: n.Store) -> n.Expr | None:
    """What a register is counted up by."""
    if isinstance(s.value, n.Binary) and s.value.op == "add":
        for x, other in ((s.value.a, s.value.b), (s.value.b, s.value.a)):
            if isinstance(x, n.Load) and x.at == s.at:
                return other
    return None


def pipelined(items: list[Item], stages: int) -> list[Item]:
    """A loop whose compiler begins the copies of a later round: they go on apart, and are waited for first."""
    made: list[Item] = []
    for item in items:
        if isinstance(item, Op) and item.access is not None and item.access.verb == "read":
            item.apart, item.writes = "copy", None
        made.append(item)
    return [Wait("copy", stages - 2, stages - 1), *made]


def begun_first(items: list[Item]) -> None:
    """Copies of a later round that are begun right behind a round's wait, before it works, are under way for one round more than are left pending."""
    at = next((i for i, x in enumerate(items) if isinstance(x, Wait) and x.kind == "copy" and x.depth and x.depth == x.pending), None)
    if at is None:
        return
    for x in items[at + 1:]:
        if any(op.pipe == "tensor" or (isinstance(x, Loop) and op.pipe == "shared" and not op.apart) for op, _, _ in operations([x])):
            return
        if any(op.apart == "copy" for op, _, _ in operations([x])):
            wait = items[at]
            assert isinstance(wait, Wait)
            wait.depth += 1
            return


def scalar(body: n.Block) -> bool:
    """Whether a loop is one that compilers unroll by themselves: scalars alone, and nothing inside it that waits, or that loops and is not unrolled itself."""
    def plain(s: n.Stmt) -> bool:
        if isinstance(s, n.If):
            return all(map(plain, (*s.then, *s.orelse)))
        return isinstance(s, n.Let | n.Store | n.Alloc) and not any(isinstance(x, n.Expr) and isinstance(x.type, TileType) for x in walk(s))
    return all(wholly(s) if isinstance(s, n.For) else plain(s) for s in body)


def by_itself(s: n.For, trips: int, compiler: str) -> float:
    """How many rounds of a loop of scalars a surface's compiler makes one, by itself."""
    known = int_value(s.lo) is not None and int_value(s.hi) is not None
    if known and trips <= (WHOLE if compiler == "triton" else FEW):
        return float(max(1, trips))
    return 1.0 if trips < BY_ITSELF else BY_ITSELF


def wholly(s: n.For) -> bool:
    """Whether compilers write a loop out by themselves: a few rounds, whose number is known, of scalars alone."""
    lo, hi, step = (int_value(x) for x in (s.lo, s.hi, s.step))
    return s.kind == "serial" and lo is not None and hi is not None and bool(step) and 0 < (hi - lo) // (step or 1) <= WHOLLY and scalar(s.body)


def leaves(e: n.Node) -> tuple[frozenset[str], frozenset[tuple[str, str]], bool]:
    """Names and buffers that a value depends on, and whether its lanes work together, so that it stays where it is."""
    calls = any(isinstance(x, n.Call) and x.fn not in arithmetic.FREE_CALLS and x.fn not in arithmetic.CALLS for x in walk(e))
    return frozenset(x.name for x in walk(e) if isinstance(x, n.Var)), loaded(e), calls


def takes_away(e: n.Node) -> bool:
    """Whether a difference, or a negative number, stands at the top of a value."""
    return (isinstance(e, n.Binary) and e.op == "sub") or (isinstance(e, n.Const) and isinstance(e.value, int) and e.value < 0)


def loaded(e: n.Node) -> frozenset[tuple[str, str]]:
    """Buffers that are read below a node, with their spaces."""
    return once(e, "_loaded", lambda: frozenset((x.at.buffer.name, x.at.buffer.space) for x in walk(e) if isinstance(x, n.Load)))


def reads(e: n.Expr, b: n.Buffer) -> bool:
    """Whether an expression reads a buffer; of two global ones nothing tells that they are not the same memory."""
    return any(name == b.name or b.space == space == "global" for name, space in loaded(e))


def product(e: n.Binary) -> n.Binary | None:
    """The side of a sum that is a product, which one instruction makes with it."""
    for x in (e.a, e.b):
        if isinstance(x, n.Binary) and x.op == "mul":
            return x
    return None


def mma_shape(text: str) -> tuple[int, int, int]:
    """Rows, columns and depth of a product's instruction, from its name (`m16n8k16`)."""
    m, rest = text.removeprefix("m").split("n")
    columns, k = rest.split("k")
    return int(m), int(columns), int(k)


def unit(dtype: DType, via: str) -> str:
    """The name of the unit that multiplies elements of a dtype by an instruction (`bf16 wgmma`)."""
    name = "tf32" if dtype.name == "f32" else "fp8" if dtype.name.startswith("f8") else "i8" if dtype.name == "u8" else dtype.name
    return f"{name} {via}".strip()


def is_index(e: n.Expr) -> bool:
    """Whether a value is an integer or a condition made of names and literals alone."""
    t = e.type
    return isinstance(t, DType | TileType) and (dtype_of(t).is_integer or dtype_of(t).is_bool) and not loaded(e)


def values_at(program: n.Program, kernel: n.Kernel, sizes: Mapping[str, int], place: float | int) -> Place:
    """Names at one CTA (a number, counted along the first axis first, or a share of each axis); extents of the grid; what of it is not known."""
    values: dict[str, Value | n.Expr] = {p.name: sizes[p.name] for p in program.params if isinstance(p.of, DType) and p.name in sizes}
    for p in program.params:
        if p.value is not None and isinstance(p.of, DType):
            values[p.name] = p.value
    axes: list[tuple[str, int]] = []
    unknown: list[str] = []
    before = 1
    for axis in kernel.grid:
        extent = axis.extent if isinstance(axis.extent, int) else number(axis.extent, values)
        if extent is None:
            unknown.append(f"grid axis {axis.name}")
        each = max(1, extent or 1)
        values[axis.name] = place // before % each if isinstance(place, int) else min(each - 1, int(each * place))
        before *= each
        axes.append((axis.name, each))
    return values, axes, unknown
