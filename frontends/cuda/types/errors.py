"""What stops the reader at a statement: its text then stays `opaque`, with this reason."""

from __future__ import annotations

from tree_sitter import Node

from kir.base.diagnostic import KirError, Origin, error


class NotUnderstood(Exception):
    """The reason why a piece of source is not read; `node` is the smallest piece that it is about."""

    def __init__(self, reason: str, node: Node | None = None) -> None:
        super().__init__(reason)
        self.reason, self.node = reason, node


def endless(what: str, origin: Origin) -> KirError:
    """The refusal (KIR-F207) of calls or templates that never come to an end."""
    return error("KIR-F207", f"{what} nest without end", origin=origin, needs="a function or template that ends in a constant number of steps")


class Incomplete(NotUnderstood):
    """A class that is only declared, of which there can be no object; another class may take it as an argument. `name` and `what` tell it from others."""

    def __init__(self, reason: str, name: str, what: tuple[object, ...]) -> None:
        super().__init__(reason)
        self.name, self.what = name, what
