"""Which statement of one program became which of another: equal subtrees first, then names, then likeness.

Blocks are aligned from the top down, so that a statement is looked for where it was before it is looked for elsewhere; what is left is
matched across the whole program (it moved). Every statement has at most one partner.
"""
from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from difflib import SequenceMatcher

from kir.ir import nodes as n
from kir.ir.paths import Path, block_paths, child_blocks, paths, roots
from kir.ir.visit import statements

Indexed = list[tuple[Path, n.Stmt]]
ALIKE = 0.5
"""Two statements of one kind with blocks are one when they share this part of what is in them."""


def match(before: n.Program, after: n.Program, hints: Mapping[Path, Iterable[Path]] | None = None) -> dict[Path, Path]:
    """Partners, by path. `hints` give some of them in advance (the first path of several; none at all excludes a statement)."""
    return _Matcher(before, after, hints or {}).run()


class _Matcher:
    def __init__(self, before: n.Program, after: n.Program, hints: Mapping[Path, Iterable[Path]]) -> None:
        from kir.ir.anchors import own_name
        self.own_name = own_name
        self.before, self.after = before, after
        self.pairs: dict[Path, Path] = {}
        self.back: dict[Path, Path] = {}
        self.excluded: set[Path] = set()
        for old, new in hints.items():
            first = next(iter(new), None)
            if first is None:
                self.excluded.add(old)
            elif first not in self.back:
                self.pairs[old], self.back[first] = first, old

    def run(self) -> dict[Path, Path]:
        old, new = dict(roots(self.before)), dict(roots(self.after))
        names = [(x, x) for x in old if x in new]
        names += list(zip([x for x in old if x not in new], [x for x in new if x not in old], strict=False))
        by_path = dict(paths(self.after))
        for a, s in paths(self.before):
            if a in self.pairs and self.pairs[a] in by_path:
                self.inside(a, s, self.pairs[a], by_path[self.pairs[a]])
        for a_name, b_name in names:
            self.blocks((a_name,), old[a_name], (b_name,), new[b_name])
        self.elsewhere()
        return self.pairs

    def free(self, a: Path, b: Path) -> bool:
        return a not in self.pairs and b not in self.back and a not in self.excluded

    def pair(self, a: Path, s: n.Stmt, b: Path, t: n.Stmt) -> None:
        if self.free(a, b):
            self.pairs[a], self.back[b] = b, a
            self.inside(a, s, b, t)

    def inside(self, a: Path, s: n.Stmt, b: Path, t: n.Stmt) -> None:
        """Pairs what is in two statements that are partners."""
        if s == t:
            for (p, _), (q, _) in zip(self.below(a, s), self.below(b, t), strict=True):
                if self.free(p, q):
                    self.pairs[p], self.back[q] = q, p
            return
        there = child_blocks(t)
        for i, (steps, block) in enumerate(child_blocks(s)):
            if i < len(there):
                self.blocks(a + steps, block, b + there[i][0], there[i][1])

    def below(self, at: Path, s: n.Stmt) -> Indexed:
        return [pair for steps, block in child_blocks(s) for pair in block_paths(block, at + steps)]

    def blocks(self, a: Path, old: n.Block, b: Path, new: n.Block) -> None:
        """Aligns two blocks: equal statements in order, then equal names, then the same kind and alike."""
        left = [((*a, i), s) for i, s in enumerate(old) if (*a, i) not in self.pairs and (*a, i) not in self.excluded]
        right = [((*b, i), s) for i, s in enumerate(new) if (*b, i) not in self.back]
        ids: dict[n.Stmt, int] = {}
        x = [ids.setdefault(s, len(ids)) for _, s in left]
        y = [ids.setdefault(s, len(ids)) for _, s in right]
        for m in SequenceMatcher(None, x, y, autojunk=False).get_matching_blocks():
            for k in range(m.size):
                self.pair(*left[m.a + k], *right[m.b + k])
        self.by_key(left, right, lambda s: (type(s), s.label) if s.label else None)
        self.by_key(left, right, lambda s: (type(s), self.own_name(s)))
        self.alike(left, right)

    def by_key(self, left: Indexed, right: Indexed, key: Callable[[n.Stmt], object], unique: bool = False) -> None:
        """Pairs statements with equal keys in reading order; only those that are unique on both sides if `unique`."""
        there: dict[object, Indexed] = defaultdict(list)
        here: dict[object, Indexed] = defaultdict(list)
        for group, items, taken in ((here, left, self.pairs), (there, right, self.back)):
            for path, s in items:
                if path not in taken and path not in self.excluded and (k := key(s)) is not None:
                    group[k].append((path, s))
        for k, items in here.items():
            partners = there.get(k, [])
            if partners and (not unique or len(items) == len(partners) == 1):
                for (p, s), (q, t) in zip(items, partners, strict=False):
                    self.pair(p, s, q, t)

    def alike(self, left: Indexed, right: Indexed) -> None:
        """Pairs what is left of the same kind, best likeness first: blocks by what is in them, simple statements by order."""
        rest = [(p, s) for p, s in left if p not in self.pairs and p not in self.excluded]
        scores = [(_likeness(s, t), -i, -j) for i, (_, s) in enumerate(rest) for j, (q, t) in enumerate(right)
                  if q not in self.back and type(s) is type(t) and child_blocks(s)]
        for score, i, j in sorted(scores, reverse=True):
            if score >= ALIKE:
                self.pair(*rest[-i], *right[-j])
        for kind in {type(s) for _, s in rest if not child_blocks(s)}:
            mine = [(p, s) for p, s in rest if type(s) is kind and p not in self.pairs]
            others = [(q, t) for q, t in right if type(t) is kind and q not in self.back]
            if len(mine) == len(others) == 1 and kind in (n.Store, n.Copy, n.Mma, n.Eval):
                self.pair(*mine[0], *others[0])

    def elsewhere(self) -> None:
        """Pairs what moved out of its block."""
        left = [(p, s) for p, s in paths(self.before) if p not in self.pairs and p not in self.excluded]
        right = [(q, t) for q, t in paths(self.after) if q not in self.back]
        self.by_key(left, right, lambda s: s)
        self.by_key(left, right, lambda s: (type(s), s.label) if s.label else None)
        self.by_key(left, right, lambda s: (type(s), self.own_name(s)), unique=True)


def _content(s: n.Stmt) -> Counter[object]:
    inside = [x for _, block in child_blocks(s) for x in statements(block)]
    return Counter(x if not child_blocks(x) else type(x) for x in inside)


def _likeness(s: n.Stmt, t: n.Stmt) -> float:
    """Part of the statements inside that both have, 0 to 1."""
    a, b = _content(s), _content(t)
    total = sum(a.values()) + sum(b.values())
    return 2 * sum((a & b).values()) / total if total else 1.0
