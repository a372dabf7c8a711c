"""Recorded answers: `skills/carriers/<contract>/<name>.toml` with the answer's text beside it, shipped or in the user's own library.

    schema = "kir.answer/1"
    contract = "topk-select/1"
    contract_hash = ".."          # of the contract as it was answered
    answer = ".."                 # `Answer.hash`: surface, binding and text
    surface = "kir"
    who = "A. Person"             # a person, or provider and model
    when = "2026-02-14"
    provider = "person"
    prompt = ""                   # hash of the prompt's template, where there was one
    note = ""
    binding = ""                  # of a fragment that is generic
    [gate]                        # what the CPU gate said of the answer by itself
    [parameters]                  # of a family of answers: each name's values, the first of which the record is about
    threads = [128, 256, 512]

The text of a family, `<name>.kir.in`, has holes `${threads}`; `rows(threads=256)` names one of its answers, `rows` the one that is recorded.
"""
from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from shlex import quote
from string import Template
from typing import Any, Literal

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kir.base.dataclass import dataclass
from kir.base.diagnostic import Origin, error, usage
from kir.base.store import HASH_PATTERN, write_atomic
from kir.base.toml_text import loads
from kir.ir import nodes as n
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.lineage.carrier.answer import Answer, read
from kir.lineage.carrier.checking import conforms
from kir.lineage.carrier.contract import Contract
from kir.lineage.carrier.filling import fill
from kir.rewrite.edit import Path as IrPath

SUFFIX = {"kir": ".kir", "cuda": ".cu", "triton": ".triton", "tilelang": ".tilelang"}
"""Of the file that holds an answer's text; fragments in Python are no modules of ours, and are not called `.py`."""


class RecordFile(BaseModel):
    """All of a record's TOML."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    schema_: Literal["kir.answer/1"] = Field(alias="schema")
    contract: str
    contract_hash: str = Field(pattern=HASH_PATTERN.pattern)
    answer: str = Field(pattern=HASH_PATTERN.pattern)
    surface: Literal["kir", "cuda", "triton", "tilelang"]
    who: str = Field(min_length=1)
    when: str = Field(pattern=r"^\d{4}-\d\d-\d\d$")
    provider: str
    model: str = ""
    prompt: str = ""
    note: str = ""
    binding: str = ""
    parameters: dict[str, tuple[int, ...]] = Field(default={})
    gate: dict[str, Any]


@dataclass(frozen=True)
class Recorded:
    """A record and its answer. `name` is the file's stem, `shipped` whether it came with KIR, `family` the text with holes that the answer
    is one of, or nothing."""

    name: str
    path: Path
    record: RecordFile
    answer: Answer
    shipped: bool
    family: str = ""

    def chosen(self, settings: Mapping[str, int]) -> Answer:
        """The answer of the family with some parameters other than recorded. Raises KirError KIR-H144 for what the record does not list."""
        listed = self.record.parameters
        for name, value in settings.items():
            if value not in listed.get(name, ()):
                raise usage("KIR-H144", f"'{self.name}' has no answer with {name}={value}",
                            needs=f"{name} one of {', '.join(map(str, listed[name]))}" if name in listed else f"one of {', '.join(listed) or 'no parameters'}")
        return replace(self.answer, text=_text(self.family or self.answer.text, listed, settings))

    def must_fit(self, contract: Contract) -> None:
        """Raises KirError KIR-H141 when it was given for another version of the contract."""
        if self.record.contract_hash != contract.hash:
            raise error("KIR-H141", f"the answer '{self.name}' was given for {self.record.contract} as {self.record.contract_hash[:12]}; "
                        f"the contract is now {contract.hash[:12]}", origin=Origin(str(self.path), 1, 1, 1, 1),
                        attempt=f"kir carrier check {quote(str(self.path))} --record")

    def to_json(self) -> dict[str, Any]:
        """A JSON object without the text."""
        return {"name": self.name, "file": str(self.path), "shipped": self.shipped, **self.record.model_dump(mode="json", by_alias=True)}


def folders(contract: Contract) -> tuple[tuple[Path, bool], ...]:
    """Where the answers to a contract are kept: the user's own first, then beside the contract."""
    import platformdirs
    own = Path(platformdirs.user_data_dir("kir")) / "carriers" / contract.folder.name
    return ((own, False), (contract.folder, True))


def recorded(contract: Contract) -> Iterator[Recorded]:
    """Every recorded answer to a contract, in order of name. Raises KirError KIR-H140 for a file that is no record, KIR-H143 for a text
    that was changed."""
    for folder, shipped in folders(contract):
        files = _files(folder)
        for name, *_ in files:
            if name.endswith(".toml") and name != "contract.toml":
                path = folder / name
                yield _read(path, tuple(f for f in files if f[0].startswith(f"{path.stem}.")), shipped)


def read_record(path: Path, shipped: bool = False) -> Recorded:
    """The record of one file. Raises KirError KIR-H140, KIR-H143."""
    return _read(path, tuple(f for f in _files(path.parent) if f[0].startswith(f"{path.stem}.")), shipped)


def _files(folder: Path) -> list[tuple[str, int, int]]:
    """Name, time in nanoseconds and size in bytes of what is in a folder, in order of name; nothing where it is not there."""
    try:
        with os.scandir(folder) as entries:
            return sorted((e.name, e.stat().st_mtime_ns, e.stat().st_size) for e in entries)
    except (FileNotFoundError, NotADirectoryError):
        return []


@lru_cache(maxsize=256)
def _read(path: Path, as_of: tuple[tuple[str, int, int], ...], shipped: bool) -> Recorded:
    try:
        text = path.read_text(encoding="utf-8")
        record = RecordFile.model_validate(loads(text))
        answer, family = held_by(path, record)
    except KeyError as bad:
        raise error("KIR-H140", f"{path} does not list the parameter {bad} of the text beside it", origin=Origin(str(path), 1, 1, 1, 1)) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as bad:
        raise error("KIR-H140", f"{path}: {bad}", origin=Origin(str(path), 1, 1, 1, 1)) from bad
    except ValidationError as bad:
        first = bad.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else ""
        at = max(0, text.find(name))
        raise error("KIR-H140", f"{name}: {first['msg']}", origin=Origin.of(str(path), text, at, at + len(name))) from None
    if answer.hash != record.answer:
        raise error("KIR-H143", f"the text of '{path.stem}' has the hash {answer.hash[:12]}, and its record says {record.answer[:12]}",
                    origin=Origin(answer.file, 1, 1, 1, 1), attempt=f"kir carrier check {quote(str(path))} --record")
    return Recorded(path.stem, path, record, answer, shipped, family)


def held_by(path: Path, record: RecordFile) -> tuple[Answer, str]:
    """The answer that lies beside a record, and the text of its family or nothing. Raises OSError, UnicodeDecodeError, and KirError for a
    family whose text is no program."""
    beside = path.with_suffix(SUFFIX[record.surface] + (".in" if record.parameters else ""))
    text = beside.read_text(encoding="utf-8")
    held = _text(text, record.parameters, {}) if record.parameters else text
    return Answer(held, record.surface, record.binding, str(beside)), text if record.parameters else ""


def _text(family: str, listed: Mapping[str, tuple[int, ...]], settings: Mapping[str, int]) -> str:
    """The text of one answer of a family, its comments at the top aside: those are about all of them."""
    values = {name: values[0] for name, values in listed.items()} | dict(settings)
    return program_text(parse_program(Template(family).substitute(values)))


def spelled(wanted: str) -> tuple[str, dict[str, int]]:
    """The name and the parameters in `name(threads=256, ctas=4)`; no parameters in a plain name, or in what is not of this form."""
    found = re.fullmatch(r"(\w+)\(\s*(\w+\s*=\s*\d+(?:\s*,\s*\w+\s*=\s*\d+)*)\s*\)", wanted)
    if found is None:
        return wanted, {}
    return found[1], {name.strip(): int(value) for name, value in (part.split("=") for part in found[2].split(","))}


def find(contract: Contract, wanted: str = "") -> Recorded:
    """A recorded answer by its name, its hash or the first eight digits of one; without any, the first that fits the contract.

    Raises KirError: KIR-H142 (none, or several), KIR-H141 (given for another version of the contract), and as `recorded`."""
    known = list(recorded(contract))
    if not wanted:
        fitting = [r for r in known if r.record.contract_hash == contract.hash]
        if fitting or not known:
            return _one(contract, fitting[:1], wanted)
        known[0].must_fit(contract)
    matches = [r for r in known if r.name == wanted or (len(wanted) >= 8 and r.record.answer.startswith(wanted))]
    found = _one(contract, [r for k, r in enumerate(matches) if r.record.answer not in {m.record.answer for m in matches[:k]}], wanted)
    found.must_fit(contract)
    return found


@lru_cache(maxsize=64)
def _program(contract: Contract, hash: str, answer: Answer) -> n.Program:
    program = read(contract, answer)
    conforms(contract, program, answer)
    return program


def program_of(contract: Contract, found: Recorded, answer: Answer | None = None) -> n.Program:
    """The program of a recorded answer, or of another one of its family: read, and held to the contract's types and effects. Its oracle was
    asked when it was recorded, and is asked again by `kir carrier check` and by every gate. Raises KirError as `find` and `read`."""
    found.must_fit(contract)
    return _program(contract, contract.hash, answer or found.answer)


def fill_recorded(contract: Contract, program: n.Program, path: IrPath, wanted: str = "") -> n.Program:
    """`program` with the hole at `path` filled by a recorded answer, by name, hash or its first digits; by default the first that fits.

    Raises KirError as `find`, `read` and `fill`."""
    return fill(contract, program, path, program_of(contract, find(contract, wanted)))


def _one(contract: Contract, found: list[Recorded], wanted: str) -> Recorded:
    if len(found) != 1:
        said = f"{len(found)} recorded answers to {contract.id} are called '{wanted}'" if found else (
            f"there is no recorded answer '{wanted}' to {contract.id}" if wanted else f"no answer to {contract.id} is recorded")
        names = [r.name for r in recorded(contract)]
        raise usage("KIR-H142", said, witness=tuple(names), attempt="kir carrier list")
    return found[0]


def save(contract: Contract, name: str, answer: Answer, *, who: str, provider: str, gate: dict[str, Any], model: str = "", prompt: str = "",
         note: str = "", folder: Path | None = None, when: datetime | None = None, parameters: Mapping[str, tuple[int, ...]] | None = None) -> Path:
    """Write a record and its text, by default to the user's own library; the text first, so that a record never lacks it. With `parameters` it
    is about a family, whose text is there already."""
    home = folder or folders(contract)[0][0]
    path = home / f"{name}.toml"
    record = {"schema": "kir.answer/1", "contract": contract.id, "contract_hash": contract.hash, "answer": answer.hash, "surface": answer.surface,
              "who": who, "when": (when or datetime.now(UTC)).strftime("%Y-%m-%d"), "provider": provider, "model": model, "prompt": prompt,
              "note": note, "binding": answer.binding, "gate": gate, **({"parameters": {k: list(v) for k, v in parameters.items()}} if parameters else {})}
    RecordFile.model_validate(record)
    if not parameters:
        write_atomic(path.with_suffix(SUFFIX[answer.surface]), answer.text)
    write_atomic(path, tomli_w.dumps(record))
    return path
