"""What branches find is written where it goes: private scalars that every way through a branch sets once, and that are then copied elsewhere and read no more,
are not needed. Part of what `raised` does to a program that was read."""
from __future__ import annotations

from collections.abc import Mapping

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.visit import updated, walk


def where_they_go(k: n.Kernel) -> n.Kernel:
    """The kernel in which branches write their results to where they are copied."""
    taken = set(bound_names(k.body)) | {a.name for a in k.grid}
    return updated(k, body=_Settled(taken).block(k.body))


class _Settled:
    def __init__(self, taken: set[str]) -> None:
        self.taken = taken

    def block(self, block: n.Block) -> n.Block:
        out, i = list[n.Stmt](), 0
        block = tuple(self.inside(s) for s in block)
        while i < len(block):
            made = self.run(block, i)
            if made is None:
                out.append(block[i])
                i += 1
            else:
                out += made[0]
                i += made[1]
        return tuple(out)

    def inside(self, s: n.Stmt) -> n.Stmt:
        match s:
            case n.For() | n.While():
                return updated(s, body=self.block(s.body))
            case n.If():
                return updated(s, then=self.block(s.then), orelse=self.block(s.orelse))
            case _:
                return s

    def run(self, block: n.Block, i: int) -> tuple[n.Block, int] | None:
        """What declarations, a branch and copies that begin at a statement come to, and how many statements they were."""
        j = i
        held: dict[str, n.Alloc] = {}
        while j < len(block) and isinstance(s := block[j], n.Alloc) and s.buffer.space == "register" and not s.buffer.shape:
            held[s.buffer.name] = s
            j += 1
        branch = block[j] if held and j < len(block) else None
        if not isinstance(branch, n.If) or branch.static:
            return None
        to: dict[str, n.Region] = {}
        e = j + 1
        while e < len(block) and isinstance(s := block[e], n.Store) and isinstance(s.value, n.Load) and s.value.at.buffer.name in held and (
                s.value == n.Load(n.Region(s.value.at.buffer)) and s.mask is None and not s.clip and s.at.buffer.space in ("register", "shared")):
            name = s.value.at.buffer.name
            if name in to or s.at in to.values() or any(isinstance(x, (n.Load, n.Call)) for i_ in s.at.index for x in walk(i_)):
                return None
            to[name] = s.at
            e += 1
        if to.keys() != held.keys():
            return None
        for name, s in held.items():
            if s.init is not None and s.init != n.Load(to[name]):
                return None
        if any(isinstance(x, n.Region) and x.buffer.name in held for s in block[e:] for x in walk(s)):
            return None
        kept = {name for name, s in held.items() if s.init is not None}
        made = self.written(branch, to, kept)
        return None if made is None else (made, e - i)

    def written(self, s: n.If, to: Mapping[str, n.Region], kept: set[str]) -> n.Block | None:
        if any(isinstance(x, n.Region) and x.buffer.name in to for x in walk(s.cond)):
            return None
        then, orelse = self.way(s.then, to, kept), self.way(s.orelse, to, kept)
        if then is None or orelse is None:
            return None
        if not then:
            return () if not orelse else (n.If(build.invert(s.cond), orelse, (), label=s.label, origin=s.origin),)
        return (n.If(s.cond, then, orelse, label=s.label, origin=s.origin),)

    def way(self, block: n.Block, to: Mapping[str, n.Region], kept: set[str]) -> n.Block | None:
        """One way through the branch, with its results where they go."""
        if block and isinstance(block[-1], n.If) and any(isinstance(x, n.Region) and x.buffer.name in to for x in walk(block[-1])):
            front, last = block[:-1], self.written(block[-1], to, kept)
            clean = not any(isinstance(x, n.Region) and x.buffer.name in to for s in front for x in walk(s))
            return (*front, *last) if last is not None and clean else None
        first = next((k for k, s in enumerate(block) if isinstance(s, n.Store) and s.at.buffer.name in to), len(block))
        front, sets = block[:first], block[first:]
        names = [s.at.buffer.name for s in sets if isinstance(s, n.Store)]
        if len(names) != len(sets) or len(set(names)) != len(names) or not to.keys() - kept <= set(names) <= to.keys():
            return None
        if any(isinstance(x, n.Region) and x.buffer.name in to for s in front for x in walk(s)):
            return None
        stores = [s for s in sets if isinstance(s, n.Store)]
        if any(s.mask is not None or s.clip or any(isinstance(x, n.Region) and x.buffer.name in to for x in walk(s.value)) for s in stores):
            return None
        targets = {r.buffer for r in to.values()}
        if any(isinstance(s, n.Store) and s.at.buffer in targets for s in front):
            return None
        moved = [s for s in stores if s.value != n.Load(to[s.at.buffer.name])]
        before = list[n.Buffer]()
        hazard = False
        for s in moved:
            hazard = hazard or any(isinstance(x, n.Region) and x.buffer in before for x in walk(s.value))
            before.append(to[s.at.buffer.name].buffer)
        lets = list[n.Stmt]()
        out = list[n.Stmt]()
        for s in moved:
            value = s.value
            if hazard and not isinstance(value, (n.Const, n.Var)):
                name = self.fresh(f"{s.at.buffer.name}_kept")
                lets.append(n.Let((name,), value, origin=s.origin))
                value = n.Var(name, value.type)
            out.append(n.Store(to[s.at.buffer.name], value, label=s.label, origin=s.origin))
        return (*front, *lets, *out)

    def fresh(self, name: str) -> str:
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name
