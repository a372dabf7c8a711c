"""The PTX that a compiler made of each kernel of an emitted program, as a text to be read."""
from __future__ import annotations

import re

from kir.surface import Argument, Artifact, Emitted, Entry, Passed, Translated


def assembled(emitted: Emitted, made: Artifact) -> tuple[Translated, ...]:
    """The PTX of each kernel: its function there, threads, dynamic shared memory. Parameters, which PTX numbers, are called as the program calls them,
    where PTX has such names. Kernels that take descriptors with what they describe are not among them."""
    out = []
    entries = {e.kernel: e for e in reversed(emitted.entries)}
    for k in made.kernels:
        text = k.texts.get("ptx", "")
        if not text or k.image is None or any(a.shown is not None for a in entries[k.kernel].arguments):
            continue
        names = _parameters(entries[k.kernel], k.image.arguments)
        out.append(named(k.kernel, k.image.function, text, k.threads, k.image.dynamic_shared, names))
    return tuple(out)


def named(kernel: str, function: str, text: str, threads: int, dynamic_shared: int, names: tuple[str, ...]) -> Translated:
    """A kernel of a text whose numbered parameters stand for `names`, in order."""
    spelled = {k: name for k, name in enumerate(names) if re.fullmatch(r"[A-Za-z]\w*", name) and names.count(name) == 1}
    renamed = tuple((spelled.get(k, f"param_{k}"), name) for k, name in enumerate(names))

    def called(found: re.Match[str]) -> str:
        k = int(found[1])
        return f"{function}_{spelled[k]}" if k in spelled else found[0]

    return Translated(kernel, function, re.sub(rf"\b{re.escape(function)}_param_(\d+)\b", called, text), threads, dynamic_shared, ".ptx", renamed)


def _parameters(e: Entry, passed: tuple[Passed, ...] | None) -> tuple[str, ...]:
    """The program's name for each parameter."""
    listed: tuple[Argument | Passed, ...] = passed if passed is not None else e.arguments
    return tuple(a.of if isinstance(a, Passed) else a.source for a in listed)


__all__ = ["assembled", "named"]
