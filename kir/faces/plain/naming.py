"""Names in plain words: what the source calls a value, without the marks that rewriting has left; counters by what they count."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from kir.ir import nodes as n
from kir.ir.canonical import bound_names, outer_names, rename
from kir.ir.types import DType
from kir.ir.visit import statements

MARKS = re.compile(r"(_\d+|_(tile|el|item|trip))+$")
NUMBER = re.compile(r"_\d+$")
MADE = re.compile(r"|[_\d]+|el|trip|tile|turn|at|t|u|v|j|x_?tile|pid(_\d)?|block_[xyz]|grid_\d|cta|t_item|tid|thread")
"""Names of counters that KIR made, or that say nothing."""
LETTERS = "ijklmnopqrsuvwxyz"


def named(p: n.Program) -> n.Program:
    """The program with its kernels' local names anew."""
    outer = outer_names(p) | {f.name for f in p.functions} | {k.name for k in p.kernels}
    return replace(p, kernels=tuple(_named(p, k, outer) for k in p.kernels))


def _named(p: n.Program, k: n.Kernel, outer: set[str]) -> n.Kernel:
    counters = {**{a.name: a.extent for a in k.grid}, **{s.var.name: s.hi for s in _loops(k.body)}}
    axes = {a.name for a in k.grid}
    taken, chosen = set(outer), dict[str, str]()
    sizes = {q.name for q in p.params if q.role == "size"}
    order = list(dict.fromkeys((*(a.name for a in k.grid), *bound_names(k.body))))
    plain = {name: (MARKS.sub("", name) if name in counters else NUMBER.sub("", name)).lstrip("_") for name in order}
    several = Counter(plain[name] for name in order if name not in counters)
    plain |= {name: name for name in order if name not in counters and several[plain[name]] > 1}
    for name in order:
        if name not in counters:
            continue
        base = plain[name]
        if MADE.fullmatch(base) and not (name in axes and base):
            base = _counts(counters[name], sizes)
        elif MADE.fullmatch(base):
            base = _counts(counters[name], sizes) or (base if re.fullmatch(r"(pid|block)_.*", base) else "")
        others = {plain[x] for x in order if x not in counters}
        chosen[name] = _free(base, taken | others) if base and base not in taken | others else _letter(base, taken | others)
        taken.add(chosen[name])
    for name in order:
        if name not in counters:
            chosen[name] = _free(plain[name] or name, taken)
            taken.add(chosen[name])
    return rename(k, chosen)


def _counts(extent: n.Expr, sizes: set[str]) -> str:
    """What a counter below a size counts: rows below `rows` and `n_rows`, `t` below `T`; "" where that is no size."""
    if not isinstance(extent, n.Var) or extent.name not in sizes or not isinstance(extent.of, DType):
        return ""
    word = re.sub(r"^((num|n)_|n(?=[^aeiou_].*s$))", "", extent.name)
    if len(word) == 1:
        return word.lower() if word.isupper() else ""
    single = re.sub(r"ies$", "y", word) if word.endswith("ies") else re.sub(r"(?<!s)s$", "", word)
    return single.lower() if single != extent.name else ""


def _letter(base: str, taken: set[str]) -> str:
    """A letter that nothing is called, after the one that was meant where one was."""
    if len(base) > 1:
        return _free(base, taken)
    begin = LETTERS.find(base) if base and base in LETTERS else 0
    return next((x for x in LETTERS[begin:] + LETTERS[:begin] if x not in taken), _free("i", taken))


def _free(base: str, taken: set[str]) -> str:
    return base if base not in taken else next(x for k in range(2, 1 << 16) if (x := f"{base}_{k}") not in taken)


def _loops(body: n.Block) -> Iterator[n.For]:
    return (s for s in statements(body) if isinstance(s, n.For))
