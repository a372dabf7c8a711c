"""The PTX that a compiler made of each kernel of an emitted program, as a text to be read."""
from __future__ import annotations

from kir.surface import Argument, Artifact, Emitted, Entry, Passed, Translated


def assembled(emitted: Emitted, made: Artifact) -> tuple[Translated, ...]:
    """The PTX of each kernel: its function there, threads, dynamic shared memory, and what its parameters, which PTX numbers, stand for."""
    out = []
    entries = {e.kernel: e for e in reversed(emitted.entries)}
    for k in made.kernels:
        text = k.texts.get("ptx", "")
        if not text or k.image is None:
            continue
        e = entries[k.kernel]
        out.append(Translated(k.kernel, k.image.function, text, k.threads, k.image.dynamic_shared, ".ptx", _parameters(e, k.image.arguments)))
    return tuple(out)


def _parameters(e: Entry, passed: tuple[Passed, ...] | None) -> tuple[tuple[str, str], ...]:
    """The program's name for each numbered parameter."""
    listed: tuple[Argument | Passed, ...] = passed if passed is not None else e.arguments
    return tuple((f"param_{k}", a.of if isinstance(a, Passed) else a.source) for k, a in enumerate(listed))


__all__ = ["assembled"]
