"""A gate's record in a few rows: what was compiled, how it was checked, what the model says. The whole record is in lineage.json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kir.faces.report.chart import seconds

MOST_OPCODES = 8

Row = tuple[str, str]


def verdict_rows(record: Mapping[str, Any]) -> tuple[Row, ...]:
    """Rows of a name and a sentence; parts that a record does not have are left out."""
    if not record:
        return ()
    compiled, right = record.get("compile") or {}, record.get("correctness") or {}
    return (*_compile(compiled), *_correctness(right), *_profile(record.get("profile") or ()), *_isolation(record))


def _compile(record: Mapping[str, Any]) -> Iterator[Row]:
    for artifact in record.get("artifacts", ()):
        name = f"compiled, {artifact.get('target', '')}"
        if artifact.get("absent"):
            yield name, f"no: {artifact['absent']}"
        for kernel in artifact.get("kernels", ()):
            mix = sorted(kernel.get("mix", {}).items(), key=lambda each: (-each[1], each[0]))[:MOST_OPCODES]
            told = [f"{kernel['registers']} registers a thread", f"{kernel['shared_bytes']} bytes of shared memory"]
            told += [f"{kernel['spills']} bytes spilled"] if kernel.get("spills") else []
            told += [", ".join(f"{option} {value}" for option, value in sorted(kernel.get("options", {}).items()))]
            told += [", ".join(f"{opcode} {count}" for opcode, count in mix)]
            yield name, f"{kernel['kernel']}: {'; '.join(each for each in told if each)}"
    for sentence in record.get("absent", ()):
        yield "not compiled", sentence
    for refusal in record.get("refusals", ()):
        yield "refused", f"{refusal.get('id', '')}: {refusal.get('message', '')}"


def _correctness(record: Mapping[str, Any]) -> Iterator[Row]:
    runs = record.get("runs", ())
    if runs:
        worst = max(runs, key=lambda each: float(each["worst"]))
        shapes = "; ".join(dict.fromkeys(_sized(each["shape"], each["sizes"]) for each in runs))
        against = f"relative to {record.get('reference', '')}" if record.get("relative") else f"against {record.get('reference', '')} in float64"
        yield "correct", f"{sum(1 for each in runs if each['ok'])} of {len(runs)} runs {against}; shapes {shapes}"
        place = f"{float(worst['worst']):.3g} of its bound{', at ' if worst['where'] else ''}{worst['where']} ({worst['shape']}, {worst['distribution']})"
        yield "largest error", place
        if covered := record.get("coverage"):
            yield "coverage", str(covered["line"]).removeprefix("coverage ")
        checked = [each for each in runs if each["mode"] == "check"]
        if checked:
            findings = len(record.get("findings", ()))
            yield "checked for hazards", f"{findings} errors, {len(record.get('weak', ()))} weak findings, at {checked[0]['shape']}"
    if record.get("reason"):
        yield "incorrect", str(record["reason"])


def _sized(shape: str, sizes: Mapping[str, Any]) -> str:
    """The name of a shape with its sizes, once where they are its name."""
    return shape if "=" in shape or not sizes else f"{shape} ({', '.join(f'{k}={v}' for k, v in sizes.items())})"


def _profile(rows: Any) -> Iterator[Row]:
    for row in rows:
        yield f"modelled, {row['target']}", f"{seconds(row['seconds'])} at {row['shape']}, bound by {row['bound_by']}"


def _isolation(record: Mapping[str, Any]) -> Iterator[Row]:
    if record.get("isolation"):
        yield "isolation", str(record["isolation"])
