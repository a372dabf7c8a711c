"""What a trace does, added up: instructions by pipe, requests and bytes of global memory, conflicts in shared memory, barriers, waits, rounds of loops."""
from __future__ import annotations

from collections.abc import Sequence

from kir.gate.counts.schedule import SECTOR
from kir.gate.counts.trace import Barrier, Item, Loop, Op, Team, Wait


def tallies(items: Sequence[Item], warps: float) -> dict[str, float]:
    """Of one CTA whose team has so many warps. Instructions count warps; `sectors` are of 32 bytes; `asked` is what lanes ask for, `new` what is new to the
    CTA, `far` what comes from beyond L1 (bytes); `passes` are cycles of shared memory's banks; `in turn` instructions of loads that wait for one another;
    `code` is instructions of the program text, loops unrolled as far as they are."""
    out: dict[str, float] = {}
    _add(items, warps, 1.0, 1.0, 0, out)
    return out


def _add(items: Sequence[Item], warps: float, times: float, copies: float, depth: int, out: dict[str, float]) -> None:
    def put(name: str, value: float) -> None:
        out[name] = out.get(name, 0.0) + value
    for item in items:
        match item:
            case Op():
                of = times * warps * item.share
                if item.pipe != "none":
                    put(item.pipe, item.count * of)
                    put("code", item.count * copies)
                if item.pipe == "shared":
                    put("passes", item.count * item.units * of)
                if item.apart:
                    put(f"{item.apart} apart", max(1.0, item.count) * of)
                if item.most:
                    put("in turn", item.count / item.most * of)
                if (a := item.access) is not None:
                    put(f"{a.verb} requests", item.count * of)
                    put(f"{a.verb} asked", a.sectors * SECTOR * times)
                    put(f"{a.verb} new", a.fresh * SECTOR * times)
                    put(f"{a.verb} far", a.moved)
                    put(f"{a.verb} sites", 1.0)
                    if depth:
                        put(f"{a.verb} inner", 1.0)
                    out["footprint"] = out.get("footprint", 0.0) + a.footprint
                    out["contended"] = max(out.get("contended", 0.0), a.contended)
            case Wait():
                put(f"{item.kind} waits", times)
            case Barrier():
                put("barriers", times)
                put("barrier warps", times * (item.warps or warps))
            case Loop():
                put("rounds", times * item.trips / max(1.0, item.together))
                put("loops", 1.0)
                out["unrolled"] = max(out.get("unrolled", 0.0), item.together)
                out["deepest"] = max(out.get("deepest", 0.0), float(depth + 1))
                _add(item.body, warps, times * item.trips, copies * max(1.0, item.together), depth + 1, out)
            case Team():
                _add(item.body, item.warps, times, copies, depth, out)
                put("teams", float(len(item.beside)))
                for each in item.beside:
                    _add([each], each.warps, times, copies, depth, out)
