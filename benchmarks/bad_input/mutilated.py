"""Mutilated sources: shipped kernels of the three surfaces with random tokens lost, doubled, exchanged or replaced, given to `kir parse`.

`python -m benchmarks.bad_input.mutilated [--count N] [--seed S] [--surface NAME ..]` does so N times a surface. What comes out is a program or a located
refusal; an internal error (KIR-C003), a traceback, or more than `SECONDS` is a fault, and the exit code is 1.
"""
from __future__ import annotations

import argparse
import contextlib
import io
import random
import re
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

from benchmarks.bad_input.running import faults
from kir.base.dataclass import dataclass
from kir.faces.cli._main import run

SKILLS = Path(__file__).parents[2] / "skills"
SURFACES = ("cuda", "triton", "tilelang")
SECONDS, MEGABYTES = 60, 8_000
_TOKEN = re.compile(r"[^\W\d]\w*|\d[\w.]*|\"[^\"\n]*\"|'[^'\n]*'|\s+|<<=|>>=|\*\*|//|<<|>>|&&|\|\||[-+*/%&|^<>=!]=|->|::|.", re.DOTALL)
NUMBERS = ("0", "-1", "1", "3", "2147483648", "1e30", "0.5", "99999999999999999999")


@dataclass(frozen=True)
class Source:
    """A kernel of a shipped file, and the binding that it is read with, if there is one."""

    surface: str
    file: Path
    kernel: str
    binding: Path | None


def sources(surface: str) -> tuple[Source, ...]:
    """The shipped kernels of a surface, each by itself and with the bindings that name it."""
    found = []
    for file in sorted([*SKILLS.glob("experts/*/*"), *SKILLS.glob("problems/*/naive*")]):
        if (file.suffix == ".cu") != (surface == "cuda") or file.suffix not in (".cu", ".py") or (file.suffix == ".py" and surface not in file.name):
            continue
        bound = [b for b in sorted(SKILLS.glob("bindings/*.toml")) if _is_of(b, file)]
        found += [Source(surface, file, str(tomllib.loads(b.read_text()).get("kernel", "")), b) for b in bound] or [Source(surface, file, "", None)]
    return tuple(found)


def _is_of(binding: Path, file: Path) -> bool:
    kernel = str(tomllib.loads(binding.read_text()).get("kernel", ""))
    return bool(kernel) and re.search(rf"\b{re.escape(kernel.partition('<')[0])}\s*\(", file.read_text()) is not None


def mutilated(text: str, random_: random.Random) -> str:
    """The text with one to three of its tokens lost, doubled, exchanged or replaced."""
    tokens: list[str] = _TOKEN.findall(text)
    words = [k for k, t in enumerate(tokens) if not t.isspace()]
    for _ in range(random_.choice((1, 1, 1, 2, 3))):
        k, other = random_.choice(words), random_.choice(words)
        match random_.choice(("lose", "double", "exchange", "replace", "replace", "number", "line")):
            case "lose":
                tokens[k] = ""
            case "double":
                tokens[k] += " " + tokens[k]
            case "exchange":
                tokens[k], tokens[other] = tokens[other], tokens[k]
            case "replace":
                tokens[k] = tokens[other]
            case "number":
                numbers = [i for i in words if tokens[i][:1].isdigit()] or [k]
                tokens[random_.choice(numbers)] = random_.choice(NUMBERS)
            case _:
                lines = "".join(tokens).split("\n")
                del lines[random_.randrange(len(lines))]
                return "\n".join(lines)
    return "".join(tokens)


def attempts(surface: str, count: int, seed: int = 0) -> Iterator[tuple[Source, str]]:
    """So many mutilated texts of a surface, the same at each call."""
    known = sources(surface)
    for k in range(count):
        source = known[k % len(known)]
        yield source, mutilated(source.file.read_text(), random.Random(f"{surface} {seed} {k}"))


def fault(source: Source, text: str, folder: Path) -> str:
    """What is wrong with what `kir parse` says of a text: nothing where that is a program or a refusal."""
    file = folder / source.file.name
    file.write_text(text)
    name = f"{file}::{source.kernel}" if source.kernel else str(file)
    words = ["parse", name, *(["--bind", str(source.binding), "--normal"] if source.binding is not None else [])]
    said, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(errors):
        code = run([*words, "--json"])
    shown = said.getvalue() + errors.getvalue()
    inner = re.search(r"KIR-C003[^\n]*", shown)
    if inner is None and "Traceback" not in shown and code in (0, 1, 2):
        return ""
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(errors):
        run([*words, "--debug"])
    frames = re.findall(r'File "([^"]+)", line (\d+)', errors.getvalue())
    kinds = re.findall(r"^(\w+(?:Error|Exception|Late)\b[^\n]*)", errors.getvalue(), re.MULTILINE)
    where = "/".join(Path(frames[-1][0]).parts[-2:]) + f":{frames[-1][1]}" if frames else "?"
    return f"{(kinds or ['?'])[-1][:160]} ({where})"


def main() -> int:
    """The command."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--count", type=int, default=500)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--surface", nargs="*", default=SURFACES)
    arguments.add_argument("--keep", type=Path, help="a folder for the texts that show a fault")
    given = arguments.parse_args()
    bad = 0
    for surface in given.surface:
        def shown(attempt: tuple[int, tuple[Source, str]], wrong: str, surface: str = surface) -> None:
            k, (source, text) = attempt
            print(f"{surface} {k}, {source.file.name} {source.kernel}: {wrong}", flush=True)
            if given.keep is not None:
                given.keep.mkdir(exist_ok=True)
                (given.keep / f"{surface}_{k}{source.file.suffix}").write_text(text)
        with tempfile.TemporaryDirectory() as folder:
            def judged(attempt: tuple[int, tuple[Source, str]], at: Path = Path(folder)) -> str:
                return fault(*attempt[1], at)
            count, found = faults(enumerate(attempts(surface, given.count, given.seed)), judged, shown, SECONDS, MEGABYTES)
        bad += sum(found.values())
        print(f"{surface}: {count} texts of {len(sources(surface))} kernels, {sum(found.values())} faults, {len(found)} kinds", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
