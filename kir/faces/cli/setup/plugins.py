"""list what each distribution adds (passes, frontends, backends), and what is broken

Imports every module once, which is how a broken one shows. Exit code 1 where one is broken.
"""

from __future__ import annotations

import textwrap

from kir.base.registry import GROUPS, registry
from kir.faces.cli._result import Result


def command() -> Result:
    """List what each distribution adds (passes, frontends, backends), and what is broken."""
    groups: dict[str, object] = {}
    lines: list[str] = []
    warnings = []
    for group in GROUPS:
        known = registry(group)
        modules, broken = known.load_all()
        lines.append(group)
        sources = []
        for source in known.sources:
            names = [entry.name for entry in known if entry.source == source and entry.name in modules]
            sources.append({"distribution": source.distribution, "version": source.version, "package": source.package, "names": names})
            lines.append(f"  {source.distribution} {source.version} ({source.package})")
            lines += textwrap.wrap(", ".join(names) or "nothing usable", 110, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)
        groups[group] = {
            "sources": sources,
            "broken": [{"name": each.name, "distribution": each.distribution, "reason": each.reason} for each in broken],
        }
        warnings += [each.diagnostic() for each in broken]
    return Result({"groups": groups}, "\n".join(lines), 1 if warnings else 0, diagnostics=tuple(warnings))
