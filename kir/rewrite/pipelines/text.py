"""Pipelines as text, JSON and values; each form parses back to the others. The grammar is `grammars/pipeline.lark`."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kir.base.dataclass import dataclass
from kir.rewrite.options import option_text, options_text
from kir.rewrite.step import Direction, Step


@dataclass(frozen=True)
class Pipeline:
    """Steps in order."""

    steps: tuple[Step, ...] = ()

    def __str__(self) -> str:
        return "; ".join(map(str, self.steps))

    def to_json(self) -> list[dict[str, Any]]:
        """A JSON array of steps."""
        return [s.to_json() for s in self.steps]

    @classmethod
    def from_json(cls, value: Sequence[Mapping[str, Any]]) -> Pipeline:
        """The inverse of `to_json`."""
        return cls(tuple(map(Step.from_json, value)))

    @classmethod
    def parse(cls, text: str, file: str = "<pipeline>") -> Pipeline:
        """The pipeline of a text. Raises UsageError KIR-R001 with the place."""
        from kir.rewrite.pipelines.reading import steps  # what writes the text needs no parser
        return cls(steps(text, file))


__all__ = ["Direction", "Pipeline", "Step", "option_text", "options_text"]
