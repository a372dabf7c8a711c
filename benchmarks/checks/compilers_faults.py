"""Barriers that compilers lost: what `kir check` says of the text that a release made of a right kernel.

`python -m benchmarks.checks.compilers_faults [--write]` checks each text of `benchmarks/data/compilers`, and writes docs/tables/compilers-faults.md. `--make`
makes the texts, of `kernels.py` there, with the TileLang that is installed (no GPU is needed). Exit code 1 where a text is not judged as its row says.
"""
from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

from kir.base.dataclass import dataclass
from kir.gate.proved import Proved, proved
from kir.surface.reading import binding_of, load_expert

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks" / "data" / "compilers"
PAGE = ROOT / "docs" / "tables" / "compilers-faults.md"
TRACKER = "https://github.com/tile-ai/tilelang/issues/"


@dataclass(frozen=True)
class Text:
    """What a release made of a kernel: the kind of hazard that it has ("" where it is right), and the tracker's number of the fault."""

    kernel: str
    release: str
    kind: str
    issue: int

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.kernel}-{self.release}.cu"

    @property
    def binding(self) -> Path:
        return FOLDER / f"{self.kernel}.toml"


TEXTS = (
    Text("guarded", "0.1.7.post3", "race", 2556), Text("guarded", "0.1.15", "", 2556),
    Text("updated", "0.1.7.post3", "race", 1257), Text("updated", "0.1.15", "", 1257),
    Text("otherwise", "0.1.11", "race", 3042),
    Text("strided", "0.1.7.post3", "barrier", 1106), Text("strided", "0.1.11", "race", 2612), Text("strided", "0.1.15", "race", 2612),
    Text("masked", "0.1.7.post3", "barrier", 1106), Text("masked", "0.1.11", "race", 2612), Text("masked", "0.1.15", "race", 2612),
)
WORDS = {"": "proved for all sizes", "race": "a barrier is missing: a race", "barrier": "a barrier that not all threads reach"}


def judged(text: Text, path: Path | None = None) -> Proved:
    """What `kir check` says of it, or of another text in its place."""
    at = str(path or text.path)
    read = load_expert(at, binding_of(at, text.binding, ""))
    return proved(read.program, unsaid=read.unsaid)


def as_said(text: Text, done: Proved) -> bool:
    """Whether the verdict is that of its row: a counterexample of its kind that a run showed, or everything proved."""
    return done.status(text.kind) == "refuted" if text.kind else done.verdict == "proved"  # type: ignore[arg-type]  # kinds by name


def page(rows: list[tuple[Text, Proved]]) -> Iterator[str]:
    """The generated page."""
    yield "# Faults of compilers\n\nMade by `python -m benchmarks.checks.compilers_faults --write`: each kernel of `benchmarks/data/compilers/kernels.py` is"
    yield "right as it is written. The CUDA text that a release of TileLang made of it (`--make`, with that release installed) lies beside it, and is"
    yield "read and checked as any other source; no GPU is needed. A counterexample is one that a run showed. Where a later release makes a right"
    yield "text, that is proved.\n"
    yield "| kernel | release | fault | what `kir check` finds | statement | the command |\n| --- | --- | --- | --- | --- | --- |"
    for text, done in rows:
        found = next((f for f in done.findings if f.kind == text.kind and f.status == "refuted"), None)
        where = f"`{found.anchor}`: {found.shown or found.what}" if found is not None else ""
        yield (f"| `{text.kernel}` | {text.release} | [{text.issue}]({TRACKER}{text.issue}){'' if text.kind else ', mended'} | {WORDS[text.kind]} | {where} | "
               f"`kir check {text.path.relative_to(ROOT)} --bind {text.binding.relative_to(ROOT)}` |")
    wrong = [t for t, _ in rows if t.kind]
    yield f"\n{len(wrong)} texts with a fault, {len({t.issue for t in wrong})} faults of the tracker, {len(rows) - len(wrong)} right texts."


def made() -> None:
    """Writes what the TileLang that is installed makes of each kernel; a kernel that it refuses is left out."""
    import tilelang
    from tilelang import tvm
    from tilelang.engine.lower import lower

    spec = importlib.util.spec_from_file_location("kernels", FOLDER / "kernels.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_80"})
    for kernel in module.KERNELS:
        try:
            with target:
                text = lower(kernel(), target=target).kernel_source
        except Exception as refused:  # whatever it says, there is no text
            print(f"{kernel.__name__}: refused: {str(refused)[-200:]}")
            continue
        kept = [line.rstrip() for line in text.splitlines()]
        (FOLDER / f"{kernel.__name__}-{tilelang.__version__}.cu").write_text("\n".join(kept).strip() + "\n")


def main() -> int:
    """Check every text."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--make", action="store_true", help="make the texts of the TileLang that is installed, and no more")
    arguments.add_argument("--write", action="store_true", help="write docs/tables/compilers-faults.md")
    chosen = arguments.parse_args()
    if chosen.make:
        made()
        return 0
    rows = [(text, judged(text)) for text in TEXTS]
    for text, done in rows:
        print(f"{text.kernel} {text.release}: {done.verdict}{'' if as_said(text, done) else ', which is not what its row says'}")
    if chosen.write:
        PAGE.write_text("\n".join(page(rows)) + "\n")
    return 0 if all(as_said(text, done) for text, done in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
