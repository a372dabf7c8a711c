"""show what this machine has: compilers, optional packages, GPU, isolation

Everything optional may be absent: each line then says what it would add and the command that adds it.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Literal

import kir
from kir.base.dataclass import dataclass
from kir.base.registry import DISTRIBUTION
from kir.faces.cli._result import Result
from kir.hardware import machine

if TYPE_CHECKING:
    from rich.table import Table

ZOO = ("flag-gems", "liger-kernel", "fla-core", "tile-kernels", "flash-qla")
"""Third-party packages whose kernels are read as source text."""


@dataclass(frozen=True)
class Finding:
    """One row: ``what`` was looked for, whether it is ``there``, the ``detail``, and what to do when it is not."""

    what: str
    there: Literal["yes", "no"]
    detail: str
    remedy: str = ""


def command() -> Result:
    """Show what this machine has: compilers, optional packages, GPU, isolation."""
    findings = (*_base(), *_compilers(), *_packages(), *_gpu(), *_isolation())
    return Result({"findings": [asdict(each) for each in findings]}, _table(findings))


def _base() -> list[Finding]:
    about = machine.summary()
    installed = machine.package_version(DISTRIBUTION)
    return [
        Finding("kir", "yes", f"{kir.__version__}{'' if installed else ' (from a checkout, not installed)'}"),
        Finding("python", "yes", about["python"]),
        Finding("system", "yes", f"{about['system']}, {about['cores']} cores, {about['memory']}"),
    ]


def _compilers() -> list[Finding]:
    known = machine.toolkit()
    remedy = "install a CUDA toolkit: without it, CUDA output is printed and checked but not compiled"
    rows = [Finding("nvcc", "yes", f"{known.nvcc.version}  {known.nvcc.path}") if known else Finding("nvcc", "no", "", remedy)]
    for name in ("ptxas", "cuobjdump", "nvdisasm"):
        tool = machine.binary_tool(name)
        remedy = "comes with a CUDA toolkit, and with Triton's wheel"
        rows.append(Finding(name, "yes", f"{tool.version}  {tool.path}") if tool else Finding(name, "no", "", remedy))
    return rows


def _packages() -> list[Finding]:
    optional = {
        "triton": ("triton", "make full, or pip install triton==3.6.0: compiles Triton output"),
        "tilelang": ("tilelang", "make full, or pip install tilelang==0.1.15: compiles TileLang output"),
        "torch": ("torch", "make full; only Triton and TileLang use it"),
        "pycuda": ("pycuda", "pip install pycuda: runs CUDA output on a GPU"),
        "llvmlite": ("llvmlite", "pip install llvmlite, or the extra `fast`: compiles long loops of the interpreter, which NumPy runs until then"),
        "openai": ("openai", "make full, or the extra `llm`: asks models behind that protocol to fill holes"),
        "anthropic": ("anthropic", "make full, or the extra `llm`: asks models behind that protocol to fill holes"),
        "genai-prices": ("genai-prices", "make full, or the extra `llm`: what hosted models cost"),
    }
    rows = []
    for what, (distribution, remedy) in optional.items():
        version = machine.package_version(distribution)
        rows.append(Finding(what, "yes", version) if version else Finding(what, "no", "", remedy))
    for name in ZOO:
        version = machine.package_version(name)
        rows.append(Finding(name, "yes", version) if version else Finding(name, "no", "", f"pip install --no-deps {name}: kernels to read"))
    return rows


def _gpu() -> list[Finding]:
    found = machine.gpus()
    if not found:
        return [Finding("gpu", "no", "", "the GPU gate needs one; the CPU gate compiles, interprets and models instead")]
    return [
        Finding(f"gpu {each.index}", "yes", f"{each.name}, sm_{each.capability[0]}{each.capability[1]}, {each.memory / 2**30:.0f} GiB")
        for each in found
    ]


def _isolation() -> list[Finding]:
    from kir.hardware.confine import probed
    granted = machine.isolation()
    level = probed()
    nothing = "the gate runs candidates in processes of their own, and records that nothing else confines them"
    confined = Finding("isolation", "yes", level.text) if level.namespaces or level.landlock or level.seccomp else Finding("isolation", "no", "", nothing)
    remedy = "the gate isolates with what is left, and records it"
    return [
        Finding("user namespaces", "yes", "") if granted.user_namespaces else Finding("user namespaces", "no", "", remedy),
        Finding("landlock", "yes", f"ABI {granted.landlock}") if granted.landlock else Finding("landlock", "no", "", remedy),
        Finding("seccomp", "yes", "") if granted.seccomp else Finding("seccomp", "no", "", remedy),
        confined,
    ]


def _table(findings: tuple[Finding, ...]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for each in findings:
        mark = Text("yes", style="green") if each.there == "yes" else Text("no", style="yellow")
        table.add_row(each.what, mark, Text(each.detail or each.remedy))
    return table
