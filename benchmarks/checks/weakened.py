"""Text mutants of a CUDA kernel: each barrier, fence, commit and wait dropped or weakened, each bit of each mask of lanes left out, each
condition that guards an access dropped or made to let one more in. The text is parsed, so each mutant changes one construct and nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import tree_sitter
import tree_sitter_cpp

Node = tree_sitter.Node

_WORDS = re.compile(r"__(?:global|device|shared|forceinline|restrict)__|__(?:launch_bounds|align)__\((?:[^()]|\([^()]*\))*\)")
SYNCHRONIZING = frozenset({"__syncthreads", "__syncwarp", "__threadfence", "__threadfence_block", "__threadfence_system"})
ASSEMBLY = re.compile(r"\b(?:cp\.async\.(?:commit_group|wait_group|wait_all|bulk\.(?:commit_group|wait_group))|bar\.|barrier\.|fence|membar|mbarrier\."
                      r"|wgmma\.(?:fence|commit_group|wait_group)|griddepcontrol)")
COUNTED = re.compile(r"wait_group(?:\.read)?(?:\.sync\.aligned)?\s+(%0|\d+)")
LANES = 32
COLLECTIVE = re.compile(r"__(?:shfl\w*|any|all|ballot|match\w*|reduce\w*)_sync|__syncwarp")
HALF = "threadIdx.x % 32 < 16"
_MEMORY = frozenset({"subscript_expression", "pointer_expression", "call_expression"})


@dataclass(frozen=True)
class Weakened:
    """One mutant: the line and the text of what was changed, how, and the whole changed text."""

    line: int
    place: str
    how: str
    text: str


Made = Callable[[Node, str, str], Weakened]
"""From a node, what was done to it, and the text that stands in its place."""


def weakened(source: str) -> Iterator[Weakened]:
    """All mutants, in reading order."""
    plain = _WORDS.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), source)
    raw = plain.encode()
    if len(raw) != len(plain):
        raise ValueError("the text is not ASCII")
    tree = tree_sitter.Parser(tree_sitter.Language(tree_sitter_cpp.language())).parse(raw)

    def made(at: Node, how: str, new: str) -> Weakened:
        text = source[: at.start_byte] + new + source[at.end_byte :]
        return Weakened(at.start_point.row + 1, " ".join(source[at.start_byte : at.end_byte].split()), how, text)

    for node in _nodes(tree.root_node):
        text = source[node.start_byte : node.end_byte]
        if node.type == "expression_statement":
            callee = text.partition("(")[0].strip()
            if callee in SYNCHRONIZING:
                yield made(node, "dropped", ";")
                if callee == "__syncthreads":
                    yield made(node, "made `__syncwarp()`", "__syncwarp();")
            elif re.match(r"asm\b", text) and ASSEMBLY.search(text):
                yield made(node, "dropped", ";")
                yield from _counts(node, text, made)
        elif node.type == "call_expression" and COLLECTIVE.fullmatch(text.partition("(")[0]):
            mask = next((c for c in node.children if c.type == "argument_list" and c.named_children), None)
            if mask is not None:
                first = mask.named_children[0]
                value = source[first.start_byte : first.end_byte]
                for bit in range(LANES):
                    yield made(first, f"bit {bit} left out", f"({value} & ~(1u << {bit}))")
        for guard in _guards(node):
            yield from _conditions(guard, source, made)


def halved(source: str) -> Iterator[Weakened]:
    """Each operation that has a mask of lanes, made by the first half of its warp alone."""
    plain = _WORDS.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), source)
    tree = tree_sitter.Parser(tree_sitter.Language(tree_sitter_cpp.language())).parse(plain.encode())
    for node in _nodes(tree.root_node):
        text = source[node.start_byte : node.end_byte]
        if node.type == "call_expression" and COLLECTIVE.fullmatch(text.partition("(")[0]):
            alone = text.startswith("__syncwarp")
            new = f"{HALF} ? {text} : 0" if not alone else f"if ({HALF}) {text}"
            changed = source[: node.start_byte] + (new if alone else f"({new})") + source[node.end_byte :]
            yield Weakened(node.start_point.row + 1, " ".join(text.split()), "by half of the lanes", changed)


def _nodes(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from _nodes(child)


def _counts(node: Node, text: str, made: Made) -> Iterator[Weakened]:
    """A wait that lets one more group be pending."""
    found = COUNTED.search(text)
    if found is None:
        return
    if found.group(1) == "%0":
        yield made(node, "one group more may be pending", re.sub(r'"n"\((.*?)\)(?=\s*[:)])', r'"n"((\1) + 1)', text, count=1))
    else:
        start, end = found.span(1)
        yield made(node, "one group more may be pending", f"{text[:start]}{int(found.group(1)) + 1}{text[end:]}")


def _guards(node: Node) -> Iterator[Node]:
    """The conditions of branches, of choices between values where one is read from memory or a truth value decides, of loops that a
    thread walks from its own number, and truth values that are given a name."""
    condition = node.child_by_field_name("condition")
    if node.type == "if_statement" and condition is not None:
        yield condition
    elif node.type == "conditional_expression" and condition is not None:
        arms = [node.child_by_field_name("consequence"), node.child_by_field_name("alternative")]
        if condition.type == "identifier" or any(x.type in _MEMORY for arm in arms if arm is not None for x in _nodes(arm)):
            yield condition
    elif node.type == "for_statement" and condition is not None:
        start = node.child_by_field_name("initializer")
        if start is not None and re.search(rb"=\s*t\b", start.text or b""):
            yield condition
    elif node.type == "declaration" and (kind := node.child_by_field_name("type")) is not None and kind.text == b"bool":
        for child in node.children:
            value = child.child_by_field_name("value") if child.type == "init_declarator" else None
            if value is not None:
                yield value


def _conditions(node: Node, source: str, made: Made) -> Iterator[Weakened]:
    """Each conjunct of a condition dropped, and each comparison made to let one more in. A loop's condition is only weakened."""
    if node.type in ("condition_clause", "parenthesized_expression") and len(node.named_children) == 1:
        yield from _conditions(node.named_children[0], source, made)
        return
    op, left, right = (node.child_by_field_name(name) for name in ("operator", "left", "right"))
    if node.type != "binary_expression" or op is None or left is None or right is None:
        yield made(node, "dropped", "true")
        return
    if op.type == "&&":
        yield from _conditions(left, source, made)
        yield from _conditions(right, source, made)
        return
    if node.parent is None or node.parent.type != "for_statement":
        yield made(node, "dropped", "true")
    a, b = (source[s.start_byte : s.end_byte] for s in (left, right))
    if op.type in ("<", ">"):
        yield made(node, f"`{op.type}` made `{op.type}=`", f"{a} {op.type}= {b}")
    if op.type in ("<", "<=", ">", ">="):
        yield made(node, "its bound moved by one", f"{a} {op.type} ({b}) {'+' if op.type[0] == '<' else '-'} 1")
    elif op.type == "==" and right.type == "number_literal":
        yield made(node, "one more let in", f"({a} == {b} || {a} == ({b} ^ 1))")
