"""What a GPU host has, and where the time of a gate goes on it: each question a process of its own, so that none harms another."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.gpu_parts.session import ROOT, Row, Session
from kir.base.store import write_atomic
from kir.gate.gpu.standby import TOOLS, Standby, sanitizer

SECONDS = 120
IMPORTS = ("numpy", "pycuda.driver", "torch", "triton", "tilelang", "fla", "flash_qla", "flashinfer", "flashinfer_jit_cache", "tvm_ffi", "pynvml",
           "tabulate", "einops", "click", "requests", "tqdm", "cuda.bindings", "nvidia_cutlass_dsl", "cudnn")
BARE = "import sys; sys.path[:] = {roots!r}; "
DRIVER = """
import time; t = time.perf_counter()
from kir.hardware.device.libcuda import Libcuda
import ctypes; from ctypes import byref, c_int, c_uint, c_void_p
d = Libcuda(); a = time.perf_counter(); x = c_void_p(); h = c_int()
d("cuInit", c_uint(0)); d("cuDeviceGet", byref(h), c_int(0)); d("cuDevicePrimaryCtxRetain", byref(x), h); d("cuCtxSetCurrent", x)
b = time.perf_counter(); d.function(open({harness!r}, 'rb').read(), "kir_nothing", 0, ()); c = time.perf_counter()
print(f"import {{a - t:.3f}} s, open {{b - a:.3f}} s, load the harness {{c - b:.3f}} s")
"""
PYCUDA = """
import time; t = time.perf_counter()
import pycuda, pycuda.driver as c
a = time.perf_counter(); c.init(); x = c.Device(0).retain_primary_context(); x.push(); s = c.Stream(1); b = time.perf_counter()
m = c.module_from_buffer(open({harness!r}, 'rb').read()); f = m.get_function("kir_nothing"); f.prepare(""); e = time.perf_counter()
start, stop = c.Event(), c.Event()
f.prepared_async_call((1, 1), (32, 1, 1), s); s.synchronize(); begun = time.perf_counter()
for _ in range(1000): f.prepared_async_call((1, 1), (32, 1, 1), s)
per = (time.perf_counter() - begun) / 1000; s.synchronize()
start.record(s); f.prepared_async_call((1, 1), (32, 1, 1), s); stop.record(s); stop.synchronize()
p = c.mem_alloc(1 << 20); c.memset_d8_async(int(p), 7, 1 << 20, s); out = bytearray(1 << 20); c.memcpy_dtoh_async(out, int(p), s); s.synchronize()
d = f.prepare("PPi"); x.pop()
print(f"pycuda {{pycuda.VERSION_TEXT}}: import {{a - t:.3f}} s, open {{b - a:.3f}} s, load {{e - b:.3f}} s, a launch {{per * 1e6:.2f}} us, "
      f"event {{stop.time_since(start) * 1e3:.2f}} us, bytes right {{set(out) == {{7}}}}; stream handle {{s.handle}}; "
      f"Function {{[n for n in dir(f) if not n.startswith('__')]}}; Module {{[n for n in dir(m) if not n.startswith('__')]}}; "
      f"Event {{[n for n in dir(start) if not n.startswith('__')]}}; Context {{[n for n in dir(x) if not n.startswith('__')]}}; "
      f"driver {{[n for n in dir(c) if 'set_limit' in n or 'limit' in n or 'attribute' in n or 'Tensor' in n or 'raph' in n or 'launch' in n.lower()]}}")
"""


def probe(s: Session) -> None:
    """What is installed, what imports, and how long the pieces of a gate take here."""
    s.table("probe", "What this host has", ("question", "answer", "seconds"), _rows(s))


def _rows(s: Session) -> Iterator[Row]:
    roots = list(dict.fromkeys([str(ROOT), *(p for p in sys.path if p)]))
    with tempfile.TemporaryDirectory() as place:
        harness = Path(place) / "harness.cubin"
        write_atomic(harness, s.gpu.harness)
        yield _python("open the device by libcuda", roots, DRIVER.format(harness=str(harness)))
        yield _python("open the device by libcuda, again", roots, DRIVER.format(harness=str(harness)))
        yield _python("open the device by pycuda", roots, PYCUDA.format(harness=str(harness)))
    for name in IMPORTS:
        yield _python(f"import {name}", roots, f"import importlib; m = importlib.import_module({name!r}); print(getattr(m, '__version__', ''), m.__file__)")
    yield _python("modules of FlashInfer built ahead", roots,
                  "import flashinfer.jit.env as e; print(e.FLASHINFER_AOT_DIR, [p.name for p in e.FLASHINFER_AOT_DIR.glob('*/*.so')])")
    for command in (["ninja", "--version"], ["nvcc", "--version"], ["nvidia-smi", "-L"], ["nproc"], ["free", "-g"], ["df", "-h", "/tmp"]):
        yield _program(" ".join(command), command)
    tool = sanitizer()
    for name in TOOLS if tool is not None else ():
        assert tool is not None
        begun = time.perf_counter()
        one = Standby.started(tool, name, s.gpu.number)
        up = one.up.wait(30) and one.ready
        took = time.perf_counter() - begun
        said = f"up: {up}; {''.join(one.said)[-300:]}"
        one.close()
        yield f"start {name} around a process that opens the device", said, f"{took:.2f}"
    yield from _compiling(s)


def _compiling(s: Session) -> Iterator[Row]:
    """The steps of compiling one GEMM, each alone."""
    from kir.hardware.machine import binary_tool, toolkit
    from kir.ir.parser import parse_program
    from kir.surface import backend

    kit = toolkit()
    if kit is None:
        return
    path = ROOT / "skills" / "experts" / "gemm" / "gemm_sm80_lanes.kir"
    program = parse_program(path.read_text(), str(path))
    begun = time.perf_counter()
    text = backend("cuda").emit(program).text
    yield "write CUDA", "", f"{time.perf_counter() - begun:.2f}"
    name = s.gpu.target.architecture.name
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "a.cu").write_text(text)
        objdump, disasm = binary_tool("cuobjdump"), binary_tool("nvdisasm")
        steps = [[str(kit.nvcc.path), "-ptx", f"-arch={name}", "-std=c++17", "-O3", "a.cu", "-o", "a.ptx", "--time", "a.csv"],
                 [str(kit.root / "bin" / "ptxas"), "-v", "-O3", f"-arch={name}", "a.ptx", "-o", "a.cubin"],
                 *([[str(objdump.path), "--dump-resource-usage", "a.cubin"]] if objdump else []), *([[str(disasm.path), "-c", "a.cubin"]] if disasm else [])]
        for step in steps:
            question, answer, took = _program(Path(step[0]).name, step, place)
            yield question, str(answer)[:120], took
        with_times = Path(place) / "a.csv"
        yield "nvcc's own times", with_times.read_text() if with_times.is_file() else "", ""


def _python(question: str, roots: list[str], code: str) -> Row:
    return _program(question, [sys.executable, "-I", "-S", "-B", "-c", BARE.format(roots=roots) + code])


def _program(question: str, command: list[str], place: str | None = None) -> Row:
    begun = time.perf_counter()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False, cwd=place)
        said = done.stdout.strip() if done.returncode == 0 else f"FAILED: {(done.stderr or done.stdout).strip().splitlines()[-1:]}"
    except (OSError, subprocess.TimeoutExpired) as fault:
        said = f"FAILED: {fault}"
    return question, json.dumps(said)[1:-1][:3000], f"{time.perf_counter() - begun:.2f}"
