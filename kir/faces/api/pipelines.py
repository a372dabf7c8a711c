"""Pipelines as people name them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from kir.base.dataclass import dataclass
from kir.base.diagnostic import did_you_mean, usage
from kir.faces.api.named import pipeline_of
from kir.hardware.target import target
from kir.learning.tune.first import first_trace
from kir.learning.tune.space import find_space, space_names
from kir.problem import load_problem
from kir.rewrite import Context, Trace, run
from kir.surface.reading import own_surface

AIM = "sm_90a"
"""What a stored pipeline's holes are filled for, and its conditions judged for, when nobody says."""


@dataclass(frozen=True)
class Stored:
    """A pipeline run over a problem's naive program: its `trace`, its `name` and where it is kept, the surface that it is written for ("kir": none), and the
    parameters that were `fixed`, a line each."""

    trace: Trace
    name: str
    source: str
    surface: str
    problem: str
    fixed: str = ""


def names_pipeline(text: str) -> bool:
    """Whether a word names a pipeline, and no kernel: one that comes with KIR, or the file of one, with or without holes."""
    return text.endswith((".pipeline", ".pipeline.in", ".toml")) or (bool(re.fullmatch(r"\w+", text)) and not Path(text).exists())


def stored(text: str, problem: str = "", wanted: Mapping[str, str] | None = None, aim: str = AIM) -> Stored:
    """The pipeline that a word names, run over the naive program of a problem: by default of the one that it is written for. `wanted` fixes parameters.

    Raises UsageError KIR-S018 for a name that nothing has, KIR-C002 for a file that no problem is named for, or that has no parameters to fix, and what
    running it raises.
    """
    path, known = Path(text), space_names()
    if path.suffix != ".pipeline":
        if path.suffix == "" and text not in known:
            raise usage("KIR-S018", f"there is neither a file nor a stored pipeline '{text}'", attempt=did_you_mean(text, known),
                        needs="FILE[::KERNEL], or a pipeline of skills/pipelines")
        space = find_space(text)
        if space.kind != "pipeline" or not space.home:
            raise usage("KIR-S018", f"'{space.name}' tunes a {space.kind}: there is no way to go back along", needs="a pipeline over a problem's naive program")
        done = first_trace(space, load_problem(problem or space.home), target(aim), wanted)
        return Stored(done, space.name, f"pipelines/{space.name}", space.surface, problem or space.home,
                      "".join(f"{name} = {value}\n" for name, value in sorted((wanted or {}).items())))
    if not problem or wanted:
        raise usage("KIR-C002", f"{text} says no problem whose naive program it begins with" if not problem else f"{text} has no parameters that --set fixes",
                    attempt="" if problem else "--problem NAME")
    done = run(load_problem(problem).naive, pipeline_of(text), Context(target(aim)))
    return Stored(done, path.stem, text, own_surface(done.program, "kir"), problem)
