"""A short text parsed by the tables of a Lark parser, in a third of the time that Lark takes: its tokens come from one loop, and what a rule makes is found
at once. Lark's own parser says what is wrong with a text, and where; this one only that something is."""
from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

from lark import Lark, Token, Tree
from lark.exceptions import LarkError
from lark.parse_tree_builder import ExpandSingleChild
from lark.parsers.lalr_analysis import Shift

_NEW = str.__new__
_LINE, _INDENT, _DEDENT, _END = "_NL", "_INDENT", "_DEDENT", "$END"
_Rule = tuple[Callable[[list[Any]], Any] | None, int, str]
"""What makes the tree of a rule, of how many parts (nothing where its one part stands for it), and the rule's name."""
_Scanned = tuple[tuple[re.Pattern[str], ...], frozenset[str], dict[str, Callable[[Token], Token]]]
"""Patterns of tokens, the kinds that are passed over, and what tells keywords from names."""


class Walker:
    """The tables of a parser whose lexer is contextual and whose lines are indented by spaces."""

    def __init__(self, lark: Lark) -> None:
        made: Any = lark.parser
        table, rules = made.parser._parse_table, made.parser.parser.callbacks
        self.lexers = made.lexer.lexer.lexers
        self.begin, self.ends = table.start_states, frozenset(table.end_states.values())
        of = cache(lambda rule: (_made(rules[rule], len(rule.expansion)), len(rule.expansion), rule.origin.name))
        self.states: dict[int, dict[str, Any]] = {
            state: {name: arg if kind is Shift else of(arg) for name, (kind, arg) in row.items()} for state, row in table.states.items()}
        self.scanned: dict[int, _Scanned] = {}
        self.chains: dict[tuple[int, str, str], int] = {}

    def _scanning(self, state: int) -> _Scanned:
        """What may come in a state."""
        lexer = self.lexers[state]
        words = lexer.scanner  # made when it is first asked for, and with it what tells keywords
        found = self.scanned[state] = tuple(words._mres), lexer.ignore_types, lexer.callback
        return found

    def _through(self, state: int, name: str, kind: str) -> int:
        """The state after a rule of one part and those of one part that end with it, before a token of that kind."""
        made, begun = name, state
        while True:
            after: int = self.states[begun][made]
            action = self.states[after].get(kind)
            if (kind == _END and after in self.ends) or not isinstance(action, tuple) or action[0] is not None:
                break
            made = action[2]
        self.chains[state, name, kind] = after
        return after

    def tree(self, text: str, start: str) -> Tree[Token]:
        """The tree of a text, whose tokens say their columns and no lines. Raises LarkError, without a word of what is wrong."""
        stack, made, indents = [self.begin[start]], list[Any](), [0]
        at, line, most, scanned, states, feed = 0, 0, len(text), self.scanned, self.states, self._feed
        while at < most:
            if text[at] == " ":
                at += 1
                continue
            patterns, ignored, words = scanned.get(stack[-1]) or self._scanning(stack[-1])
            for pattern in patterns:
                if (found := pattern.match(text, at)) is not None:
                    break
            else:
                raise LarkError
            kind, value, begun = found.lastgroup, found[0], at
            assert kind is not None
            at = found.end()
            if kind in ignored:
                continue
            token = _token(kind, value, begun - line, at - line)
            if kind in words:
                token = words[kind](token)
                kind = token.type
            feed(stack, made, kind, token, states)
            if kind != _LINE:
                continue
            deep = len(value) - value.rfind("\n") - 1
            line = at - deep
            if deep > indents[-1]:
                indents.append(deep)
                feed(stack, made, _INDENT, _token(_INDENT, "", 0, deep), states)
            while deep < indents[-1]:
                indents.pop()
                feed(stack, made, _DEDENT, _token(_DEDENT, "", 0, deep), states)
            if deep != indents[-1]:
                raise LarkError
        while len(indents) > 1:
            indents.pop()
            feed(stack, made, _DEDENT, _token(_DEDENT, "", 0, 0), states)
        feed(stack, made, _END, None, states)
        out: Tree[Token] = made[-1]
        return out

    def _feed(self, stack: list[int], made: list[Any], kind: str, token: Token | None, states: dict[int, dict[str, Any]]) -> None:
        """One token more: rules that end before it make their trees. The last one ends the text."""
        while True:
            action = states[stack[-1]].get(kind)
            if action is None:
                raise LarkError
            if action.__class__ is int:
                stack.append(action)
                made.append(token)
                return
            make, size, name = action
            if make is None:
                del stack[-1]
                after = self.chains.get((stack[-1], name, kind)) or self._through(stack[-1], name, kind)
                stack.append(after)
                if token is None and after in self.ends:
                    return
                continue
            if size:
                parts = made[-size:]
                del stack[-size:], made[-size:]
                made.append(make(parts))
            else:
                made.append(make([]))
            after = states[stack[-1]][name]
            stack.append(after)
            if token is None and after in self.ends:
                return


def _made(make: Callable[[list[Any]], Any], size: int) -> Callable[[list[Any]], Any] | None:
    return None if size == 1 and type(make) is ExpandSingleChild else make


def _token(kind: str, value: str, begun: int, ended: int) -> Token:
    made = _NEW(Token, value)
    made.type, made.value, made.start_pos, made.end_pos = kind, value, begun, ended
    made.line = made.end_line = 1
    made.column, made.end_column = begun + 1, ended + 1
    return made


@cache
def walker(lark: Lark) -> Walker:
    """The tables of a parser."""
    return Walker(lark)


__all__ = ["walker"]
