"""The cache policy of the one access in a source statement, changed where it stands: everything else in the statement stays."""
from __future__ import annotations

import ast

from ..tiles.memory import Memory

_WORDS = frozenset({"cache_modifier", "eviction_policy", "volatile"})


def with_cache_policy(text: str, cache: str) -> str | None:
    """A statement with its one `load` or `store` under a cache policy ("" for none); None where there is not just one, or its arguments do
    not show which policy it has. Raises KirError KIR-B008 for a policy that Triton does not have."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return None
    calls = [x for x in ast.walk(tree) if isinstance(x, ast.Call) and isinstance(x.func, ast.Attribute) and x.func.attr in ("load", "store")]
    if len(calls) != 1 or any(k.arg is None for k in calls[0].keywords) or len(calls[0].args) > (3 if _is_load(calls[0]) else 2) or any(
            isinstance(a, ast.Starred) for a in calls[0].args):
        return None
    (call,) = calls
    data, starts = text.encode(), [0]
    for line in text.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def place(line: int | None, column: int | None) -> int:
        return starts[(line or 1) - 1] + (column or 0)
    end = place(call.end_lineno, call.end_col_offset) - 1
    items: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    items.sort(key=lambda x: (x.lineno, x.col_offset))
    before = place(call.func.end_lineno, call.func.end_col_offset)
    for item, previous in zip(reversed(items), reversed([None, *items[:-1]]), strict=True):
        if isinstance(item, ast.keyword) and item.arg in _WORDS:
            start = place(previous.end_lineno, previous.end_col_offset) if previous is not None else before
            stop = place(item.end_lineno, item.end_col_offset)
            data, end = data[:start] + data[stop:], end - (stop - start)
    kept = [x for x in items if not (isinstance(x, ast.keyword) and x.arg in _WORDS)]
    at = place(kept[-1].end_lineno, kept[-1].end_col_offset) if kept else end
    return (data[:at] + Memory()._options(cache, "load" if _is_load(call) else "store").encode() + data[at:]).decode()


def _is_load(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == "load"
