"""The arguments of a call."""

from __future__ import annotations

from collections.abc import Sequence

from .values import Items, NotUnderstood, Value, describe


class Arguments:
    """The arguments of a call, by position or keyword."""

    def __init__(self, args: Sequence[Value], named: dict[str, Value]) -> None:
        self.args, self.named = list(args), dict(named)

    def get(self, at: int, name: str, default: Value = None) -> Value:
        """One argument, or its default."""
        if at < len(self.args):
            return self.args[at]
        return self.named.get(name, default)

    def need(self, at: int, name: str) -> Value:
        """One argument that must be there."""
        if at >= len(self.args) and name not in self.named:
            raise NotUnderstood(f"argument '{name}' is missing")
        return self.get(at, name)

    def flat(self, at: int, name: str) -> tuple[Value, ...]:
        """A shape or permutation given as one tuple or as the remaining arguments."""
        rest = self.args[at:]
        if len(rest) > 1 or (len(rest) == 1 and not isinstance(rest[0], Items)):
            return tuple(rest)
        whole = self.get(at, name)
        if isinstance(whole, Items):
            return whole.items
        raise NotUnderstood(f"'{name}' is {describe(whole)}")
