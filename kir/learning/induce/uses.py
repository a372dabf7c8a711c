"""Uses: the transitions of the evidence, each with its kernel, the place it acts at, its parameters and the facts there; sorted into kinds.

One expert counts once, however often its kernel was launched, and however it was read.
"""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, fields
from functools import cached_property
from itertools import zip_longest
from typing import Any, Literal, get_args, get_origin

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.ir.nodes import Program
from kir.learning.cards.facts import Facts, facts_at, kind
from kir.learning.evidence.walked import Transition, Walked
from kir.rewrite import Pass, Step, pass_class
from kir.rewrite.base import found_sites, parameter_types
from kir.rewrite.edit import Path, Place, node_at

SHORT = 16
"""Digits of a content hash that a card keeps of a use."""
PROBED = 8
"""Kernels in which it is found out whether a place decides a parameter."""
MOSTLY = 0.8
"""The share of them in which it must."""
MOST_WORDS = 8
"""Words of a text parameter that may tell skills apart."""


@dataclass(frozen=True)
class Use:
    """A transition of a kernel. `item` is the pass with every parameter as used, `path` the place in the program before it."""

    walked: Walked = field(repr=False)
    transition: Transition = field(repr=False)
    item: Pass
    path: Path

    @cached_property
    def before(self) -> Program:
        return self.walked.program(self.transition.before_text)

    @cached_property
    def after(self) -> Program:
        return self.walked.program(self.transition.after_text)

    @cached_property
    def node(self) -> Place:
        return node_at(self.before, self.path)

    @cached_property
    def facts(self) -> Facts:
        return facts_at(self.before, self.path)

    @cached_property
    def kind(self) -> str:
        return kind(self.node)

    @property
    def kernel(self) -> str:
        return self.walked.kernel

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Every parameter, those at their default too."""
        return {f.name: getattr(self.item, f.name) for f in fields(self.item)}


def distinct(found: Iterable[Walked]) -> tuple[Walked, ...]:
    """Walks of different experts, those that came furthest first among the same; in order of kernel."""
    best: dict[str, Walked] = {}
    for each in found:
        if each.transitions:
            expert = each.transitions[-1].after
            kept = best.get(expert)
            if kept is None or (each.ended == "naive", len(each.transitions), kept.key) > (kept.ended == "naive", len(kept.transitions), each.key):
                best[expert] = each
    return tuple(sorted(best.values(), key=lambda each: each.key))


def uses(found: Iterable[Walked]) -> tuple[Use, ...]:
    """The uses of walks. A step of a pass that is not registered here, or has other parameters today, is left out."""
    out = []
    for each in found:
        for transition in each.transitions:
            with suppress(KirError, KeyError):
                step = Step.from_json(transition.step)
                item = pass_class(step.name).with_options(step.options)
                if step.path is not None:
                    made = Use(each, transition, item, step.path)
                    made.kind  # noqa: B018  # a place that is not in the program is found out here
                    out.append(made)
    return tuple(out)


def by_kind(found: Sequence[Use]) -> dict[tuple[str, tuple[tuple[str, str], ...], str], tuple[Use, ...]]:
    """Uses of one pass, of one choice of its named forms, at one kind of place: what is unified."""
    of_pass: dict[str, list[Use]] = defaultdict(list)
    for use in found:
        of_pass[use.item.name].append(use)
    out: dict[tuple[str, tuple[tuple[str, str], ...], str], list[Use]] = defaultdict(list)
    for name, group in sorted(of_pass.items()):
        named = forms(group)
        for use in group:
            out[name, tuple((each, str(use.parameters[each])) for each in named), use.kind].append(use)
    return {key: tuple(group) for key, group in sorted(out.items())}


def forms(group: Sequence[Use]) -> tuple[str, ...]:
    """The parameters of a pass that say which of its forms is meant: those declared as one of several words, and texts of few words that the
    place does not decide."""
    types = parameter_types(type(group[0].item))
    out = []
    for name, declared in types.items():
        values = {use.parameters[name] for use in group}
        literal = get_origin(declared) is Literal and all(isinstance(each, str) for each in get_args(declared))
        words = declared is str and 1 < len(values) <= MOST_WORDS and all(_is_word(v) for v in values)
        if literal or (words and not decided(group, name)):
            out.append(name)
    return tuple(out)


def _is_word(value: object) -> bool:
    return isinstance(value, str) and (value == "" or value.replace("_", "").replace("-", "").isalnum())


def decided(group: Sequence[Use], name: str) -> bool:
    """Whether a place decides a parameter: with all others given and this one left open, the pattern offers the value that was used. Found out in a few
    kernels, in turns over the values that were used, so that one that most kernels have does not stand for all."""
    asked = found = 0
    seen: set[str] = set()
    for use in _in_turns(group, name):
        if use.kernel in seen:
            continue
        seen.add(use.kernel)
        if len(seen) > PROBED:
            break
        asked += 1
        options = {k: v for k, v in use.item.options().items() if k != name}
        with suppress(KirError):
            open_ = type(use.item).with_options(options)
            found += any(site.params == use.item for site in found_sites(open_.match(use.before, use.path, use.node)))
    return asked > 0 and found >= MOSTLY * asked


def _in_turns(group: Sequence[Use], name: str) -> Iterator[Use]:
    """Uses, one of each value of a parameter after the other."""
    by_value: dict[object, list[Use]] = defaultdict(list)
    for use in group:
        by_value[use.parameters[name]].append(use)
    for turn in zip_longest(*by_value.values()):
        yield from (use for use in turn if use is not None)
