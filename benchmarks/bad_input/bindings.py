"""Bindings with one value corrupted by rule: each is refused at its line, or makes another program; none is an internal error or ignored in silence.

    python -m benchmarks.bad_input.bindings [--count 2500] [--seed 0] [--show]

takes the bindings of skills/bindings and those of the kernels in tests/laws, corrupts one value of one at random, reads the kernel under it, and prints
how often each rule ended how. It writes nothing. The exit code is 1 where an outcome is one that may not be; `--show` prints those.
"""
from __future__ import annotations

import argparse
import random
import re
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kir.base.diagnostic import KirError
from kir.hardware import machine
from kir.ir.grammar.toml_places import Span, Steps, places

ROOT = Path(__file__).parents[2]
AT_ITS_LINE, AT_THE_KERNEL, ELSEWHERE, NOWHERE = "refused at its line", "refused at the kernel's line", "refused at another line", "refused without a place"
ANOTHER, SAME, INTERNAL = "another program", "the same program", "internal error"
OUTCOMES = (AT_ITS_LINE, AT_THE_KERNEL, ELSEWHERE, NOWHERE, ANOTHER, SAME, INTERNAL)


@dataclass(frozen=True)
class Instance:
    """A kernel (FILE::KERNEL) and the text of a binding of it."""

    name: str
    place: str
    text: str


@dataclass(frozen=True)
class Corruption:
    """A binding's text with one value changed by a rule; `line` is where, 0 where the line is gone. `steps` is which value it was."""

    rule: str
    steps: Steps
    text: str
    line: int


def instances(folder: Path) -> list[Instance]:
    """All that there are here: of packages that are not installed, none. Sources of the tests' kernels are written into `folder`."""
    return [*shipped(), *of_tests(folder)]


def shipped() -> list[Instance]:
    """The bindings of skills/bindings, each with its kernel."""
    zoo = tomllib.loads((ROOT / "tests" / "zoo.toml").read_text(encoding="utf-8"))
    known = {Path(row["binding"]).name: f"{row['file']}::{row['kernel']}" for row in zoo.values() if "binding" in row}
    out: list[Instance] = []
    for path in sorted((ROOT / "skills" / "bindings").glob("*.toml")):
        text = path.read_text(encoding="utf-8")
        place = known.get(path.name) or _place(path, text)
        package = place.partition(":")[0]
        if place and ("/" in package or machine.package_folder(package) is not None):
            file = place if "/" not in package else str(ROOT / place)
            out.append(Instance(path.stem, file, text))
    return out


def _place(path: Path, text: str) -> str:
    """Where the kernel of a binding is that the zoo does not name: in the package of its first line, beside its problem, or among the experts."""
    kernel, problem = (str(tomllib.loads(text).get(key, "")) for key in ("kernel", "problem"))
    if named := re.match(r"# (\w+:\S+::\w+)\n", text):
        return named[1]
    surface = next((s for s in ("cuda", "tilelang", "triton") if s in path.stem), "cuda")
    names = {"cuda": "*.cu", "tilelang": "*tilelang.py", "triton": "*triton.py"}
    for folder in (ROOT / "skills" / "problems" / problem, ROOT / "skills" / "experts" / problem):
        for file in sorted(folder.glob(names[surface])):
            if re.search(rf"\b{kernel}\b", file.read_text(encoding="utf-8")):
                return f"{file.relative_to(ROOT)}::{kernel}"
    return ""


def of_tests(folder: Path) -> list[Instance]:
    """The kernels of tests/laws that have a binding each."""
    from tests.laws.surfaces import test_cross_surface, test_cross_surface_regressions

    out: list[Instance] = []
    for module in (test_cross_surface_regressions, test_cross_surface):
        for name, kernel in module.KERNELS.items():
            file = folder / f"{len(out)}_{re.sub(r'[^a-z]+', '_', name)}.{kernel.suffix}"
            file.write_text(test_cross_surface.HEADS[kernel.suffix] + kernel.source, encoding="utf-8")
            out.append(Instance(name, str(file), kernel.binding.text()))
    return out


# ------------------------------------------------------------------------------------------------------------------ corruptions
def corruptions(text: str, chosen: random.Random) -> Iterator[Corruption]:
    """Corruptions of a binding, one after another without end."""
    found = places(text)
    held = tomllib.loads(text)
    leaves = [(steps, span, value) for steps, span in found.items() if not isinstance(value := _at(held, steps), (dict, list))]
    while True:
        rule = chosen.choice(list(RULES))
        fitting = [leaf for leaf in leaves if RULES[rule][0](leaf[0], leaf[2])]
        if not fitting:
            continue
        steps, span, value = chosen.choice(fitting)
        made = RULES[rule][1](text, steps, span, value, chosen)
        if made is not None:
            yield Corruption(rule, steps, *made)


def _at(held: Any, steps: Steps) -> Any:
    for step in steps:
        held = held[step]
    return held


Made = tuple[str, int] | None
Rule = Callable[[str, Steps, Span, Any, random.Random], Made]


def _line(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


def _value(made: Callable[[Any], str]) -> Rule:
    """Another value in the place of the old one."""
    def rule(text: str, steps: Steps, span: Span, value: Any, chosen: random.Random) -> Made:
        return f"{text[:span.value[0]]}{made(value)}{text[span.value[1]:]}", _line(text, span.value[0])
    return rule


def _misspelt(word: str, chosen: random.Random) -> str:
    """A word of a text with a letter more, less, or two in the other order."""
    m = chosen.choice(list(re.finditer(r"[A-Za-z_]\w*", word)) or list(re.finditer(r".+", word)))
    i = chosen.randrange(len(m[0])) if m[0] else 0
    made = chosen.choice([m[0][:i] + m[0][i:i + 1] * 2 + m[0][i + 1:], m[0][:i] + "q" + m[0][i:], m[0][:i] + m[0][i + 1:] if len(m[0]) > 2 else m[0] + "q"])
    return word[:m.start()] + made + word[m.end():]


def _misspelt_text(text: str, steps: Steps, span: Span, value: Any, chosen: random.Random) -> Made:
    made = _misspelt(value, chosen)
    return None if made == value else (f'{text[:span.value[0]]}"{made}"{text[span.value[1]:]}', _line(text, span.value[0]))


def _misspelt_key(text: str, steps: Steps, span: Span, value: Any, chosen: random.Random) -> Made:
    if isinstance(steps[-1], int):
        return None
    made = _misspelt(str(steps[-1]), chosen)
    return None if made == steps[-1] else (f"{text[:span.key[0]]}{made}{text[span.key[1]:]}", _line(text, span.key[0]))


def _removed(text: str, steps: Steps, span: Span, value: Any, chosen: random.Random) -> Made:
    if isinstance(steps[-1], int):
        after = re.compile(r"\s*,\s*").match(text, span.value[1])
        return text[:span.value[0]] + text[after.end() if after else span.value[1]:], 0
    return _without_line(text, span.key[0]), 0


def _without_line(text: str, offset: int) -> str:
    begun = text.rfind("\n", 0, offset) + 1
    end = text.find("\n", offset)
    return text[:begun] + (text[end + 1:] if end >= 0 else "")


def _twice(text: str, steps: Steps, span: Span, value: Any, chosen: random.Random) -> Made:
    own = text[span.value[0]:span.value[1]]
    if isinstance(steps[-1], int):
        return f"{text[:span.value[1]]}, {own}{text[span.value[1]:]}", _line(text, span.value[0])
    end = text.find("\n", span.value[1])
    end = len(text) if end < 0 else end
    return f"{text[:end]}\n{steps[-1]} = {own}{text[end:]}", _line(text, span.key[0]) + 1


def _unknown(text: str, steps: Steps, span: Span, value: Any, chosen: random.Random) -> Made:
    if any(isinstance(step, int) for step in steps):
        return None
    end = text.find("\n", span.value[1])
    end = len(text) if end < 0 else end
    name, own = chosen.choice(["zz_unknown", "Block", "num_warp", "size"]), chosen.choice(["3", '"N"', "true", "[1]"])
    return f"{text[:end]}\n{name} = {own}{text[end:]}", _line(text, span.key[0]) + 1


def _number(steps: Steps, value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _whole(steps: Steps, value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _any(steps: Steps, value: Any) -> bool:
    return True


RULES: dict[str, tuple[Callable[[Steps, Any], bool], Rule]] = {
    "a text for another type": (lambda steps, value: not isinstance(value, str), _value(lambda value: '"abc"')),
    "a bool for another type": (lambda steps, value: not isinstance(value, bool), _value(lambda value: "true")),
    "a number for a text": (lambda steps, value: isinstance(value, str), _value(lambda value: "7")),
    "a number for a bool": (lambda steps, value: isinstance(value, bool), _value(lambda value: "7")),
    "a list": (_any, _value(lambda value: "[1, 2]")),
    "a fraction": (_whole, _value(lambda value: f"{value + 0.5}")),
    "not a number": (_number, _value(lambda value: "nan")),
    "another sign": (_number, _value(lambda value: f"{-value if value else -1}")),
    "zero": (_number, _value(lambda value: "0" if value else "-1")),
    "huge": (_number, _value(lambda value: f"{2**40}")),
    "beyond 64 bits": (_whole, _value(lambda value: f"{2**70}")),
    "twice as much": (_whole, _value(lambda value: f"{2 * value or 1}")),
    "one more": (_whole, _value(lambda value: f"{value + 1}")),
    "a misspelt text": (lambda steps, value: isinstance(value, str) and bool(value), _misspelt_text),
    "a misspelt key": (_any, _misspelt_key),
    "an unknown key": (_any, _unknown),
    "removed": (_any, _removed),
    "said twice": (_any, _twice),
}
REFUSED = {"a text for another type", "a bool for another type", "a number for a bool", "a list", "not a number", "beyond 64 bits", "a misspelt key",
           "an unknown key"}
"""Rules that never leave a binding that says something."""


# -------------------------------------------------------------------------------------------------------------------- judgement
def program_of(place: str, binding: Path) -> str:
    """The hash of the program that a kernel is under a binding, verified. Raises what reading, specializing and verifying raise."""
    from kir.analysis.heuristics import settled
    from kir.ir.bindings.specialize import specialize
    from kir.ir.canonical import content_hash
    from kir.ir.rules.verify import check
    from kir.surface.reading import read_binding, read_generic

    generic = read_generic(place, binding)[0]
    made = specialize(generic, settled(read_binding(binding)))
    check(made)
    return str(content_hash(made))


def outcome(instance: Instance, corruption: Corruption, base: str, folder: Path) -> tuple[str, str]:
    """How a corrupted binding ended, and in what words."""
    path = folder / "binding.toml"
    path.write_text(corruption.text, encoding="utf-8")
    try:
        made = program_of(instance.place, path)
    except KirError as bad:
        here = [d for d in bad.diagnostics if d.origin is not None and d.origin.file == str(path) and d.origin.line == corruption.line]
        first = (*here, *bad.diagnostics)[0]
        if first.origin is None:
            return NOWHERE, str(first)
        if first.origin.file != str(path):
            return AT_THE_KERNEL, str(first)
        return AT_ITS_LINE if corruption.line in (0, first.origin.line) else ELSEWHERE, str(first)
    except Exception as bad:  # what must never be
        return INTERNAL, f"{type(bad).__name__}: {bad}"
    return (SAME if made == base else ANOTHER), ""


def allowed(corruption: Corruption, ended: str) -> bool:
    """Whether a corruption may end so."""
    rule, steps = corruption.rule, corruption.steps
    if ended in (INTERNAL, NOWHERE, ELSEWHERE):
        return ended == ELSEWHERE and rule in ("twice as much", "one more")  # it fits its own use, and contradicts another value
    if ended == AT_ITS_LINE:
        return True
    if ended == AT_THE_KERNEL:
        return rule not in REFUSED and rule != "a misspelt text"
    if ended == ANOTHER:
        return rule not in REFUSED and not (rule == "a number for a text" and steps[0] not in ("grid", "scalars", "tensors"))
    return rule == "removed" or steps in HINTS


HINTS: tuple[Steps, ...] = (("options", "num_stages"), ("metas", "STAGES"), ("metas", "shared_bytes"))
"""Values that no program holds where its loops have nothing to pipeline, and (0 and 1 stages) where the launch says how many there are: advice to a
compiler. A launch may have more shared memory than the kernel's arrays take."""


def run(found: list[Instance], count: int, seed: int, folder: Path) -> Iterator[tuple[Instance, Corruption, str, str]]:
    """Corruptions of bindings, in turn, each with how it ended."""
    chosen = random.Random(seed)
    base: dict[str, str] = {}
    path = folder / "binding.toml"
    streams = []
    for instance in found:
        path.write_text(instance.text, encoding="utf-8")
        base[instance.name] = program_of(instance.place, path)
        streams.append((instance, corruptions(instance.text, random.Random(chosen.random()))))
    for k in range(count):
        instance, stream = streams[k % len(streams)]
        corruption = next(stream)
        yield instance, corruption, *outcome(instance, corruption, base[instance.name], folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", action="store_true", help="print the outcomes that may not be")
    given = parser.parse_args()
    table: Counter[tuple[str, str]] = Counter()
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="kir-bindings-") as name:
        folder = Path(name)
        found = instances(folder)
        for instance, corruption, ended, words in run(found, given.count, given.seed, folder):
            table[corruption.rule, ended] += 1
            if not allowed(corruption, ended):
                wrong += 1
                if given.show:
                    print(f"{instance.name}: {corruption.rule} at {'.'.join(map(str, corruption.steps))}: {ended}\n{words}\n", flush=True)
    print(f"{sum(table.values())} corruptions of {len(found)} bindings, {wrong} that ended as none may\n")
    print(f"| {'rule':<24} | {' | '.join(OUTCOMES)} |")
    for rule in RULES:
        print(f"| {rule:<24} | {' | '.join(f'{table[rule, each]:>{len(each)}}' for each in OUTCOMES)} |")
    print(f"| {'all':<24} | {' | '.join(f'{sum(table[rule, each] for rule in RULES):>{len(each)}}' for each in OUTCOMES)} |")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
