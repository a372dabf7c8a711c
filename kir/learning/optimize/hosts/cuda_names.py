"""What names in CUDA host code mean where a kernel is launched: one thing, or what the way to the launch decides."""
from __future__ import annotations

import re

_GIVEN = (r"(?<![\w.>]){0}\s*(?:[-+*/%&|^]|<<|>>)?=(?!=)|(?<![\w.>]){0}\s*(?:\.\s*[xyz]\s*[-+*/]?=(?!=)|\+\+|--)|(?:\+\+|--|&|>>)\s*{0}\b"
          r"|(?<![\w.>]){0}\s*[({{]")
"""Where a name is given a value, or something may give it one: `{0}` stands for it."""
_OF_A_TYPE = re.compile(r"[A-Za-z_][\w:<>,\s]*[\s*&>]+$|(?:const\s+)?[A-Za-z_][\w:]*\s+\w+\s*=[^;(){}]*,\s*$")
"""What stands before a name that is declared there."""
_NO_TYPE = frozenset({"return", "else", "new", "delete", "throw", "case", "goto"})
_KNOWN = frozenset({"dim3", "min", "max", "std", "static_cast", "int", "unsigned", "long", "size_t", "int64_t", "int32_t", "uint32_t", "const", "auto"})
"""Names that mean one thing everywhere."""


def said_in_one_way(shown: str, at: int, words: str) -> bool:
    """Whether what is said at a place of a text (comments and strings blanked out) means one thing there, whatever way the code takes: each name in it is a
    parameter that is given nothing else, a macro, or declared with a value once. Members of objects and calls are not looked through."""
    start, end = _function(shown, at)
    return _means_one(shown, shown[start:end], words, set())


def _means_one(shown: str, inside: str, words: str, seen: set[str]) -> bool:
    words = re.sub(r"(?<=\w)\s*\.\s*[xyz]\b", "", words)  # whoever gives these a value gives the name one
    if re.search(r"->|\.\s*[A-Za-z_]", words):
        return False
    for name in {*re.findall(r"[A-Za-z_]\w*", words)} - _KNOWN - seen:
        if re.search(rf"^[ \t]*#[ \t]*define[ \t]+{name}\b", shown, re.MULTILINE):
            if len(re.findall(rf"^[ \t]*#[ \t]*(?:define|undef)[ \t]+{name}\b", shown, re.MULTILINE)) > 1:
                return False
            continue
        if re.search(rf"\b{name}\s*\(", words):
            return False
        where = inside if re.search(_GIVEN.format(name), inside) or _declared_in(inside, name) else shown
        given = list(re.finditer(_GIVEN.format(name), where))
        if not given and where is inside:
            continue  # a parameter
        if len(given) != 1:
            return False
        before = where[:given[0].start()]
        line = before[max(before.rfind(x) for x in ";{}(\n") + 1:]
        if not _OF_A_TYPE.search(line) or line.split()[0] in _NO_TYPE:
            return False
        value = where[given[0].end() - 1:].partition(";")[0]
        if not _means_one(shown, inside, value.lstrip("="), {*seen, name}):
            return False
    return True


def _declared_in(inside: str, name: str) -> bool:
    """Whether a function declares a name: as a parameter, or with a type before it."""
    return re.search(rf"[\w>][\s*&]+{name}\b", re.sub(r"\b(?:return|else|case)\b", ";", inside)) is not None


def _function(shown: str, at: int) -> tuple[int, int]:
    """The function around a place: from its parameters to its closing brace; the whole text where there is none."""
    opened, depth = list[int](), 0
    for k in range(at - 1, -1, -1):
        if shown[k] == "}":
            depth += 1
        elif shown[k] == "{":
            if depth == 0:
                opened.append(k)
            depth = max(0, depth - 1)
    for k in reversed(opened):  # the outermost one behind a list of parameters
        if re.search(r"\)\s*(?:const|noexcept|override|\s)*$", shown[:k]):
            close, level = shown.rfind(")", 0, k), 0
            for j in range(close, -1, -1):
                level += (shown[j] == ")") - (shown[j] == "(")
                if level == 0:
                    break
            last, level = len(shown), 0
            for i in range(k, len(shown)):
                level += (shown[i] == "{") - (shown[i] == "}")
                if level == 0:
                    last = i + 1
                    break
            return j, last
    return 0, len(shown)


__all__ = ["said_in_one_way"]
