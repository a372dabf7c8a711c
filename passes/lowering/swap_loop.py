"""Writes an atomic that no instruction does out as tries: a new value is put in place only where the old one is still there, and else is computed again.

pipeline: `swap-loop{word=i32}@main/t/most`

```diff
 kir 1
 program greatest
   size N: i32
   size S: i32
   in X: f32[N]
   in seg: i32[N]
   inout Y: f32[S]
   fact N % 32 == 0
 kernel main grid (b: N // 32) threads 32
+  view global Y__i32: i32[cast(S, i64)] at Y
   for t in 0..32 parallel thread
-    @most atomic_max(&Y[seg[b * 32 + t]], X[b * 32 + t])
+    @most register old: i32 = cast(load(Y[seg[b * 32 + t]] cache volatile), i32, bits)
+    while true
+      let assumed = old
+      let found = atomic_cas(&Y__i32[seg[b * 32 + t]], assumed, cast(max(X[b * 32 + t], cast(assumed, f32, bits)), i32, bits))
+      old = found
+      if assumed == old
+        break
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import DTYPES, I64, DType, dtype_of
from kir.ir.visit import names_mentioned, walk
from kir.rewrite import Found, Miss, Pass, Path, Place, Rewritten, Site
from kir.rewrite.edit import block_at, fresh, kernel_of
from kir.rewrite.match import block_and_index, matched, matched_as, names_at, params_as, sibling, splice
from kir.rewrite.match.thread_team import whole

OPERATIONS = {"atomic_add": "add", "atomic_max": "max", "atomic_min": "min"}
"""What a try computes, by the atomic that it stands for."""
WORDS = {32: ("i32", "u32"), 64: ("u64", "i64")}
"""Dtypes of the words that are compared and swapped, by their bits."""
ALWAYS = n.Const(True, DTYPES["bool"])


@dataclass(frozen=True)
class _Tries:
    """A loop of tries as the atomic that it is: its place, the function and the value, how it is spelled, and its view."""

    at: n.Region
    fn: str
    value: n.Expr
    item: SwapLoop
    view: n.View


def _tries(program: n.Program, path: Path) -> _Tries | None:
    """Those that begin at a path: with the name of their value, where it has one for them alone, or with the declaration."""
    block, i = block_and_index(program, path)
    if (value := _named(block, i)) is not None:
        found = _from_guess(program, sibling(path, 1))
        return None if found is None else replace(found, value=value, item=replace(found.item, named=True))
    return None if i and _named(block, i - 1) is not None else _from_guess(program, path)


def _named(block: n.Block, i: int) -> n.Expr | None:
    """The value that a statement names for nothing but the loop two statements on."""
    let, loop = block[i], block[i + 2] if i + 2 < len(block) else None
    if not (isinstance(let, n.Let) and len(let.names) == 1 and isinstance(loop, n.While)):
        return None
    uses = [sum(isinstance(x, n.Var) and x.name == let.names[0] for x in walk(s)) for s in block[i + 1:]]
    return let.value if sum(uses) == uses[1] == 1 else None


def _from_guess(program: n.Program, path: Path) -> _Tries | None:
    block, i = block_and_index(program, path)
    first, loop = block[i], block[i + 1] if i + 1 < len(block) else None
    if not (isinstance(first, n.Alloc) and isinstance(loop, n.While) and loop.cond == ALWAYS and len(loop.body) == 4):
        return None
    let, swap, put, leave = loop.body
    held, guess = first.buffer, first.init
    if held.shape or not (isinstance(guess, n.Cast) and guess.rounding == "bits" and isinstance(guess.x, n.Load)):
        return None
    if not (isinstance(let, n.Let) and let.value == whole(held) and isinstance(swap, n.Let)):
        return None
    if not (isinstance(swap.value, n.Call) and swap.value.fn == "atomic_cas"):
        return None
    assumed, found = n.Var(let.names[0], held.dtype), n.Var(swap.names[0], held.dtype)
    stays = n.If(build.compare("eq", assumed, whole(held)), (n.Jump("break"),))
    if put != n.Store(build.region(held), found) or leave != stays or any(held.name in names_mentioned(s) for s in block[i + 2:]):
        return None
    words, at = swap.value.args[0], guess.x.at
    view = next((s for s in kernel_of(program, path).body if isinstance(s, n.View) and isinstance(words, n.Region) and s.buffer == words.buffer), None)
    if view is None or not isinstance(words, n.Region) or words.index != at.index or view.at != build.region(at.buffer) or swap.value.attrs or (
            view.buffer != _words(at.buffer, view.buffer.name, held.dtype)):
        return None
    made = _computed(swap.value.args[2], assumed, at.buffer.dtype)
    if swap.value.args[1] != assumed or made is None or guess.x != n.Load(at, cache=guess.x.cache):
        return None
    fn, value, after, through = made
    alone = sum(isinstance(x, n.Region) and x.buffer == view.buffer for s in kernel_of(program, path).body for x in walk(s)) == 1
    front = kernel_of(program, path).body.index(view) + 1 if alone else 0
    return _Tries(at, fn, value, SwapLoop(held.dtype.name, after, through, guess.x.cache != "volatile", front), view)


def _computed(new: object, assumed: n.Var, dtype: DType) -> tuple[str, n.Expr, bool, str] | None:
    """The function and the value of a try, whether the value comes after the old one, and the dtype through which the bits pass on their way to a word."""
    through = ""
    if isinstance(new, n.Cast) and new.dtype == assumed.of and isinstance(new.x, n.Cast) and new.rounding != "bits":
        through, new = new.x.dtype.name, new.x
    old = n.Cast(assumed, dtype, "bits")
    if not (isinstance(new, n.Cast) and new.rounding == "bits" and isinstance(new.x, n.Binary) and new.x.type == dtype):
        return None
    fn = next((fn for fn, op in OPERATIONS.items() if op == new.x.op), None)
    after = new.x.a == old
    value = new.x.b if after else new.x.a
    if fn is None or (new.x.b != old and not after) or assumed.name in names_mentioned(value):
        return None
    return fn, value, after, through


def _words(b: n.Buffer, name: str, dtype: DType) -> n.Buffer:
    """A tensor of one axis as words."""
    return n.Buffer(name, dtype, tuple(build.cast(d, I64) for d in b.shape), "global")


@dataclass(frozen=True)
class SwapLoop(Pass):
    """`word` is the dtype that is compared and swapped; `after`: the value stands behind the old one; `through`: the dtype by which bits become a word;
    `plain`: the first guess is an ordinary load; `front`: which of a kernel's statements the view of the tensor is, from 1 on; 0 for one that is there.
    `named`: the value has a name."""

    intent: ClassVar[str] = "atomics"
    catalogue: ClassVar[tuple[int, ...]] = (49,)
    claim: ClassVar[str] = "Any function of an old value is put in place as one operation, whatever instructions there are."
    provides: ClassVar[tuple[str, ...]] = ("atomics",)

    word: str = "i32"
    after: bool = False
    through: str = ""
    plain: bool = False
    front: int = 1
    named: bool = False

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At an atomic on a tensor of floats, whose old value nobody asks for."""
        call = node.call if isinstance(node, n.Eval) else None
        if call is None or call.fn not in OPERATIONS or call.attrs or len(call.args) != 2:
            return None
        at = call.args[0]
        if not isinstance(at, n.Region) or at.buffer.space != "global" or len(at.buffer.shape) != 1 or not at.buffer.dtype.is_float or (
                self.word not in WORDS.get(at.buffer.dtype.bits, ())):
            return Miss("no word of that dtype is as wide as an element")
        if not self.front and self._view(program, path, at.buffer) is None:
            return Miss("no view of the tensor has such words")
        return Site(path, self)

    def _view(self, program: n.Program, path: Path, b: n.Buffer) -> n.View | None:
        return next((s for s in kernel_of(program, path).body if isinstance(s, n.View) and s.at == build.region(b) and s.buffer == _words(
            b, s.buffer.name, DTYPES[self.word])), None)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """Tries until one succeeds."""
        item, block = params_as(site, SwapLoop), block_at(program, site.path)
        s = matched_as(block[int(site.path[-1])], n.Eval)
        at, value = matched_as(s.call.args[0], n.Region), s.call.args[1]
        taken, word = names_at(program, site.path), DTYPES[item.word]
        view = self._view(program, site.path, at.buffer) if not item.front else None
        words = view.buffer if view is not None else _words(at.buffer, fresh(f"{at.buffer.name}__{word}", taken), word)
        held = n.Buffer(fresh("old", taken), word, (), "register")
        assumed, found = n.Var(fresh("assumed", taken), word), n.Var(fresh("found", taken), word)
        assert isinstance(value, n.Expr)
        own = n.Var(fresh("value", taken), dtype_of(value.type)) if item.named else None
        named = () if own is None else (n.Let((own.name,), value, label=s.label, origin=s.origin),)
        value = value if own is None else own
        old: n.Expr = n.Cast(assumed, at.buffer.dtype, "bits")
        made: n.Expr = n.Binary(OPERATIONS[s.call.fn], *((old, value) if item.after else (value, old)))
        made = n.Cast(made, DTYPES[item.through] if item.through else word, "bits")
        made = n.Cast(made, word) if item.through else made
        loop = n.While(ALWAYS, (
            n.Let((assumed.name,), whole(held)), n.Let((found.name,), build.call("atomic_cas", replace(at, buffer=words), assumed, made)),
            n.Store(build.region(held), found), n.If(build.compare("eq", assumed, whole(held)), (n.Jump("break"),))))
        guess = n.Cast(n.Load(at, cache="" if item.plain else "volatile"), word, "bits")
        begins = n.Alloc(held, guess) if named else n.Alloc(held, guess, label=s.label, origin=s.origin)
        out = splice(program, site.path, (*named, begins, loop))
        if view is not None:
            return Rewritten(out, site.path)
        home = (site.path[0], item.front - 1)
        return Rewritten(splice(out, home, (n.View(words, build.region(at.buffer)),), 0, 0), (site.path[0], int(site.path[1]) + 1, *site.path[2:]))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At the first guess of a loop of tries, or the name of its value."""
        found = _tries(program, path) if isinstance(node, n.Alloc | n.Let) else None
        return None if found is None else Site(path, found.item)

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """One atomic."""
        found = matched(_tries(program, site.path))
        first = block_at(program, site.path)[int(site.path[-1])]
        call = build.call(found.fn, found.at, found.value)
        out = splice(program, site.path, (n.Eval(call, label=first.label, origin=first.origin),), 0, 2 + found.item.named)
        if not found.item.front:
            return Rewritten(out, site.path)
        home = (site.path[0], found.item.front - 1)
        return Rewritten(splice(out, home, ()), (site.path[0], int(site.path[1]) - 1, *site.path[2:]))
