"""The arithmetic of #if."""
from __future__ import annotations

import re

_SPELLED = {"and": "&&", "or": "||", "not": "!", "bitand": "&", "bitor": "|", "xor": "^", "compl": "~", "not_eq": "!="}
"""Operators that C++ also spells as words."""
WORD = re.compile(r"[^\W\d]\w*")


class Arithmetic:
    """The value of a condition: integers, with identifiers that no macro defines taken as 0."""

    LEVELS = (("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", ">", "<=", ">="), ("<<", ">>"), ("+", "-"), ("*", "/", "%"))

    def __init__(self, tokens: list[str]) -> None:
        self.tokens, self.at = [_SPELLED.get(t, t) for t in tokens], 0

    def value(self) -> int:
        """The value of the whole condition. Raises ValueError for a token that is left over."""
        out = self._choice()
        if self.at != len(self.tokens):
            raise ValueError(self.tokens[self.at])
        return out

    def _choice(self) -> int:
        cond = self._level(0)
        if self._peek() != "?":
            return cond
        self.at += 1
        a = self._choice()
        if self._peek() != ":":
            raise ValueError("?")
        self.at += 1
        b = self._choice()
        return a if cond else b

    def _peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def _level(self, k: int) -> int:
        if k == len(self.LEVELS):
            return self._unary()
        left = self._level(k + 1)
        while (op := self._peek()) in self.LEVELS[k]:
            self.at += 1
            right = self._level(k + 1)
            left = self._apply(op, left, right)
        return left

    @staticmethod
    def _apply(op: str, a: int, b: int) -> int:
        match op:
            case "||":
                return int(bool(a) or bool(b))
            case "&&":
                return int(bool(a) and bool(b))
            case "/" | "%":
                q = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) if b else 0
                return q if op == "/" else a - q * b
            case _:
                table = {"|": a | b, "^": a ^ b, "&": a & b, "==": a == b, "!=": a != b, "<": a < b, ">": a > b, "<=": a <= b,
                         ">=": a >= b, "+": a + b, "-": a - b, "*": a * b}  # fmt: skip
                if op in ("<<", ">>"):
                    return (a << min(b, 64)) if op == "<<" else a >> b
                return int(table[op])

    def _unary(self) -> int:
        token = self._peek()
        self.at += 1
        match token:
            case "!":
                return int(not self._unary())
            case "-":
                return -self._unary()
            case "+":
                return self._unary()
            case "~":
                return ~self._unary()
            case "(":
                out = self._choice()
                if self._peek() != ")":
                    raise ValueError("(")
                self.at += 1
                return out
        if WORD.fullmatch(token):
            if self._peek() == "(":
                raise ValueError(token)
            return int(token == "true")
        if token.startswith("'") and len(token) == 3:
            return ord(token[1])
        return int(re.sub(r"[uUlL]+$", "", token.replace("'", "")), 0)
