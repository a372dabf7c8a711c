"""What commands print with --json is what their published schemas say, and every command has one."""
from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator, ValidationError

from kir.faces.cli._main import commands
from kir.faces.cli.setup.schema import SILENT, schemas
from tests.command_line import called

NAIVE, SOFTMAX, CARD = "skills/problems/transpose/naive.kir", "skills/problems/softmax/naive.kir", "approximate-intrinsic.store"
CALLS: tuple[tuple[str, ...], ...] = (
    ("--version",), ("--help",), ("parse", NAIVE), ("passes", "stage-shared"), ("sites", NAIVE, "--pass", "tile", "--near"),
    ("sites", NAIVE, "--at", "M=512,N=512", "--model", "analytic", "--pass", "tile"), ("run", NAIVE), ("run", NAIVE, "--problem", "transpose", "--check"),
    ("diff", NAIVE, SOFTMAX),
    ("diff", NAIVE, NAIVE, "--algebra", "--set", "M=4", "--set", "N=4"),
    ("forecast", NAIVE, "--step", "tile", "--shape", "M=64,N=64"), ("gate", NAIVE, "--problem", "transpose", "--surface", "kir"),
    ("opt", NAIVE, "-p", "tile"), ("opt", NAIVE, "-p", "tile", "--emit", "cuda", "--trace"), ("opt", NAIVE, "-p", "no-such-pass"), ("gate", NAIVE),
    ("skills", "search", "async"), ("skills", "show", CARD), ("skills", "why", CARD), ("skills", "apply", CARD, SOFTMAX),
    ("skills", "ablate", "vector-load.for"), ("skills", "search", "--for", NAIVE, "--at", "M=512,N=512", "--most", "2"),
    ("lineages",), ("problems",),
    ("plugins",), ("doctor",), ("explain", "KIR-P520"), ("explain", "KIR-C001"), ("explain",),
    ("explain", "max"), ("explain", "ldmatrix"), ("explain", "pages"), ("explain", "gate"), ("completion", "bash"), ("schema",), ("schema", "run"),
    ("check", NAIVE), ("carrier", "list"), ("replay", "softmax_cuda"), ("bind", "skills/experts/gemm/gemm_sm80.cu"))


def test_every_command_has_a_schema_that_is_one() -> None:
    known, listed = schemas(), commands()
    assert set(known) == {*listed, "error", "help", "version"} - set(SILENT)
    for name, schema in known.items():
        Draft202012Validator.check_schema(schema)
        ids = schema["properties"]["schema"]
        assert schema["$id"] in (ids.get("const"), *ids.get("enum", ())), name
        assert name in ("error", "help", "version") or schema["title"] == listed[name]


def test_what_is_printed_is_what_the_schemas_say(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    known = {of: schema for schema in schemas().values() for of in schema["properties"]["schema"].get("enum", (schema["$id"],))}
    for words in (*CALLS, ("new", "problem", "mine", "-o", str(tmp_path / "mine")), ("report", "softmax_cuda", "-o", str(tmp_path / "page.html")),
                  ("export", "softmax_triton", "-o", str(tmp_path / "hub"))):
        _, out, _ = called(capsys, *words, "--json")
        answer = json.loads(out)
        schema = known[answer["schema"]]
        Draft202012Validator(schema).validate(answer)
        assert set(answer) <= set(schema["properties"]), f"{words}: fields that the schema does not name"


def test_a_schema_refuses_what_is_another_answer() -> None:
    sites = Draft202012Validator(schemas()["sites"])
    for wrong in ({"schema": "kir.sites/1"}, {"schema": "kir.run/1", "program": "x", "sites": []}, {"schema": "kir.sites/1", "program": 1, "sites": []},
                  {"schema": "kir.sites/1", "program": "x", "sites": [{"step": 5}]}):
        with pytest.raises(ValidationError):
            sites.validate(wrong)
