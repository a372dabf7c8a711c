"""Answers: what a provider says, as text of a surface, and how it becomes a program. It is parsed, never imported, evaluated or run.

An answer is a whole program over the contract's operands, by name: `size N: i32`, `in X: f32[N]`, `out V: f32[K]`, and its kernels. In IR
text that is all; a fragment of another surface is one kernel and the binding that specializes it, read by that surface's frontend.
"""
from __future__ import annotations

import ast
import re
import tempfile
import unicodedata
from dataclasses import replace
from pathlib import Path

from kir.base.dataclass import dataclass
from kir.base.diagnostic import Diagnostic, KirError, Origin, error
from kir.base.store import content_hash
from kir.ir import nodes as n
from kir.ir.parser import parse_program
from kir.ir.rules.verify import verify
from kir.ir.types import DType
from kir.ir.visit import substitute_buffers, transform
from kir.lineage.carrier.contract import Contract

MOST_BYTES = 256 << 10
"""Bytes of the longest answer that is read at all."""
SUFFIXES = {"kir": ".kir", "cuda": ".cu", "triton": ".py", "tilelang": ".py"}
HEADERS = re.compile(r"<(?:cuda[\w/]*|mma|cooperative_groups[\w/]*|stdint|cstdint|cuda/[\w/]+)(?:\.h|\.hpp|\.cuh)?>")
HOST_NAMES = frozenset({"open", "exec", "eval", "compile", "input", "globals", "locals", "vars", "getattr", "setattr", "delattr", "breakpoint"})
MODULES = frozenset({"triton", "tilelang", "torch", "math", "typing", "__future__"})
"""What a Python fragment may name in an import; nothing of it is imported."""


@dataclass(frozen=True)
class Answer:
    """The text of an answer, its surface, the binding (TOML) of a fragment that is generic, and the name by which findings locate it."""

    text: str
    surface: str = "kir"
    binding: str = ""
    file: str = "<answer>"

    @property
    def hash(self) -> str:
        """sha256 of surface, binding and text: what a pass's parameter names, and a record holds."""
        return content_hash(f"{self.surface}\n{len(self.binding)}\n{self.binding}{self.text}")


def read(contract: Contract, answer: Answer) -> n.Program:
    """The program of an answer, verified, its tensors named as the contract's operands.

    Raises KirError, located in the answer: KIR-H110 (a surface that the contract does not take, or that no frontend reads), KIR-H112 (no
    text that is read), KIR-H113 (host code), KIR-H114 (not one kernel), and whatever parser, frontend and verifier refuse."""
    if answer.surface not in contract.spec.surfaces:
        raise error("KIR-H110", f"contract {contract.id} takes no answer in '{answer.surface}'", origin=_start(answer),
                    needs=f"one of {', '.join(contract.spec.surfaces)}")
    _readable(answer)
    try:
        program = parse_program(answer.text, answer.file) if answer.surface == "kir" else _fragment(answer)
        found = [d for d in verify(program) if d.severity == "error"]
    except RecursionError:
        raise error("KIR-H112", "the answer is nested too deeply to be read", origin=_start(answer)) from None
    if found:
        raise KirError(*(d if d.origin else replace(d, origin=_start(answer)) for d in found))
    return program


def _start(answer: Answer) -> Origin:
    return Origin(answer.file, 1, 1, 1, 1)


def _readable(answer: Answer) -> None:
    size = len(answer.text.encode("utf-8", "replace"))
    if size > MOST_BYTES:
        raise error("KIR-H112", f"the answer has {size} bytes; at most {MOST_BYTES} are read", origin=_start(answer))
    if not answer.text.strip():
        raise error("KIR-H112", "the answer is empty", origin=_start(answer), needs="a program in the contract's operands")
    for number, char in enumerate(answer.text):
        if char == "\N{REPLACEMENT CHARACTER}" or (char not in "\n\r\t" and unicodedata.category(char)[0] == "C"):
            raise error("KIR-H112", f"the answer holds U+{ord(char):04X}, which no source has: it is no UTF-8 text, or was damaged",
                        origin=Origin.of(answer.file, answer.text, number, number + 1))


# ------------------------------------------------------------------------------------------------------------------- fragments

BINDING = "the answer's binding"
"""What stands for a file where a diagnostic is about the binding of an answer."""


def _fragment(answer: Answer) -> n.Program:
    """The specialized program of a fragment, in normal form."""
    from kir.analysis.heuristics import settled
    from kir.analysis.normal.regions import raised
    from kir.ir.binding import Binding
    from kir.ir.bindings.specialize import specialize
    from kir.ir.rules.generic import is_generic
    from kir.surface import frontend
    (_screen_cuda if answer.surface == "cuda" else _screen_python)(answer)
    try:
        reader = frontend(answer.surface)
    except KirError as missing:
        raise error("KIR-H110", f"no frontend reads '{answer.surface}' here: {missing.diagnostics[0].message}", origin=_start(answer),
                    needs="an answer in another surface, or the plugin", attempt="kir plugins") from missing
    with tempfile.TemporaryDirectory(prefix="kir-answer-") as folder:
        path = Path(folder) / f"answer{SUFFIXES[answer.surface]}"
        path.write_text(answer.text, encoding="utf-8")
        try:
            binding = Binding.parse(answer.binding, BINDING)
            names = [k.name for k in reader.kernels(path)]
            wanted = binding.kernel or (names[0] if len(names) == 1 else "")
            if wanted not in names:
                raise error("KIR-H114", f"the fragment holds {len(names)} kernels, and its binding names {binding.kernel or 'none'}",
                            origin=_start(answer), needs="one kernel, or `kernel = \"..\"` in the binding")
            instantiate = getattr(reader, "instantiate", None)
            generic = instantiate(path, wanted, binding) if instantiate is not None else reader.parse(path, wanted)
            program = specialize(generic, settled(binding))
            if is_generic(program):
                raise error("KIR-H114", f"'{wanted}' is still generic under the fragment's binding", origin=_start(answer),
                            needs="a binding that gives every compile-time value")
            program = raised(program)
        except KirError as bad:
            raise KirError(*(_relocated(d, path, answer.file) for d in bad.diagnostics)) from None
    return _as_operands(_from(program, str(path), answer.file))


def _relocated(d: Diagnostic, path: Path, file: str) -> Diagnostic:
    if d.origin is not None and d.origin.file == BINDING:
        d = replace(d, origin=None, notes=(*d.notes, f"it stands in line {d.origin.line} of its binding"))
    here = replace(d.origin, file=file) if d.origin is not None and d.origin.file == str(path) else d.origin or Origin(file, 1, 1, 1, 1)
    return replace(d, origin=here, message=d.message.replace(str(path), file))


def _from(program: n.Program, path: str, file: str) -> n.Program:
    def leave(old: n.Node, new: n.Node) -> n.Node:
        if isinstance(new, (n.Stmt, n.Kernel, n.Function)) and new.origin is not None and new.origin.file == path:
            inner = None if new.origin.inner is None else replace(new.origin.inner, file=file) if new.origin.inner.file == path else new.origin.inner
            return replace(new, origin=replace(new.origin, file=file, inner=inner))  # type: ignore[type-var]  # every Stmt is a dataclass
        return new
    out: n.Program = transform(program, leave)
    return out


def _as_operands(program: n.Program) -> n.Program:
    """The program with each tensor called what its attribute `tensor` says."""
    names = {p.name: str(dict(p.attrs)["tensor"]) for p in program.params if isinstance(p.of, n.Buffer) and "tensor" in dict(p.attrs)}
    buffers = {p.name: replace(p.of, name=names[p.name]) for p in program.params if isinstance(p.of, n.Buffer) and p.name in names}
    params = tuple(replace(p, name=names.get(p.name, p.name), attrs=tuple(a for a in p.attrs if a[0] != "tensor"),
                           of=p.of if isinstance(p.of, DType) else buffers.get(p.name, p.of)) for p in program.params)
    out: n.Program = substitute_buffers(replace(program, params=params), buffers)
    return out


def _screen_python(answer: Answer) -> None:
    """Nothing but imports of the surface's own modules, plain constants, and functions: host code has no place in a fragment."""
    try:
        tree = ast.parse(answer.text)
    except (SyntaxError, ValueError) as bad:
        line = getattr(bad, "lineno", None) or 1
        raise error("KIR-H113", f"the fragment is no Python: {getattr(bad, 'msg', bad)}", origin=Origin(answer.file, line, 1, line, 2)) from None
    aliases = {(a.asname or a.name).split(".")[0] for s in tree.body if isinstance(s, (ast.Import, ast.ImportFrom)) for a in s.names}
    for x in ast.walk(tree):
        if (isinstance(x, ast.Name) and (x.id in HOST_NAMES or x.id.startswith("__"))) or (isinstance(x, ast.Attribute) and x.attr.startswith("__")):
            word = x.id if isinstance(x, ast.Name) else x.attr
            raise error("KIR-H113", f"the fragment calls out to the host: '{word}'",
                        origin=Origin(answer.file, x.lineno, x.col_offset + 1, x.lineno, x.col_offset + 1 + len(word)))
    for s in tree.body:
        place = Origin(answer.file, s.lineno, s.col_offset + 1, s.end_lineno or s.lineno, (s.end_col_offset or 0) + 1)
        match s:
            case ast.Import() if all(a.name.split(".")[0] in MODULES for a in s.names):
                continue
            case ast.ImportFrom() if s.level == 0 and (s.module or "").split(".")[0] in MODULES:
                continue
            case ast.Import() | ast.ImportFrom():
                raise error("KIR-H113", f"the fragment imports something else: {ast.unparse(s)}", origin=place, needs=f"only {', '.join(sorted(MODULES))}")
            case ast.FunctionDef() if not (strange := _strange(s, aliases)):
                continue
            case ast.FunctionDef():
                raise error("KIR-H113", f"the fragment holds host code: '{s.name}' is defined with {strange}", origin=place,
                            needs="decorators and defaults of constants and the surface's own functions")
            case ast.Assign(value=ast.Constant()) | ast.AnnAssign(value=ast.Constant()) | ast.Expr(value=ast.Constant()):
                continue
            case ast.Assign(value=ast.Call(func=ast.Attribute(attr="constexpr"), args=[ast.Constant()])):
                continue
            case _:
                raise error("KIR-H113", f"the fragment holds host code: {ast.unparse(s).splitlines()[0][:80]}", origin=place,
                            needs="imports, constants and kernels, and nothing else at the top")


def _strange(f: ast.FunctionDef, aliases: set[str]) -> str:
    """What a function is decorated with, or defaults to, that is neither a constant nor the surface's own ("" for nothing)."""
    outside = [*f.decorator_list, *f.args.defaults, *(d for d in f.args.kw_defaults if d is not None)]
    for e in outside:
        own = {a.arg for x in ast.walk(e) if isinstance(x, ast.Lambda) for a in x.args.args}
        if isinstance(e, ast.Lambda) or any(isinstance(x, ast.Name) and x.id not in aliases | own for x in ast.walk(e)):
            return ast.unparse(e)[:80]
    return ""


def _screen_cuda(answer: Answer) -> None:
    """No preprocessor beyond constants and CUDA's own headers, no text for the assembler."""
    for number, line in enumerate(answer.text.splitlines(), start=1):
        bare = line.split("//")[0]
        directive, rest = m.groups() if (m := re.match(r"\s*#\s*(\w+)(.*)", bare)) else ("", "")
        included = directive == "include" and not HEADERS.fullmatch(rest.strip())
        if included or directive in ("import", "line", "embed") or re.search(r"\basm\b|__asm", bare):
            raise error("KIR-H113", f"the fragment may not say: {line.strip()[:80]}", origin=Origin(answer.file, number, 1, number, len(line) + 1),
                        needs="device code over CUDA's own headers")
