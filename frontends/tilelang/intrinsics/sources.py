"""CUDA source in front of a kernel: its device functions that are one asm statement, as that statement does it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kir.base.diagnostic import KirError
from kir.ir import build
from kir.ir import nodes as n
from kir.surface.ptx import AsmOperand, read_asm
from kir.surface.ptx.form.operands import Pointer

from ..state.reader import Reader
from ..values.values import Memory, NotUnderstood, Num, Place, SourceFunction, Value

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_HEAD = re.compile(r"(?:(?:static|inline|__device__|__forceinline__|__noinline__)\s+)*__device__\s+(?:(?:static|inline|__forceinline__|__noinline__)\s+)*"
                   r"(?P<type>\w+)\s+(?P<name>\w+)\s*\((?P<params>[^()]*)\)\s*\{")
_STRING = r'"((?:[^"\\]|\\.)*)"'
_ASM = re.compile(rf"\s*asm\s*(?:volatile)?\s*\(\s*(?P<text>(?:{_STRING}\s*)+)(?::(?P<outs>[^:]*))?(?::(?P<ins>[^:]*))?(?::(?P<clobbers>[^:]*))?\)\s*;"
                  r"\s*(?:return\s+(?P<value>\d+)\s*;)?\s*\}")
_OPERAND = re.compile(r'"(?P<constraint>\w+)"\s*\(\s*(?:__cvta_generic_to_global\s*\(\s*(?P<at>\w+)\s*\)|(?P<name>\w+))\s*\)\s*')


def functions_of(text: str) -> dict[str, SourceFunction]:
    """The device functions of CUDA source. Raises NotUnderstood for anything else in it."""
    rest = _COMMENT.sub(" ", text).strip()
    out: dict[str, SourceFunction] = {}
    while rest:
        head = _HEAD.match(rest)
        body = _ASM.match(rest, head.end()) if head else None
        if head is None or body is None or (body["outs"] or "").strip():
            raise NotUnderstood("CUDA source that is put in front of the kernel")
        names = [p.split()[-1].lstrip("*&") for p in head["params"].split(",") if p.strip()]
        given = (body["ins"] or "").strip()
        held = [(m["constraint"], m["at"] or m["name"]) for m in _OPERAND.finditer(given)]
        if _OPERAND.sub("", given).strip(", ") or any(name not in names for _, name in held):
            raise NotUnderstood("CUDA source that is put in front of the kernel")
        said = "".join(m[1] for m in re.finditer(_STRING, body["text"])).replace("\\n", "\n").replace("\\t", "\t")
        out[head["name"]] = SourceFunction(said, tuple((c, names.index(name)) for c, name in held), None if body["value"] is None else int(body["value"]))
        rest = rest[body.end():].strip()
    return out


def called(r: Reader, fn: SourceFunction, args: Sequence[Value]) -> Value:
    """A call of a function of CUDA source: what its asm does, and its number. Raises NotUnderstood for PTX without a meaning."""
    operands = []
    for constraint, k in fn.operands:
        v = r.settled(args[k]) if k < len(args) else None
        if isinstance(v, Memory):
            v = Place(v.buffer, tuple(build.const(0) for _ in v.buffer.shape))
        if isinstance(v, Place):
            if any(isinstance(i, n.Span) for i in v.index) or len(v.index) != len(v.buffer.shape):
                raise NotUnderstood("an address that is no element's")
            operands.append(AsmOperand(constraint, Pointer(build.region(v.buffer, *v.index))))
        else:
            operands.append(AsmOperand(constraint, r.run(v)))
    try:
        meaning = read_asm(fn.text, operands, r.out.fresh)
    except KirError as bad:
        raise NotUnderstood(f"inline asm: {bad.diagnostics[0].message} [{bad.diagnostics[0].id}]") from bad
    for s in meaning.statements:
        r.out.emit(s)
    return None if fn.value is None else Num(build.const(fn.value))
