"""What commands ask of their options together: none is passed over in silence."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from kir.base.diagnostic import did_you_mean, usage


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
