"""What a kernel makes of a binding: every name is one of its parameters, of the kind that its section holds; every value is of the type that its use
asks for, and is used. Refused at the value's own line.

A value is used where the generic program mentions its name, or where the kernel's source does (a frontend drops what only informs a compiler,
`tl.static_assert` say). A frontend that works values in while it reads leaves each as the default of its meta, and looks itself (`instantiate`).
"""

from __future__ import annotations

import ast
import re
import textwrap
from pathlib import Path

from kir.base.diagnostic import Diagnostic, Origin, did_you_mean
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.binding import LAUNCH_OPTIONS, Binding, Setting
from kir.ir.bindings.binding_values import BLOCK, check_launch, check_values, shown, words, wrong
from kir.ir.printer import program_text
from kir.ir.types import DTYPES, DType
from kir.ir.visit import statements, walk

TOLD = {"int": "a whole number", "bool": "true or false", "float": "a number", "str": "a text", "dtype": "the name of a dtype", "fn": "the name of a function"}
"""What a meta of each kind takes."""
_OWN = re.compile(r"\s+(?:meta|scalar|size|in|out|inout) (`[^`]+`|\w+)")


def check_uses(program: n.Program, binding: Binding) -> None:
    """Raises KirError KIR-F011 for the first value of a binding that its kernel does not have, cannot take, or does not use."""
    check_values(binding)
    threads = {x.name for k in program.kernels for x in walk(k.threads) if isinstance(x, n.Var)}
    check_launch(binding, {word: name for word, name in launch_words(program).items() if name in threads})
    _Uses(program, binding).run()


def launch_words(program: n.Program) -> dict[str, str]:
    """What KIR's own words for a launch are called in a program whose launch says them (CUDA): its first metas. Empty for other programs."""
    called = {w: m.name for w, m in zip((*BLOCK, "shared_bytes"), program.metas, strict=False) if re.fullmatch(rf"{w}(_\d+)?", m.name) and m.kind == "int"}
    return called if called.keys() >= set(BLOCK) else {}


def check_kind(binding: Binding, steps: tuple[str | int, ...], name: str, kind: str, value: Setting) -> None:
    """A meta's value is of the meta's kind. Raises KirError KIR-F011."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    fits = {"int": number and isinstance(value, int), "bool": isinstance(value, bool), "float": number, "str": isinstance(value, str),
            "dtype": isinstance(value, str), "fn": isinstance(value, str)}.get(kind, True)
    if not fits:
        raise wrong(binding, steps, f"'{name}' = {shown(value)}: the kernel takes {TOLD[kind]} for it", TOLD[kind])
    if kind == "dtype" and value not in DTYPES:
        hint = did_you_mean(str(value), DTYPES)
        raise wrong(binding, steps, f"'{name}' = {shown(value)}: there is no such dtype", "" if hint else f"one of {', '.join(DTYPES)}", hint)


class _Uses:
    def __init__(self, program: n.Program, binding: Binding) -> None:
        self.program, self.binding = program, binding
        self.metas = {m.name: m for m in program.metas}
        self.launch = launch_words(program)
        self.params = {p.name: p for p in program.params if not dict(p.attrs).get("implicit")}

    def run(self) -> None:
        self.kernel()
        self.names()
        for name, value in self.binding.metas.items():
            check_kind(self.binding, ("metas", name), name, self.metas[name].kind, value)
        for k, config in enumerate(self.binding.configs):
            for name, value in config.items():
                if name not in LAUNCH_OPTIONS or name in self.metas:
                    self.known(("configs", k), name, set(self.metas) | LAUNCH_OPTIONS, "a meta, or an option of the launch")
                    check_kind(self.binding, ("configs", k, name), name, self.metas[name].kind, value)
        self.options()
        self.grid()
        if not self.binding.recorded:
            self.used()

    # ------------------------------------------------------------------------------------------------------------------ names
    def kernel(self) -> None:
        named = self.binding.kernel
        own = {self.program.name, *(k.name for k in self.program.kernels)}
        if named and named not in own:
            raise wrong(self.binding, ("kernel",), f"this is a binding of '{named}', and the kernel is '{self.program.name}'", attempt=did_you_mean(named, own))

    def known(self, table: tuple[str | int, ...], name: str, have: set[str], what: str) -> None:
        """Raises KirError for a name of a section that the kernel does not have, or has as something else."""
        if name in have:
            return
        steps = (*table, name)
        if isinstance(k := _position(self.binding, table, name), int):
            steps = (*table, k)
        if name in self.metas or name in self.params:
            found = self.params.get(name)
            kind = "a meta: under [metas]" if found is None else f"a tensor: under [tensors.{name}]" if isinstance(found.of, n.Buffer) else (
                "a run-time number: under [scalars], or under sizes where callers choose it")
            raise wrong(self.binding, steps, f"'{name}' of '{self.program.name}' is not {what}, but {kind}", key=True)
        near = did_you_mean(name, have) or did_you_mean(name, {*self.metas, *self.params})
        raise wrong(self.binding, steps, f"'{self.program.name}' has no parameter '{name}' ({table[0]} of the binding)", key=True, attempt=near,
                    needs="" if near else f"one of {', '.join(sorted(have))}" if have else "nothing here: it has none")

    def names(self) -> None:
        b = self.binding
        buffers = {x for x, p in self.params.items() if isinstance(p.of, n.Buffer)}
        numbers = set(self.params) - buffers
        described = {m.of for m in b.maps.values()}
        undeclared = {x for x in numbers & b.tensors.keys() if isinstance(t := self.params[x].of, DType) and t.is_symbolic}
        untouched = numbers if b.recorded else unmentioned(self.program, undeclared)
        sized = {m for m in self.metas if m not in b.metas and isinstance(b.scalars.get(m), str)}  # extents that callers know by another name
        for section, names, have, what in (
                ("metas", [*b.metas, *b.heuristics], set(self.metas), "a compile-time value"),
                ("scalars", [*b.scalars], set(self.params) if b.recorded else numbers | sized, "a run-time number"),
                ("tensors", [x for x in b.tensors if x not in described], buffers | untouched, "a tensor"),
                ("absent", b.absent, {*self.metas, *self.params}, "a parameter"), ("dtypes", [*b.dtypes], numbers, "a run-time number")):
            for name in names:
                self.known(("heuristics",) if section == "metas" and name not in b.metas else (section,), name, have, what)
        maps = {t.name for t in self.program.tensor_maps}
        for name, m in b.maps.items():
            if (m.name or name) not in maps:
                self.known(("maps",), name, maps, "a tensor map")

    def options(self) -> None:
        b = self.binding
        for name, value in b.options.items():
            if name in self.metas and name not in ("num_warps", "num_stages"):
                check_kind(b, ("options", name), name, self.metas[name].kind, value)
            elif name in self.metas or name == "threads" or (name in LAUNCH_OPTIONS and b.recorded):
                continue
            elif name == "num_ctas" and value != 1:
                raise wrong(b, ("options", name), "KIR reads no kernel that Triton splits over the CTAs of a cluster", "num_ctas = 1, or no such line")
            elif name == "target" and not self.launch:
                raise wrong(b, ("options", name), f"nothing in '{self.program.name}' depends on the target", "no such line", key=True)
            elif name == "num_warps" and all(build.is_const(k.threads, 32 * int(value)) for k in self.program.kernels):
                continue
            elif name in ("num_warps", "num_stages"):
                raise wrong(b, ("options", name), f"'{self.program.name}' says itself how many threads and stages it has", "no such line", key=True)
            elif name not in LAUNCH_OPTIONS and name != "target":
                have = LAUNCH_OPTIONS | {"target"}
                raise wrong(b, ("options", name), f"there is no option '{name}' of a launch", f"one of {', '.join(sorted(have))}",
                            did_you_mean(name, have), True)
        for name in b.arrays if not self.launch else ():
            raise wrong(b, ("arrays", name), f"'{self.program.name}' declares its arrays with their shapes", "no [arrays]", key=True)

    def grid(self) -> None:
        """As many extents as the kernel has axes; of a recorded launch, any."""
        b, axes = self.binding, max((len(k.grid) for k in self.program.kernels), default=0)
        implicit = {p.name for p in self.program.params if dict(p.attrs).get("implicit")}
        open_ = any(isinstance(x, n.Var) and x.name in implicit for k in self.program.kernels for a in k.grid for x in walk(a.extent))
        if not b.grid or b.recorded:
            return
        if not open_:
            raise wrong(b, ("grid",), f"'{self.program.name}' says itself how large its grid is", "no grid", key=True)
        if len(b.grid) != axes:
            k = axes if len(b.grid) > axes else len(b.grid) - 1
            raise wrong(b, ("grid", k), f"the grid has {len(b.grid)} ax{'i' if len(b.grid) == 1 else 'e'}s, and '{self.program.name}' asks for its place "
                        f"along {axes}",
                        f"{axes} extent{'s' * (axes != 1)}; 1 for an axis along which the launch has one CTA")

    # -------------------------------------------------------------------------------------------------------------------- uses
    def used(self) -> None:
        """Raises KirError for a value that nothing reads."""
        b = self.binding
        in_expressions = expressions_of(b)
        settled = {m.name for m in self.program.metas if m.name in b.metas and m.default is not None and m.default == b.metas[m.name]}
        settled |= {m.name for m in self.program.metas if m.name in b.absent and m.default is not None}  # what was read without it
        metas = set(b.metas) | {k for k in b.options if k in self.metas and k not in ("num_warps", "num_stages")}
        asked = (metas - b.computed) - settled | set(b.scalars) | set(b.dtypes) | set(b.absent) - settled
        buffers = {x for x, p in self.params.items() if isinstance(p.of, n.Buffer)}
        idle = unmentioned(self.program, asked - in_expressions - {self.launch.get("shared_bytes")} - buffers)
        idle -= {x for k in self.program.kernels for x in mentioned(k.origin)} if idle else set()
        for name in sorted(idle):
            section = next(s for s in ("metas", "options", "scalars", "dtypes", "absent") if name in getattr(b, s))
            steps = (section, _position(b, (section,), name))
            if name not in b.sizes and not (section == "scalars" and b.scalars[name] in b.sizes):  # a size, whatever the kernel calls it
                raise wrong(b, steps, f"'{self.program.name}' never reads its parameter '{name}': what is said of it has no effect", key=True,
                            needs="no value for it; `recorded = true` where the binding is to hold a launch as it was")


def idle_sizes(program: n.Program, b: Binding) -> tuple[Diagnostic, ...]:
    """What is said of each size that nothing is over (KIR-F011); nothing of a recorded launch."""
    out: list[Diagnostic] = []
    idle = set() if b.recorded else unmentioned(program, set(b.sizes) - expressions_of(b))
    for k, name in enumerate(b.sizes):
        if name in idle:
            have = {m.name for m in program.metas} | {p.name for p in program.params if p.name not in b.scalars and p.name not in b.tensors}
            out += wrong(b, ("sizes", k), f"nothing is over the size '{name}': no shape, scalar or extent of the grid", key=True,
                         needs="a use of it, or no such size", attempt=did_you_mean(name, have - {name})).diagnostics
    return tuple(out)


def _position(b: Binding, table: tuple[str | int, ...], name: str) -> int | str:
    """Which element of a list of the binding a name is; the name itself in a table."""
    held = getattr(b, str(table[0]))
    return held.index(name) if isinstance(held, list) and name in held else name


def unmentioned(program: n.Program, names: set[str]) -> set[str]:
    """Those of the names that a generic program does not mention."""
    left = set(names)
    for part in (*(x for k in program.kernels for x in (*k.body, k.threads, *(a.extent for a in k.grid))), *(f for f in program.functions)):
        if not left:
            return left
        for x in walk(part):
            if isinstance(x, n.Var):
                left.discard(x.name)
    if left:
        for line in program_text(program).splitlines():
            own = _OWN.match(line)
            left -= set(re.findall(r"\w+", line)) - ({own[1].strip("`")} if own else set())
    return left


def expressions_of(b: Binding) -> set[str]:
    """The names in a binding's expressions, its facts aside: those speak of what the others use."""
    extents = (x for t in b.tensors.values() for x in (*t.shape, *(t.strides or ())))
    return words([*b.grid, *b.scalars.values(), *b.heuristics.values(), *extents])


def pruned(program: n.Program, binding: Binding) -> Binding:
    """The binding without values of parameters that a generic program does not mention: what is left of one when its kernel was changed."""
    idle = unmentioned(program, {*binding.metas, *binding.scalars, *binding.dtypes} - set(binding.sizes))
    idle -= expressions_of(binding)
    if not idle:
        return binding
    return binding.changed(**{section: {k: v for k, v in getattr(binding, section).items() if k not in idle} for section in ("metas", "scalars", "dtypes")})


def mentioned(origin: Origin | None) -> set[str]:
    """The names that a function of a source file mentions beside those of its parameters; none where the file cannot be read."""
    try:
        lines = Path(origin.file).read_text(encoding="utf-8").splitlines()[origin.line - 1: origin.end_line] if origin is not None else []
    except (OSError, UnicodeDecodeError):
        return set()
    text = textwrap.dedent("\n".join(lines))
    try:
        return {x.id for x in ast.walk(ast.parse(text)) if isinstance(x, ast.Name)}
    except (SyntaxError, ValueError):
        _, _, body = re.sub(r"//.*|/\*.*?\*/", "", text).partition("{")
        return set(re.findall(r"\w+", body))


def check_roles(program: n.Program, binding: Binding, roles: dict[str, str]) -> None:
    """What the binding says of a tensor's role (by its name in the kernel) against what the specialized kernels do to it, through views too. Raises
    KirError KIR-F011 for an input that is written, and for an output that never is."""
    said = {k: t for k, t in binding.tensors.items() if t.role and k in roles}
    if not said or any(isinstance(s, n.Opaque) for k in program.kernels for s in statements(k.body)):
        return
    written, perhaps = _written(program)
    for name, t in said.items():
        own = roles[name]
        if t.role == "in" and own in written:
            place = f" at {written[own]}" if written[own] else ""
            raise wrong(binding, ("tensors", name, "role"), f"the tensor '{name}' has the role in, and the kernel writes it{place}",
                        "out, or inout where it is read before")
        if t.role == "out" and own not in written and own not in perhaps:
            raise wrong(binding, ("tensors", name, "role"), f"the tensor '{name}' has the role out, and the kernel never writes it",
                        "in, or inout of one that the caller takes for written")


def _written(program: n.Program) -> tuple[dict[str, str], set[str]]:
    """The buffers that statements write, each with the first place in the source, and those that a call or an address may lead to; through views."""
    sure: dict[str, str] = {}
    perhaps: set[str] = set()
    under: dict[str, str] = {}
    for s in (s for body in (*(k.body for k in program.kernels), *(f.body for f in program.functions)) for s in statements(body)):
        place = str(s.origin) if s.origin is not None else ""
        match s:
            case n.View():
                under[s.buffer.name] = s.at.buffer.name
            case n.Store():
                sure.setdefault(s.at.buffer.name, place)
            case n.Copy():
                sure.setdefault(s.dst.buffer.name, place)
            case n.Mma():
                sure.setdefault(s.acc.buffer.name, place)
            case _:
                pass
        for x in walk(s):
            match x:
                case n.Call(fn=fn) if fn.startswith("atomic_") and fn != "atomic_load":
                    for a in x.args[:1]:
                        if isinstance(a, n.Region):
                            sure.setdefault(a.buffer.name, place)
                case n.Call():
                    perhaps |= {a.buffer.name for a in x.args if isinstance(a, n.Region)}
                case n.Address():
                    perhaps.add(x.at.buffer.name)
                case _:
                    pass
    for name in [*sure, *perhaps]:
        base = name
        while base in under:
            base = under[base]
            if name in sure:
                sure.setdefault(base, sure[name])
            else:
                perhaps.add(base)
    return sure, perhaps
