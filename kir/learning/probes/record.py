"""A probe as data: a program, a step on it, what the pass says of it and what was seen. A small JSON object from which it is shown again."""
from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from kir.base.diagnostic import KirError, Origin, error
from kir.base.store import write_atomic
from kir.hardware.target import target
from kir.ir.canonical import content_hash
from kir.ir.parser import parse_program
from kir.learning.probes.trials import By, Outcome, Seen, Trials
from kir.problem import load_problem
from kir.rewrite.driver import apply
from kir.rewrite.pipelines.pipeline import find_site
from kir.rewrite.pipelines.text import Pipeline
from kir.rewrite.verdict import Context

SCHEMA: Literal["kir.probe/1"] = "kir.probe/1"
Standing = Literal["refuted", "by size", "unknown", "hardware"]
"""What a refusing verdict claims: that the step is wrong; that it is wrong at some sizes and right where its condition holds; nothing; or that a rule of
the hardware or of a compiler forbids it, which no run shows."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Refusal(_Part):
    """A precondition that does not hold: its id, what the verdict claims, and its words."""

    id: str
    standing: Standing
    reason: str


class Probe(_Part):
    """One step tried on one program. `status` is what the pass says: it `applies`, a precondition `refused` it, or it is a `miss` (the pattern does not
    match, or does not lead back) for `reason`. `outcome` is what was seen of the program that it makes, forced where it was refused; `sizes`,
    `distribution` and `seed` where. `varied` says how the program differs from the one that was probed."""

    schema_: Literal["kir.probe/1"] = SCHEMA
    program: str
    hash: str
    step: str
    problem: str
    target: str
    varied: tuple[str, ...] = ()
    status: Literal["applies", "refused", "miss"]
    reason: str = ""
    refusals: tuple[Refusal, ...] = ()
    outcome: Outcome = "not run"
    by: By = ""
    said: str = ""
    sizes: dict[str, int] = {}
    distribution: str = "normal"
    seed: int = 0
    tried: tuple[dict[str, int], ...] = ()

    @property
    def is_counterexample(self) -> bool:
        """Whether it shows a place where the step is wrong: a risk of the pass."""
        return self.outcome in ("wrong", "hardware")

    @property
    def is_defect(self) -> bool:
        """Whether it contradicts what the pass declares: it applies, and what it makes is wrong."""
        return self.status == "applies" and self.outcome == "wrong"

    @property
    def standing(self) -> Standing | None:
        """What its refusal claims: the strongest claim of its verdicts. None where nothing is refused."""
        found = {r.standing for r in self.refusals}
        order: tuple[Standing, ...] = ("refuted", "hardware", "by size", "unknown")
        return next((each for each in order if each in found), None)

    def text(self) -> str:
        """JSON, a field a line, what is at its default left out."""
        fields = {"schema": SCHEMA, **self.model_dump(mode="json", exclude={"schema_"}, exclude_defaults=True)}
        return "{" + ",\n ".join(f"{json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in fields.items()) + "}\n"


def read_probe(text: str, file: str = "<probe>") -> Probe:
    """The inverse of `Probe.text`. Raises KirError KIR-U101."""
    try:
        value = json.loads(text)
        if not isinstance(value, dict) or value.pop("schema", None) != SCHEMA:
            raise error("KIR-U101", f"{file} is no probe of the form {SCHEMA}", needs=f'"schema": "{SCHEMA}"')
        return Probe.model_validate(value)
    except json.JSONDecodeError as bad:
        raise error("KIR-U101", f"{file} is no JSON: {bad.msg}", origin=Origin(file, bad.lineno, bad.colno, bad.lineno, bad.colno)) from bad
    except ValidationError as bad:
        first = bad.errors()[0]
        raise error("KIR-U101", f"{file}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from bad


def store(probe: Probe, folder: Path) -> Path:
    """Write a probe into a folder, named by the step's pass and its content; the same probe to the same file."""
    text = probe.text()
    path = folder / f"{Pipeline.parse(probe.step).steps[0].name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.json"
    write_atomic(path, text)
    return path


def replay(probe: Probe) -> Seen:
    """What is seen when the step is taken again, forced where it was refused, and run where it was. Raises KirError KIR-U102 where the program is not the
    recorded one, or the step is no longer found there, and what a problem or a target raises that there is not."""
    program = parse_program(probe.program, "<probe>")
    if content_hash(program) != probe.hash:
        raise error("KIR-U102", f"the program has the hash {content_hash(program)[:12]}, and the probe recorded {probe.hash[:12]}", subject=probe.step)
    aimed, problem = target(probe.target), load_problem(probe.problem)
    try:
        step = Pipeline.parse(probe.step).steps[0]
        item, site = find_site(program, step)
        made = apply(program, item, site, context=Context(aimed), force=probe.status == "refused").program
    except KirError as bad:
        if probe.status == "miss" or probe.by == "rewrite":
            return Seen(probe.outcome, probe.by, f"{bad.diagnostics[0].id}: {bad.diagnostics[0].message}")
        raise error("KIR-U102", f"the step is taken no more: {bad.diagnostics[0].message}", subject=probe.step) from bad
    trials = Trials(program, problem, aimed)
    if probe.outcome == "wrong" and probe.by not in ("verifier", "target", "rewrite"):
        return trials.at(made, tuple(probe.sizes.items()), probe.distribution, probe.seed, item.numerics)
    return trials.of(made, tuple(tuple(at.items()) for at in probe.tried), item.numerics)


