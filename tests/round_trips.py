"""Law 5a: what a backend writes, its frontend reads back as the same program, whatever the local names."""
from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from kir.analysis.normal.normal_form import normalize
from kir.analysis.normal.regions import raised
from kir.ir import nodes as n
from kir.ir.binding import Binding
from kir.ir.bindings.specialize import specialize
from kir.ir.canonical import alpha_equal, bound_names, rename
from kir.ir.printer import program_text
from kir.surface import Emitted, backend, frontend
from tests.programs import from_source


@dataclass(frozen=True)
class RoundTrip:
    """A surface there and back: other names for the local ones of a program, and how what its backend emits is read in a folder."""

    surface: str
    other_name: Callable[[random.Random, int], str]
    read: Callable[[Emitted, Path], n.Program]

    def fuzzed(self, p: n.Program, seed: int) -> n.Program:
        """The program with other local names, some of them awkward in the surface's language."""
        words = random.Random(seed)

        def other(k: n.Kernel) -> n.Kernel:
            old = [*(a.name for a in k.grid), *bound_names(k.body)]
            fresh = [self.other_name(words, i) for i in range(len(old))]
            return rename(k, dict(zip(old, fresh, strict=True)))

        return replace(p, kernels=tuple(map(other, p.kernels)))

    def read_back(self, p: n.Program, folder: Path) -> n.Program:
        """The one kernel of a program, written, read, bound and brought to normal form."""
        made = self.read(backend(self.surface).emit(p), folder)
        return replace(made, name=p.name, kernels=tuple(replace(k, name=old.name) for k, old in zip(made.kernels, p.kernels, strict=True)))

    def is_read_back(self, p: n.Program, folder: Path, seed: int) -> None:
        """The law, for a program in the form in which it is read."""
        again = self.read_back(self.fuzzed(p, seed), folder)
        assert alpha_equal(again, p), f"{program_text(p)}\n{program_text(again)}"

    def holds(self, p: n.Program, folder: Path, seed: int = 0) -> None:
        """The law, for any one program."""
        self.is_read_back(normalize(p), folder, seed)


CPP = ("threadIdx", "half", "x", "acc_1", "smem", "float4", "total", "mask", "load", "tile", "k1", "class_", "t", "row", "copy_async", "v", "e", "m", "at")
PYTHON = ("lambda", "T", "tilelang", "x", "_", "acc_1", "range", "Tensor", "None_", "total", "max", "class", "k1", "Parallel")
TL = ("lambda", "tl", "x", "_", "acc_1", "pid", "range", "offs_m", "None_", "total", "mask", "arange", "load", "M_", "k1", "class")


def _in_cpp(words: random.Random, i: int) -> str:
    return f"{words.choice(CPP)}_{i}{words.choice(('', '_'))}"  # `v_7_` is what the writer itself makes


def _in_python(pool: tuple[str, ...]) -> Callable[[random.Random, int], str]:
    return lambda words, i: f"{words.choice(pool)}{i if words.random() < 0.9 else ''}_{i}"


def _read_cuda(emitted: Emitted, folder: Path) -> n.Program:
    """Without comments."""
    (folder / "emitted.cu").write_text(re.sub(r"//[^\n]*", "", emitted.text))
    ((function, text),) = emitted.bindings
    binding = Binding.parse(text)
    assert Binding.parse(binding.text()) == binding
    read = frontend("cuda").instantiate(folder / "emitted.cu", function, binding)  # type: ignore[attr-defined]  # beyond the protocol
    return raised(specialize(read, binding))


def _read_tilelang(emitted: Emitted, folder: Path) -> n.Program:
    ((function, binding),) = emitted.bindings
    return from_source(folder, "emitted.py", emitted.text, function, binding)


def _read_triton(emitted: Emitted, folder: Path) -> n.Program:
    (folder / "emitted.py").write_text(emitted.text)
    ((function, binding),) = emitted.bindings
    return raised(specialize(frontend("triton").parse(folder / "emitted.py", function), Binding.parse(binding)))


CUDA = RoundTrip("cuda", _in_cpp, _read_cuda)
TILELANG = RoundTrip("tilelang", _in_python(PYTHON), _read_tilelang)
TRITON = RoundTrip("triton", _in_python(TL), _read_triton)
ROUND_TRIPS = {each.surface: each for each in (CUDA, TILELANG, TRITON)}
