"""Inline PTX as text and as a small typed form: instructions with their guards and operands, each with its place in the text."""
from __future__ import annotations

import re
import struct
from dataclasses import field

from lark import Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError, Origin, error
from kir.ir.grammar.tables import parser


@dataclass(frozen=True)
class Text:
    """An asm text and where it comes from: `origin` is the whole asm statement in its source file, if it has one. Without it, places are
    those in the text itself, as file `<asm>`."""

    text: str
    origin: Origin | None = None

    def at(self, start: int, end: int) -> Origin:
        """The place of a span of the text."""
        return self.origin or Origin.of("<asm>", self.text, start, end)

    def fail(self, id: str, message: str, span: tuple[int, int], needs: str = "") -> KirError:
        """A refusal at a span of the text."""
        shown = " ".join(self.text[span[0]:span[1]].split())
        return error(id, message, origin=self.at(*span), subject=shown, needs=needs)


@dataclass(frozen=True)
class Name:
    """A register declared in the asm, a label, or a special register (`special`, without its percent signs)."""

    name: str
    special: bool = False


@dataclass(frozen=True)
class Place:
    """The n-th operand of the asm statement."""

    number: int


@dataclass(frozen=True)
class Number:
    """A literal; `bits` is set for one that is given by its bits (0f3F800000)."""

    value: int | float
    bits: int | None = None


@dataclass(frozen=True)
class Not:
    """A negated predicate."""

    of: Name | Place


Value = Name | Place | Number | Not


@dataclass(frozen=True)
class Vector:
    """`{a, b, ..}`."""

    items: tuple[Value, ...]


@dataclass(frozen=True)
class Memory:
    """`[base + offset]` in bytes; TMA operands carry coordinates or an mbarrier in `rest`."""

    base: Value
    offset: int = 0
    rest: tuple[Value | Vector, ...] = ()


@dataclass(frozen=True)
class Pair:
    """`a|b`: two destinations."""

    first: Name | Place
    second: Name | Place


Operand = Value | Vector | Memory | Pair


@dataclass(frozen=True)
class Instruction:
    """`@guard opcode.mod.mod a, b;`. `parts` is the opcode and its modifiers; `guard` a predicate and whether it must hold."""

    parts: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: tuple[Name | Place, bool] | None
    span: tuple[int, int]

    @property
    def opcode(self) -> str:
        """All of the mnemonic."""
        return ".".join(self.parts)


@dataclass(frozen=True)
class Label:
    """A label, unique within the asm."""

    name: str
    span: tuple[int, int]


@dataclass(frozen=True)
class Variable:
    """Memory or a parameter that a text declares: its state space, the types and words between (`u64 ptr global`), how many elements of its last
    type (None: as many as the launch says), its alignment, and whether it is defined elsewhere or begins with values."""

    name: str
    space: str
    words: tuple[str, ...]
    count: int | None
    align: int = 0
    extern: bool = False
    filled: bool = False
    span: tuple[int, int] = (0, 0)


_BEYOND = re.compile(r"\b\d{400,}|\.reg\b[^;<]{0,200}<\s*([1-9]\d{6,})\s*>|\.reg\b[^;<]{0,200}<\s*\d*[.a-zA-Z]|"
                     r"\[[^][;\"]{0,200}?(?<![\w.$%])(?:0[fF][\da-fA-F]{8}|0[dD][\da-fA-F]{16}|\d+\.\d*|\d+[eE][-+]?\d+)\s*[],]")
"""Numbers of very many digits, counts of registers of a million or more, and places that no whole number says."""


@dataclass
class Form:
    """What an asm text holds, in order; registers by name with their type, inner blocks' ones renamed where they hide others."""

    text: Text
    items: list[Instruction | Label] = field(default_factory=list)
    registers: dict[str, str] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)


def parse(text: Text) -> Form:
    """The form of an asm text. Raises KirError KIR-F300 (not PTX) and KIR-F302 (a register that is declared twice, what `refuse_beyond` refuses)."""
    refuse_beyond(text)
    try:
        tree = parser("ptx_asm", positions=True).parse(text.text.rstrip("\0"))
    except UnexpectedInput as bad:
        raise syntax_error(text, bad) from None
    return body(tree, text)


def refuse_beyond(text: Text) -> None:
    """Raises KirError KIR-F302 for a number that no register holds, and for more registers than a text can use."""
    if found := _BEYOND.search(text.text):
        said = "this is no whole number that a register holds" if found[1] is None else f"{found[1]} registers are more than any text uses"
        raise text.fail("KIR-F302", said, found.span())


def body(tree: Tree[Token], text: Text) -> Form:
    """The form of a tree of declarations, labels and instructions. Raises KirError KIR-F302 (a register that is declared twice)."""
    form = Form(text)
    _block(tree, form, {})
    return form


def variable(tree: Tree[Token]) -> Variable:
    """A declaration of memory, or a parameter of a function."""
    space, words, align, count, linkage, filled, name = "", [], 0, 1, [], False, ""
    for each in tree.children:
        match each:
            case Token(type="LINKAGE"):
                linkage.append(str(each))
            case Token(type="SPACE" | "REG"):
                space = str(each)[1:]
            case Token():
                name = str(each)
            case Tree(data="qualifier", children=[Token(type="ALIGN") as token]):
                align = int(str(token).split()[1])
            case Tree(data="qualifier", children=[Token() as token]):
                words.append(str(token)[1:])
            case Tree(data="extent", children=[number]):
                count = None if number is None else (count or 1) * int(_literal(str(number)).value)
            case Tree():
                filled = True
    return Variable(name, space, tuple(words), count, align, ".extern" in linkage, filled, _span(tree))


def syntax_error(text: Text, bad: UnexpectedInput) -> KirError:
    """What is wrong where a text stops being PTX."""
    if isinstance(bad, UnexpectedToken) and bad.token.type == "$END":
        return text.fail("KIR-F300", "the text ends in the middle of an instruction", (len(text.text), len(text.text)),
                         needs="an instruction, ended by ;")
    at = bad.pos_in_stream if isinstance(bad, (UnexpectedCharacters, UnexpectedToken)) and bad.pos_in_stream is not None else 0
    found = text.text[at:].split()
    near = f"'{found[0]}' is not what PTX has here" if found else "this is not what PTX has here"
    return text.fail("KIR-F300", near, (at, min(len(text.text), at + (len(found[0]) if found else 0))), needs="an instruction, ended by ;")


def _block(tree: Tree[Token], form: Form, names: dict[str, str]) -> None:
    """The items of a block; `names` are the registers and labels in view, by the name that the form gives them."""
    names = dict(names)
    own: set[str] = set()
    for each in tree.children:
        if isinstance(each, Tree) and each.data == "label":
            _label(each, form, names)
    for each in tree.children:
        if not isinstance(each, Tree):
            continue
        match str(each.data):
            case "block":
                _block(each, form, names)
            case "declaration":
                _declare(each, form, names, own)
            case "label":
                token = each.children[0]
                assert isinstance(token, Token)
                form.items.append(Label(names[f":{str(token)[:-1]}"], _span(each)))
            case "instruction":
                form.items.append(_instruction(each, names))
            case "variable":
                made = variable(each)
                form.variables[made.name] = made
            case "call":
                form.items.append(Instruction(("call",), (), None, _span(each)))


def _label(tree: Tree[Token], form: Form, names: dict[str, str]) -> None:
    text = str(tree.children[0])[:-1]
    names[f":{text}"] = f"{text}.{len(form.items)}.{len(names)}"


def _declare(tree: Tree[Token], form: Form, names: dict[str, str], own: set[str]) -> None:
    kind = str(tree.children[1])[1:]
    for each in tree.children[2:]:
        assert isinstance(each, Tree)
        base, count = str(each.children[0]).lstrip("%"), each.children[1]
        for name in [base] if count is None else [f"{base}{i}" for i in range(int(str(count)))]:
            if name in own:
                raise form.text.fail("KIR-F302", f"register '{name}' is declared twice in a block", _span(each))
            own.add(name)
            unique = name
            while unique in form.registers:
                unique += "'"
            names[name], form.registers[unique] = unique, kind


def _instruction(tree: Tree[Token], names: dict[str, str]) -> Instruction:
    guard, opcode, operands = tree.children[:3]
    held = None
    if isinstance(guard, Tree):
        of = _value(guard.children[1], names)
        assert isinstance(of, (Name, Place))
        held = of, guard.children[0] is None
    parts = tuple("".join(str(opcode).replace("\\", " ").split()).split("."))
    listed = operands.children if isinstance(operands, Tree) else []
    return Instruction(parts, tuple(_operand(o, names) for o in listed), held, _span(tree))


def _span(tree: Tree[Token]) -> tuple[int, int]:
    return (0, 0) if tree.meta.empty else (tree.meta.start_pos, tree.meta.end_pos)


def _operand(x: Tree[Token] | Token, names: dict[str, str]) -> Operand:
    assert isinstance(x, Tree)
    match str(x.data):
        case "vector":
            return Vector(tuple(_value(v, names) for v in x.children if v is not None))
        case "memory":
            base, sign, number, *rest = x.children
            offset = 0 if number is None else int(_literal(str(number)).value) * (-1 if "-" in str(sign) else 1)
            beside = tuple(_operand(r, names) for r in rest if r is not None)
            return Memory(_value(base, names), offset, tuple(b for b in beside if not isinstance(b, (Memory, Pair))))
        case "pair":
            first, second = (_value(v, names) for v in x.children)
            assert isinstance(first, (Name, Place)) and isinstance(second, (Name, Place))
            return Pair(first, second)
        case _:
            return _value(x, names)


def _value(x: Tree[Token] | Token | None, names: dict[str, str]) -> Value:
    assert isinstance(x, Tree)
    if x.data == "number":
        sign, digits = x.children
        made = _literal(str(digits))
        return made if str(sign) != "-" else Number(-made.value)
    if x.data == "negated":
        of = _value(x.children[1], names)
        assert isinstance(of, (Name, Place))
        return Not(of)
    token = x.children[0]
    assert isinstance(token, Token)
    text = str(token)
    if token.type == "PLACE":
        return Place(int(text[1:]))
    if token.type == "SPECIAL":
        bare = text.lstrip("%")
        return Name(names[bare]) if bare in names else Name(bare, special=True)
    if text == "WARP_SZ" and text not in names:  # PTX ISA, "Predefined Identifiers"
        return Number(32)
    return Name(names.get(text, names.get(f":{text}", text)))


def _literal(text: str) -> Number:
    low = text.lower()
    if low.startswith("0x"):
        return Number(int(low.rstrip("u"), 16))
    if low.startswith("0b"):
        return Number(int(low.rstrip("u"), 2))
    if low.startswith("0f"):
        bits = int(low[2:], 16)
        return Number(struct.unpack("<f", struct.pack("<I", bits))[0], bits)
    if low.startswith("0d"):
        bits = int(low[2:], 16)
        return Number(struct.unpack("<d", struct.pack("<Q", bits))[0], bits)
    if "." in low or "e" in low:
        return Number(float(low))
    digits = low.rstrip("u")
    return Number(int(digits, 8 if re.fullmatch("0[0-7]+", digits) else 10))
