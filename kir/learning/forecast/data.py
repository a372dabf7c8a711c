"""Measured effects of steps as data: the tables, and how they are written, read and checked.

A row class is the schema of its table. A folder holds tables in one or more files each (`pairs.parquet`, `pairs-h100.parquet`: a part), and a
`manifest.json` with the schema's version and for each file its rows, SHA-256 and the command that made it. A file that is not as its
manifest says is refused: nothing is learned from half of the data. Needs pyarrow (extra `forecast`).
"""
from __future__ import annotations

import hashlib
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, fields
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError, did_you_mean, error
from kir.base.store import write_atomic
from kir.surface import Artifact, CompiledKernel

SCHEMA = 1
"""Raised whenever a column changes its name or meaning."""
MANIFEST = "manifest.json"
SOURCES = ("lineage", "package", "walk", "tune")
FAULTS = ("", "compile", "launch", "wrong", "spills", "resources", "timeout")
"""Why a pair has no speedup: its later program does not compile, cannot be launched, is wrong, spills, takes too much of a resource, or takes too long."""
SURFACES = ("cuda", "triton", "tilelang")
Sizes = Mapping[str, Any]
Records = Sequence[Mapping[str, Any]]
JSON = (Sizes, Records)
"""Types of columns that are kept as JSON."""


@dataclass(frozen=True)
class ProgramRow:
    """A program by its content hash: canonical text, the surface that it is written for, the family of its kernel (`gemm`, `softmax`), the problem that
    it solves, and where it comes from."""

    program: str
    text: str
    surface: str
    family: str
    problem: str = ""
    origin: str = ""


@dataclass(frozen=True)
class CompiledRow:
    """What a compiler made of a program for an architecture (`sm_90a`). `kernels`: records of `CompiledKernel`, where `stack` (bytes a thread) may stand
    beside the rest; `fault`: the compiler's line where it refused."""

    program: str
    arch: str
    ok: bool
    fault: str = ""
    kernels: Records = field(default_factory=tuple)

    def artifact(self, surface: str) -> Artifact | None:
        """The compiled program as the cost model reads it; None where there is none."""
        if not self.ok or not self.kernels:
            return None
        made = tuple(CompiledKernel(k["kernel"], int(k.get("registers", 0)), int(k.get("spills", 0)), int(k.get("shared_bytes", 0)),
                                    int(k.get("threads", 0)), dict(k.get("mix", {}))) for k in self.kernels)
        return Artifact(surface, self.arch, made)


@dataclass(frozen=True)
class StepRow:
    """A step between two programs, as pipeline text; `forward` is towards the expert."""

    before: str
    after: str
    step: str
    forward: bool
    source: str


@dataclass(frozen=True)
class MeasuredRow:
    """A program at one shape on a device (a name that `kir.hardware.target.target` knows): median seconds of a launch with a warm L2 and their 95 % interval,
    with a cold L2, the SM clock in MHz, and when (ISO 8601). `group` are the programs that were run in turns with it. NaN where `fault` says why not."""

    device: str
    group: str
    program: str
    shape: str
    sizes: Sizes
    warm: float = math.nan
    warm_low: float = math.nan
    warm_high: float = math.nan
    cold: float = math.nan
    fault: str = ""
    clock_mhz: float = math.nan
    when: str = ""


@dataclass(frozen=True)
class PairRow:
    """Two programs at one shape on a device, run in turns: the median of before over after of each round, its 95 % interval, the same with a cold L2.
    `step` is "" where more than one step lies between them. NaN where `fault` says why the later program gave none."""

    device: str
    group: str
    shape: str
    sizes: Sizes
    before: str
    after: str
    step: str
    source: str
    family: str
    speedup: float = math.nan
    low: float = math.nan
    high: float = math.nan
    speedup_cold: float = math.nan
    fault: str = ""


@dataclass(frozen=True)
class ModelledRow:
    """What the cost model said of a program when the data were made, in seconds: what later ones are compared with. `model` names its state (a commit)."""

    device: str
    program: str
    sizes: Sizes
    seconds: float
    model: str


ROWS: Mapping[str, type] = {"programs": ProgramRow, "compiled": CompiledRow, "steps": StepRow, "measured": MeasuredRow, "pairs": PairRow,
                            "modelled": ModelledRow}
OF_PROGRAMS = {"compiled": ("program",), "steps": ("before", "after"), "measured": ("program",), "pairs": ("before", "after"),
               "modelled": ("program",)}
"""Columns that hold content hashes of `programs`."""
CHOICES: Mapping[str, Sequence[str]] = {"surface": SURFACES, "source": SOURCES, "fault": FAULTS}
R = TypeVar("R")


@dataclass(frozen=True)
class Data:
    """The whole data set. `hash` is that of its files."""

    programs: Mapping[str, ProgramRow]
    compiled: Mapping[tuple[str, str], CompiledRow]
    steps: Sequence[StepRow]
    measured: Sequence[MeasuredRow]
    pairs: Sequence[PairRow]
    modelled: Sequence[ModelledRow] = ()
    hash: str = ""

    def artifact(self, program: str, arch: str) -> Artifact | None:
        """A program as compiled for an architecture, where the data hold that."""
        row = self.compiled.get((program, arch))
        return row.artifact(self.programs[program].surface) if row is not None else None


def write(tables: Mapping[str, Iterable[Any]], folder: Path, part: str = "", command: str = "", device: str = "", when: str = "") -> dict[str, Any]:
    """Write rows (of the row classes, or mappings with their fields) of some tables, each whole or as one named part of it, and the manifest, which is
    returned. `command`, `device` and `when` say how they were made. Raises KirError KIR-E001 for a row that is none, KIR-E006 without pyarrow."""
    folder.mkdir(parents=True, exist_ok=True)
    pa = _pyarrow()
    held: dict[str, Any] = _manifest(folder) if (folder / MANIFEST).is_file() else {"schema": SCHEMA, "files": {}}
    for table, given in tables.items():
        rows = [_row(table, r, i) for i, r in enumerate(given)]
        made = pa.Table.from_pylist([_plain(r) for r in rows], schema=_schema(table))
        into = io.BytesIO()
        pa.parquet.write_table(made, into, compression="zstd", compression_level=19, data_page_size=1 << 24, row_group_size=1 << 20,
                               use_dictionary=[c for c in made.column_names if c not in ("text", "kernels")], store_schema=False)
        name = f"{table}{f'-{part}' if part else ''}.parquet"
        write_atomic(folder / name, into.getvalue())
        held["files"][name] = {"table": table, "rows": len(rows), "bytes": into.tell(), "sha256": hashlib.sha256(into.getvalue()).hexdigest(),
                               "command": command, "device": device, "when": when}
    held["files"] = {name: held["files"][name] for name in sorted(held["files"])}
    write_atomic(folder / MANIFEST, json.dumps(held, indent=1) + "\n")
    return held


def read(folder: Path) -> Data:
    """The data of a folder. Raises KirError: KIR-E002 for what is not there or cut short, KIR-E003 for another schema, KIR-E004 for a file that is not
    the manifest's, KIR-E001 for a row that is none, KIR-E006 without pyarrow."""
    found: dict[str, list[Any]] = {table: [] for table in ROWS}
    manifest = _manifest(folder)
    for name, about in manifest["files"].items():
        found[about["table"]] += _read_file(folder / name, about)
    programs = {r.program: r for r in found["programs"]}
    for table, columns in OF_PROGRAMS.items():
        for i, row in enumerate(found[table]):
            for column in columns:
                if getattr(row, column) not in programs:
                    raise _bad(table, i, f"'{column}' names program {getattr(row, column)[:12]}, which is not in the table of programs")
    return Data(programs, {(r.program, r.arch): r for r in found["compiled"]}, found["steps"], found["measured"], found["pairs"],
                found["modelled"], data_hash(manifest))


def data_hash(manifest: Mapping[str, Any]) -> str:
    """The SHA-256 of the hashes of all files that are learned from, in the order of their names."""
    files = {name: about for name, about in manifest["files"].items() if about["table"] != "modelled"}
    return hashlib.sha256("\n".join(f"{name} {files[name]['sha256']}" for name in sorted(files)).encode()).hexdigest()


def hash_of(folder: Path) -> str:
    """`data_hash` as a folder's manifest has it. Raises KirError KIR-E002, KIR-E003."""
    return data_hash(_manifest(folder))


def merged(parts: Iterable[Data]) -> Data:
    """Several data sets as one, programs that are in more than one once."""
    parts = list(parts)
    return Data({k: v for d in parts for k, v in d.programs.items()}, {k: v for d in parts for k, v in d.compiled.items()},
                [r for d in parts for r in d.steps], [r for d in parts for r in d.measured], [r for d in parts for r in d.pairs],
                [r for d in parts for r in d.modelled], hashlib.sha256("\n".join(d.hash for d in parts).encode()).hexdigest())


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    if not path.is_file():
        raise error("KIR-E002", f"{path} is not there", needs="a folder that `python -m benchmarks.effects` has written")
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
        schema, files = held["schema"], held["files"]
        good = all(about["table"] in ROWS and {"rows", "sha256"} <= about.keys() for about in files.values())
    except (ValueError, KeyError, TypeError, AttributeError):
        schema, good = None, False
    if schema != SCHEMA and isinstance(schema, int):
        raise error("KIR-E003", f"{path} has schema {schema}; this KIR reads {SCHEMA}", needs="data of the same version",
                    attempt="python -m benchmarks.effects")
    if not good:
        raise error("KIR-E002", f"{path} is cut short or no manifest", needs="the file as it was written")
    return dict(held)


def _read_file(path: Path, about: Mapping[str, Any]) -> list[Any]:
    pa = _pyarrow()
    try:
        content = path.read_bytes()
    except OSError as bad:
        raise error("KIR-E002", f"{path} cannot be read: {bad.strerror}", needs="every file that the manifest names") from bad
    if len(content) < about.get("bytes", 0):
        raise error("KIR-E002", f"{path} is cut short: {len(content)} of {about['bytes']} bytes", needs="the file as it was written")
    if hashlib.sha256(content).hexdigest() != about["sha256"]:
        raise error("KIR-E004", f"{path} is not the file of the manifest: its SHA-256 differs", needs="data and manifest of one making")
    table = about["table"]
    try:
        made = pa.parquet.read_table(pa.BufferReader(content))
    except pa.ArrowException as bad:
        raise error("KIR-E002", f"{path} is no Parquet file: {str(bad).splitlines()[0]}", needs="the file as it was written") from bad
    if made.schema.names != _schema(table).names:
        raise error("KIR-E003", f"{path} has other columns than schema {SCHEMA}", needs="data of the same version", attempt="python -m benchmarks.effects")
    loads = [c for c, kind in _columns(table).items() if kind in JSON]
    return [_row(table, {**r, **{c: json.loads(r[c]) for c in loads}}, i) for i, r in enumerate(made.to_pylist())]


def _row(table: str, given: Any, i: int) -> Any:
    """A row of a table, checked. Raises KirError KIR-E001."""
    kind = ROWS[table]
    if not isinstance(given, kind):
        columns = _columns(table)
        if unknown := [k for k in given if k not in columns]:
            hint = did_you_mean(unknown[0], columns)
            raise _bad(table, i, f"there is no column '{unknown[0]}'{f'; {hint}' if hint else ''}")
        try:
            given = kind(**given)
        except TypeError as bad:
            raise _bad(table, i, f"a column is missing: {bad}") from bad
    for name, type_ in _columns(table).items():
        value = getattr(given, name)
        if type_ not in JSON and not isinstance(value, (float, int) if type_ is float else type_):
            raise _bad(table, i, f"'{name}' is {value!r}, no {type_.__name__}")
        if name in CHOICES and table != "compiled" and value not in CHOICES[name]:
            raise _bad(table, i, f"'{name}' is {value!r}, none of {', '.join(map(repr, CHOICES[name]))}")
    if isinstance(given, PairRow) and not given.fault and not (math.isfinite(given.speedup) and given.speedup > 0):
        raise _bad(table, i, f"a pair without a fault has speedup {given.speedup}")
    return given


def _bad(table: str, i: int, why: str) -> KirError:
    return error("KIR-E001", f"row {i} of {table}: {why}", needs=f"the columns of kir.learning.forecast.data.{ROWS[table].__name__}")


@cache
def _columns(table: str) -> dict[str, Any]:
    hints = get_type_hints(ROWS[table])
    return {f.name: hints[f.name] for f in fields(ROWS[table])}


def _plain(row: Any) -> dict[str, Any]:
    return {name: json.dumps(getattr(row, name), sort_keys=True, separators=(",", ":")) if kind in JSON else getattr(row, name)
            for name, kind in _columns(next(t for t, k in ROWS.items() if k is type(row))).items()}


def _schema(table: str) -> Any:
    pa = _pyarrow()
    kinds: dict[Any, Any] = {str: pa.string(), float: pa.float64(), bool: pa.bool_(), **{each: pa.string() for each in JSON}}
    return pa.schema([pa.field(name, kinds[kind], nullable=False) for name, kind in _columns(table).items()])


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as bad:
        raise error("KIR-E006", "measured effects are kept as Parquet, and pyarrow is not installed", attempt="pip install 'kernel-lineage[forecast]'") from bad
    return pyarrow
