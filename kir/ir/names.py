"""The one place where names of a program are made, so that a name of the source and a name of KIR's never meet.

A program has three kinds of names, and they are given in this order:

1. names that callers know: parameters and compile-time parameters keep what the source calls them (`reserve`);
2. KIR's own words, such as the thread's number `t`, `grid_0` or `threads_x`: as they are, or with a number where a caller's name is the
   same (`own`). They depend on the callers' names alone, so that a binding, a reader and a writer agree on them;
3. everything local, of the source or of KIR: as it is, or with a number where the name is taken (`fresh`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import field
from itertools import count

from kir.base.dataclass import dataclass


@dataclass
class Names:
    """The names of one program. `taken` are all that were given, `words` what KIR's own words are called in it."""

    taken: set[str] = field(default_factory=set)
    words: dict[str, str] = field(default_factory=dict)
    _numbers: tuple[set[str], dict[str, int]] | None = None
    """Of the set in `taken`, which only grows: the number below which a name with each number is taken."""

    def reserve(self, names: Iterable[str]) -> None:
        """Names that callers know. Must come before any word of KIR's own."""
        self.taken |= set(names)

    def own(self, word: str) -> str:
        """What a word of KIR's own is called in this program: always the same. `x.extent` is the extent of `x`, which is spelled `x_extent`
        and differs from a word `x_extent`."""
        if word not in self.words:
            self.words[word] = self.fresh(word)
        return self.words[word]

    def fresh(self, name: str) -> str:
        """A name that nothing in the program has: `name` itself, spelled as an identifier, when it is free."""
        base = chosen = re.sub(r"\W", "_", name).lstrip("%") or "x"
        if base in self.taken:
            if self._numbers is None or self._numbers[0] is not self.taken:
                self._numbers = self.taken, {}
            number = next(k for k in count(self._numbers[1].get(base, 1)) if f"{base}_{k}" not in self.taken)
            chosen, self._numbers[1][base] = f"{base}_{number}", number
        self.taken.add(chosen)
        return chosen


def own_words(callers: Iterable[str], words: Iterable[str]) -> dict[str, str]:
    """What KIR's own words are called beside names that callers know."""
    names = Names()
    names.reserve(callers)
    return {word: names.own(word) for word in words}


def unlike(base: str, taken: set[str]) -> str:
    """`base`, or with the first number that makes it a name which is not taken."""
    return base if base not in taken else next(x for k in count(1) if (x := f"{base}_{k}") not in taken)
