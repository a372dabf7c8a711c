"""Emitted CUDA C++ compiled for the host, with threads for threads."""
from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np

from kir.interp import run
from kir.ir import nodes as n
from kir.ir.build import const, int_value
from kir.ir.types import DType
from kir.ir.visit import substitute
from kir.surface import Emitted, backend
from tests.backends.conftest import Arrays

HOST = Path(__file__).with_name("host_cuda.h")
COMPILER = ["g++", "-std=c++20", "-O1", "-w", "-pthread"]
EMULATED = ("copy_async", "copy_async_commit", "copy_async_wait", "load_matrix_2", "load_matrix_4", "load_matrix_2_trans",
            "load_matrix_4_trans", "mma_m16n8k16_f16", "shared_address")
PRODUCTS = ("mma_m16n8k16_f16_f16", "mma_m16n8k8_tf32", "mma_m16n8k32_i8", "mma_m16n8k32_u8")


def host_text(emitted: Emitted) -> str:
    """The emitted text without what the host defines itself: includes, and the functions that wrap PTX."""
    from kir.backends.cuda.output.emit import header
    text = re.sub(r"^#include .*$", "", emitted.text, flags=re.MULTILINE)
    for name in EMULATED + PRODUCTS:
        text = text.replace(header()[name][0].strip(), "")
    text = text.replace("extern __shared__ __align__(1024) unsigned char shared_pool[];",
                        "alignas(1024) static unsigned char shared_pool[1 << 18];")
    assert "asm" not in text
    return text


def launched(p: n.Program, folder: Path, arrays: Arrays, scalars: Mapping[str, int | float]) -> Arrays:
    """Compile for the host, run every kernel on the arrays, and read them back."""
    emitted = backend("cuda").emit(p)
    sizes = {q.name: const(scalars[q.name], q.of) for q in p.params if isinstance(q.of, DType) and q.name in scalars}
    main = []
    for name, value in arrays.items():
        (folder / f"{name}.bin").write_bytes(value.tobytes())
        main.append(f'  auto {name} = read("{name}.bin");')
    types = {"f16": "__half", "f32": "float", "i32": "int", "u32": "unsigned", "i8": "signed char", "u8": "unsigned char"}
    for e in emitted.entries:
        extents = [str(int_value(substitute(x, sizes))) for x in e.grid] + ["1"] * (3 - len(e.grid))
        args = [f"reinterpret_cast<{types[a.dtype]}*>({a.name}.data())" if a.kind == "pointer" else repr(scalars[a.name])
                for a in e.arguments]
        main.append(f"  launch({e.threads}, {', '.join(extents)}, [&] {{ {e.function}({', '.join(args)}); }});")
    main += [f'  write("{name}.bin", {name});' for name in arrays]
    source = f'''#include "host_cuda.h"
{host_text(emitted)}
static std::vector<char> read(const char* name) {{
  std::ifstream file(name, std::ios::binary);
  return std::vector<char>(std::istreambuf_iterator<char>(file), {{}});
}}
static void write(const char* name, const std::vector<char>& bytes) {{
  std::ofstream(name, std::ios::binary).write(bytes.data(), bytes.size());
}}
int main() {{
''' + "\n".join(main) + "\n}\n"
    (folder / "host.cpp").write_text(source)
    for command in ([*COMPILER, f"-I{_headers().name}", "host.cpp", "-o", "host"], ["./host"]):
        _called(command, folder)
    return {name: np.frombuffer((folder / f"{name}.bin").read_bytes(), v.dtype).reshape(v.shape) for name, v in arrays.items()}


@cache
def _headers() -> tempfile.TemporaryDirectory[str]:
    """A folder with the header, compiled once a process: most of a small program's compilation is reading the standard library."""
    folder = tempfile.TemporaryDirectory(prefix="kir-host-")
    (Path(folder.name) / HOST.name).write_text(f"#include <fstream>\n#include <iterator>\n{HOST.read_text()}")
    _called([*COMPILER, "-x", "c++-header", HOST.name, "-o", f"{HOST.name}.gch"], Path(folder.name))
    return folder


def _called(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[:3000]


def agrees(p: n.Program, folder: Path, arrays: Arrays, scalars: Mapping[str, int | float], tolerance: float) -> None:
    """What the host computes is what the interpreter does, within a part of the largest element."""
    expected = run(p, {k: v.copy() for k, v in arrays.items()}, scalars).outputs
    got = launched(p, folder, arrays, scalars)
    for name, exact in expected.items():
        a, b = got[name].astype(np.float64), exact.astype(np.float64)
        assert np.all(np.abs(a - b) <= tolerance * np.max(np.abs(b), initial=1e-30)), name
