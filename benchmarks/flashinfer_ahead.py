"""Compile the kernels of FlashInfer that the panel and the workloads time, without a GPU: ``python -m benchmarks.flashinfer_ahead DIR``.

Of attention only what they call is compiled, sequences one after the other with the causal mask or none; other kernels refuse to run.
DIR gets the package ``flashinfer_jit_cache``, where FlashInfer looks for modules that need no compiling. The objects speak TVM's own
binary interface: neither Python's version nor torch's matters, only that of FlashInfer and of CUDA.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ARCHITECTURE = "9.0a"
HEADS, DTYPES = (64, 128), ("float16",)
UNUSED, INSTANCE, LINES = re.compile(r"_paged_|_mask_[23]"), re.compile(r"(?s)^template( cudaError_t .*?);", re.MULTILINE), re.compile(r"(?m)^#include .*$")
"""Sources of kernels that nothing calls, what asks for such a kernel in them, and what they include: each would take minutes to compile."""
PACKAGE = '''"""Modules of FlashInfer {version}, compiled ahead for {architecture}."""
from pathlib import Path

__version__ = "{version}"


def get_jit_cache_dir() -> Path:
    """The folder of compiled modules."""
    return Path(__file__).parent / "jit_cache"
'''


def main(words: list[str]) -> int:
    """Compile into the folder named; 2 for wrong words, 1 where FlashInfer or a compiler is lacking."""
    if len(words) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    package = Path(words[0]) / "flashinfer_jit_cache"
    with tempfile.TemporaryDirectory(prefix="flashinfer-ahead-") as place:
        os.environ.update(FLASHINFER_WORKSPACE_BASE=place, FLASHINFER_CUDA_ARCH_LIST=ARCHITECTURE)
        os.environ["LIBRARY_PATH"] = os.pathsep.join(filter(None, [_stub(Path(place)), os.environ.get("LIBRARY_PATH", "")]))
        import torch
        from flashinfer.jit.attention.modules import gen_batch_prefill_module
        from flashinfer.jit.topk import gen_topk_module
        from flashinfer.version import __version__ as version

        specs = [gen_topk_module()]
        for head in HEADS:
            for dtype in (getattr(torch, name) for name in DTYPES):
                specs.append(gen_batch_prefill_module("fa3", dtype, dtype, dtype, torch.int32, head, head, 0, False, False, False))
        for spec in specs:
            _leave_out(sorted(map(Path, spec.sources)))
        with ThreadPoolExecutor() as pool:
            [*pool.map(lambda spec: spec.build(verbose=True), specs)]
        for spec in specs:
            kept = package / "jit_cache" / spec.name / f"{spec.name}.so"
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(spec.jit_library_path, kept)
            print(kept, kept.stat().st_size >> 20, "MiB", flush=True)
    (package / "__init__.py").write_text(PACKAGE.format(version=version, architecture=ARCHITECTURE))
    return 0


def _leave_out(sources: list[Path]) -> None:
    """Make the sources of kernels that nothing calls empty; the last of the others says that they are none, so that all has a name to link with."""
    unused = [x for x in sources if UNUSED.search(x.name)]
    said = "".join(INSTANCE.sub(r"template <>\1 { return cudaErrorNotSupported; }", LINES.sub("", x.read_text())) for x in unused)
    for each in unused:
        each.write_text("")
    if unused:
        last = next(x for x in reversed(sources) if "_mask_" in x.name and x not in unused)
        last.write_text(f"{last.read_text()}\n{said}")


def _stub(place: Path) -> str:
    """A folder with an empty libcuda to link against: the real one is the driver's."""
    subprocess.run(["gcc", "-shared", "-o", str(place / "libcuda.so"), "-Wl,-soname,libcuda.so.1", "-x", "c", os.devnull], check=True)
    return str(place)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
