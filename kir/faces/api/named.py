"""A pipeline by its text, its file or its name: what commands need that run one and tune nothing."""

from __future__ import annotations

import json
import os
from importlib import resources
from pathlib import Path

from kir.base.registry import registry
from kir.rewrite import Pipeline
from kir.surface.reading import read_text


def pipeline_of(text: str) -> Pipeline:
    """The pipeline of its text, of a file that holds one (as text or JSON), or of the name of one that comes with KIR. Raises KirError as parsing does."""
    path = Path(text)
    if len(text) < 200 and (path.suffix in (".json", ".pipeline") or (os.sep in text and "@" not in text and "{" not in text)):
        held = read_text(path)
        return Pipeline.from_json(json.loads(held)) if path.suffix == ".json" else Pipeline.parse(held, str(path))
    if (named := _shipped().get(text)) is not None and text not in {entry.name for entry in registry("kir.passes")}:
        return Pipeline.parse(named.read_text(encoding="utf-8"), str(named))
    return Pipeline.parse(text)


def _shipped() -> dict[str, Path]:
    """The pipelines without holes that come with KIR, by name."""
    return {p.stem: p for p in sorted(Path(str(resources.files("kir.skills") / "pipelines")).glob("*.pipeline"))}
