"""What commands ask of their options together: none is passed over in silence."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path

from kir.base.diagnostic import did_you_mean, usage


def can_be_written(path: Path | None) -> Path | None:
    """The place of an output, once it is sure that it can be written: before any work is done. Raises :class:`UsageError` KIR-C006."""
    if path is None:
        return None
    if str(path) == "-":
        raise usage("KIR-C006", "'-' is no file, and nothing is written to standard output by that name", needs="the path of a file",
                    attempt="leave -o out: what has no default place is printed then")
    there = path
    while not there.exists() and there != there.parent:
        there = there.parent
    folder = there if there.is_dir() else there.parent
    probe = folder / f".kir-{secrets.token_hex(4)}.partial"
    try:
        if not there.is_dir() and there != path:
            raise NotADirectoryError(20, "is no folder", str(there))
        probe.touch(exist_ok=False)
        probe.unlink()
    except OSError as bad:
        reason = (bad.strerror or type(bad).__name__).lower()
        raise usage("KIR-C006", f"{path} cannot be written: {there if there != path else folder} {'' if 'folder' in reason else 'refuses it: '}{reason}",
                    needs="a place that can be written") from bad
    return path


def written_on(surface: str) -> str:
    """The surface that code is to be written on, once it is sure that there is a backend for it. Raises :class:`UsageError` KIR-X002."""
    if surface not in ("", "kir"):
        from kir.base.registry import registry

        known = registry("kir.backends")
        if surface not in known:
            hint = did_you_mean(surface, [each.name for each in known])
            raise usage("KIR-X002", f"there is no backend '{surface}'{f'; {hint}' if hint else ''}", needs=f"one of {', '.join(each.name for each in known)}",
                        attempt="kir plugins")
    return surface


def belong(command: str, to: str, given: Mapping[str, object]) -> None:
    """Refuse options (by name, with their values; None, False and empty ones were not given) that mean something only beside ``to``, which
    is not there. Raises :class:`UsageError` KIR-C002."""
    extra = [name for name, value in given.items() if value not in (None, False, "", [], ())]
    if extra:
        raise usage("KIR-C002", f"{extra[0]} needs {to}", subject=f"kir {command}", attempt=f"kir {command} --help")


def conditions(ids: Iterable[str] | None, option: str) -> frozenset[str]:
    """Ids of preconditions as an option gives them. Raises :class:`UsageError` KIR-C004 for one that no pass declares."""
    wanted = frozenset(ids or ())
    if not wanted:
        return wanted
    from kir.base.registry import registry

    known = {id_ for entry in registry("kir.passes") for id_ in re.findall(r"\bKIR-P\d{3}\b", entry.file.read_text(encoding="utf-8"))}
    for each in sorted(wanted - known):
        hint = did_you_mean(each, known)
        raise usage("KIR-C004", f"{option} {each}: no pass declares such a precondition", needs="an id as refusals name it, such as KIR-P520",
                    attempt=hint or "kir passes lists the preconditions of every pass")
    return wanted
