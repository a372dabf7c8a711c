"""What a cubin holds: registers, stack, shared memory and the mix of SASS instructions, as the toolkit's own programs print them."""
from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from kir.base.dataclass import dataclass
from kir.hardware.machine import binary_tool
from kir.surface import MachineLine

from ._process import run

SECONDS = 60.0
_USAGE = re.compile(r"Function (\S+?):\s*\n?\s*REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)")
_SECTION = re.compile(r"^\s*(?:\.text\.(\S+):|Function : (\S+))", re.MULTILINE)
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*)([.\w]*)", re.MULTILINE)
_PLACE = re.compile(r'^\s*//## File "([^"]*)", line (\d+)')
_SIZED = frozenset({"LDG", "STG", "LDS", "STS", "LDL", "STL"})
_WIDTH = re.compile(r"\.(32|64|128|U8|S8|U16|S16)\b")
_DIRECTIVES = (".section", ".headerflags", ".align", ".size", ".type", ".global")


@dataclass(frozen=True)
class Usage:
    """Resources of one function of a cubin: registers a thread, bytes of stack and of static shared memory."""

    registers: int
    stack: int
    shared: int


def usage(cubin: Path) -> dict[str, Usage]:
    """Resources by function; empty when there is no cuobjdump."""
    found = binary_tool("cuobjdump")
    if found is None:
        return {}
    text = run([found.path, "--dump-resource-usage", cubin], cubin.parent, SECONDS).out
    return {name: Usage(int(registers), int(stack) + int(local), int(shared))
            for name, registers, stack, shared, local in _USAGE.findall(text)}


def sass(cubin: Path) -> str:
    """The disassembly; "" when there is no disassembler."""
    if (found := binary_tool("nvdisasm")) is not None:
        done = run([found.path, "-c", "-ndf", cubin], cubin.parent, SECONDS)  # without its analysis of data flow, which takes long and says nothing here
        if done.code == 0:
            return done.out
    if (found := binary_tool("cuobjdump")) is not None:
        return run([found.path, "-sass", cubin], cubin.parent, SECONDS).out
    return ""


def lined(cubin: Path, file: str) -> tuple[MachineLine, ...]:
    """The instructions and labels of a cubin that was compiled with line information, each with its line of the source `file` (a file's name); what was
    inlined has the line of its call there. Empty when there is no nvdisasm."""
    found = binary_tool("nvdisasm")
    text = run([found.path, "-c", "-g", "-gi", cubin], cubin.parent, SECONDS).out if found is not None else ""
    out: list[MachineLine] = []
    line, fresh = 0, True
    for row in text.splitlines():
        if place := _PLACE.match(row):
            line = (int(place[2]) if Path(place[1]).name == file else 0) or (0 if fresh else line)
            fresh = False
            continue
        fresh = True
        kept = re.sub(r"/\*.*?\*/", "", row).split("//")[0].rstrip()
        name = kept.strip()
        if name and not name.startswith("."):
            out.append(MachineLine(name if name.endswith(":") else "  " + name.removesuffix(";").rstrip(), 0 if name.endswith(":") else line))
        elif name.startswith(".L_"):
            out.append(MachineLine(name, 0))
    return tuple(out)


def mixes(text: str) -> dict[str, dict[str, int]]:
    """Instructions by opcode for each function of a disassembly. Loads and stores keep their width (`LDG.128`); NOPs, which pad the
    function, do not count."""
    out: dict[str, dict[str, int]] = {}
    heads = list(_SECTION.finditer(text))
    for head, following in zip(heads, [*heads[1:], None], strict=False):
        body = text[head.end(): following.start() if following else len(text)]
        counts: Counter[str] = Counter()
        for opcode, modifiers in _INSTRUCTION.findall(body):
            if opcode == "NOP":
                continue
            width = _WIDTH.search(modifiers) if opcode in _SIZED else None
            counts[opcode + (f".{width[1]}" if width else "")] += 1
        out[head[1] or head[2]] = dict(counts)
    return out


def stripped(text: str) -> str:
    """A disassembly without addresses, encodings and comments, for comparison."""
    lines = (re.sub(r"/\*.*?\*/", "", line).split("//")[0].strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith(_DIRECTIVES))
