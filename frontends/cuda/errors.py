"""What stops the reader at a statement: its text then stays `opaque`, with this reason."""

from __future__ import annotations

from tree_sitter import Node


class NotUnderstood(Exception):
    """The reason why a piece of source is not read; `node` is the smallest piece that it is about."""

    def __init__(self, reason: str, node: Node | None = None) -> None:
        super().__init__(reason)
        self.reason, self.node = reason, node
