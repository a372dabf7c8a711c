"""The folder of a package for the hub: one build for every torch (`build/torch-cuda`), its metadata, and the record.

Layout and metadata are those of the client `kernels` 0.17 (https://huggingface.co/docs/kernels, "Kernel requirements"). A Triton kernel needs nothing
but torch.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import kir
from kir.base.diagnostic import error
from kir.base.store import claimed, write_atomic
from kir.faces.hub.wrapper import wrapper
from kir.ir.canonical import content_hash
from kir.ir.nodes import Program
from kir.ir.printer import program_text
from kir.surface import backend

VARIANT = "torch-cuda"


def package(program: Program, name: str, output: Path, record: Mapping[str, Any], lineage: Path | None = None,
            license: str = "other") -> tuple[Path, ...]:
    """Write a program as a package; the files. `record` is the gate's verdict on it, `lineage` the folder that it comes from, whose files are put inside,
    `license` that of what it was made from. Raises KirError
    KIR-C011 where Triton, which alone needs no build for each torch, cannot say it; KIR-C010 where another process writes there."""
    must_be_said(program)
    emitted = backend("triton").emit(program)
    name = re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-")
    module = name.replace("-", "_")
    key = content_hash(program)[:12]
    metadata = {"name": name, "id": f"_{module}_{key}", "version": 1, "license": license, "python-depends": [], "backend": {"type": "cuda"}}
    at = output / "build" / VARIANT
    files: dict[Path, str] = {
        at / "__init__.py": wrapper(program, emitted), at / "kernels.py": emitted.text, at / "metadata.json": json.dumps(metadata, indent=1) + "\n",
        at / "record" / "program.kir": program_text(program), at / "record" / "gate.json": json.dumps(dict(record), indent=1, sort_keys=True) + "\n",
        output / "README.md": _readme(name, program, record, lineage is not None, license)}
    with claimed(output):
        for file, text in files.items():
            write_atomic(file, text)
        if lineage is not None:
            for part in sorted(lineage.rglob("*")):
                if part.is_file() and (part.name == "lineage.json" or part.suffix == ".kir"):
                    place = at / "record" / "lineage" / part.relative_to(lineage)
                    place.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(part, place)
                    files[place] = ""
    return tuple(files)


def must_be_said(program: Program) -> None:
    """Raises KirError KIR-C011 where Triton cannot say a program."""
    if refused := backend("triton").accepts(program):
        raise error("KIR-C011", f"a package of the hub holds Triton code, and '{program.name}' cannot be said in it: {refused[0].message}",
                    needs="a kernel that Triton says: others need a build for each torch")


def _readme(name: str, program: Program, record: Mapping[str, Any], walked: bool, license: str) -> str:
    judged = "accepted" if record.get("accepted", True) else "refused"
    problem = record.get("problem") or record.get("reference") or "itself"
    story = "`record/lineage` is its lineage: `kir replay` rebuilds it from the naive program, `kir explore` shows it as slides." if walked else ""
    return "\n".join([
        "---", "tags: [kernel]", f"license: {license.lower()}", "---", "", f"# {name}", "",
        f"`{program.name}`, written by KIR {kir.__version__} from the program `{content_hash(program)[:16]}`.", "",
        "```python", "from kernels import get_kernel", "", f'kernel = get_kernel("OWNER/{name}", version=1)', "```", "",
        f"`build/{VARIANT}/record/gate.json` is the gate's verdict ({judged}, against {problem}); `program.kir` the program that was judged. {story}", ""])
