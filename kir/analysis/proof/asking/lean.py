"""The part of z3's module that questions are put in, a few times as fast: the same calls of its C interface, without what its Python wrappers ask before each.

`z3.And(a, b)` asks for the sort of each operand, compares it, looks for probes among them, and asks for errors afterwards; that took longer than the solver
took for the answers. Operands are what the caller says here: integers and truth values of the one context, or Python's numbers.
"""
from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache, lru_cache
from types import SimpleNamespace
from typing import Any

WORD = ctypes.c_void_p
NAMES = {"lt": "__lt__", "le": "__le__", "gt": "__gt__", "ge": "__ge__", "eq": "__eq__"}


class Lean:
    """As the module `z3`, of integers and truth values in its main context."""

    def __init__(self, z3: Any) -> None:
        self.z3, self.context = z3, z3.main_ctx()
        self.ref = int(self.context.ref().value)

        def function(name: str, *operands: Any, result: Any = WORD) -> Callable[..., Any]:
            address = ctypes.cast(getattr(z3.z3core, name).__defaults__[0].f, WORD).value
            return ctypes.PYFUNCTYPE(result, *operands)(address)  # type: ignore[arg-type]  # a prototype made of its types

        ref = self.ref
        keep, drop = (function(name, WORD, WORD, result=None) for name in ("Z3_inc_ref", "Z3_dec_ref"))
        many = {name: function(f"Z3_mk_{name}", WORD, ctypes.c_uint, WORD) for name in ("and", "or", "add", "mul", "sub", "distinct")}
        two = {name: function(f"Z3_mk_{name}", WORD, WORD, WORD) for name in ("lt", "le", "gt", "ge", "eq", "implies", "xor")}
        one = {name: function(f"Z3_mk_{name}", WORD, WORD) for name in ("not", "unary_minus")}
        choice = function("Z3_mk_ite", WORD, WORD, WORD, WORD)
        numeral, symbol = function("Z3_mk_numeral", WORD, ctypes.c_char_p, WORD), function("Z3_mk_string_symbol", WORD, ctypes.c_char_p)
        constant, applied = function("Z3_mk_const", WORD, WORD, WORD), function("Z3_mk_app", WORD, WORD, ctypes.c_uint, WORD)
        true, false = function("Z3_mk_true", WORD), function("Z3_mk_false", WORD)
        asserted = function("Z3_solver_assert", WORD, WORD, WORD, result=None)
        sorts = z3.IntSort(), z3.BoolSort()
        self._kept = sorts
        integer, boolean = (int(each.ast.value) for each in sorts)
        arrays = [WORD * k for k in range(9)]

        def all_of(make: Callable[..., Any], terms: Any) -> Term:
            count = len(terms)
            return Term(make(ref, count, (arrays[count] if count < 9 else WORD * count)(*[t.ast for t in terms])))

        class Term:
            """A term, kept as long as this."""

            __slots__ = ("ast",)
            __hash__ = object.__hash__

            def __init__(self, ast: int | None) -> None:
                if not ast:
                    raise z3.Z3Exception("a term of operands that do not fit")
                self.ast = ast
                keep(ref, ast)

            def __del__(self) -> None:
                if ast := getattr(self, "ast", None):
                    drop(ref, ast)

            def as_ast(self) -> Any:
                """For what z3's own module is asked."""
                return z3.Ast.from_buffer(WORD(self.ast))

            def __add__(self, other: Any) -> Term:
                return all_of(many["add"], (self, number(other)))

            def __sub__(self, other: Any) -> Term:
                return all_of(many["sub"], (self, number(other)))

            def __mul__(self, other: Any) -> Term:
                return all_of(many["mul"], (self, number(other)))

            def __rmul__(self, other: int) -> Term:
                return all_of(many["mul"], (number(other), self))

            def __neg__(self) -> Term:
                return Term(one["unary_minus"](ref, self.ast))

            def __ne__(self, other: object) -> Term:  # type: ignore[override]  # as z3's
                return all_of(many["distinct"], (self, number(other)))

        def comparison(name: str) -> Callable[[Term, Any], Term]:
            make = two[name]
            return lambda a, b: Term(make(ref, a.ast, number(b).ast))

        for name, method in NAMES.items():
            setattr(Term, method, comparison(name))

        @lru_cache(maxsize=1 << 12)
        def literal(value: int) -> Term:
            return Term(numeral(ref, str(value).encode(), integer))

        def number(value: Any) -> Term:
            return value if type(value) is Term else literal(value)

        def named(name: str, sort: int) -> Term:
            return Term(constant(ref, symbol(ref, name.encode()), sort))

        def function_of(name: str, *sorts: Any) -> Callable[..., Term]:
            declared = z3.Function(name, *(self._kept[each == boolean] for each in sorts))
            at = int(declared.ast.value)

            def apply(*operands: Term, declared: Any = declared) -> Term:
                return Term(applied(ref, at, len(operands), (WORD * len(operands))(*[t.ast for t in operands])))
            return apply

        def given(terms: tuple[Any, ...]) -> Any:
            return terms[0] if len(terms) == 1 and isinstance(terms[0], (list, tuple)) else terms

        self.IntSort, self.BoolSort, self.Const, self.Function = lambda: integer, lambda: boolean, named, function_of
        self.Int, self.Bool, self.IntVal = (lambda name: named(name, integer)), (lambda name: named(name, boolean)), literal
        self.BoolVal = lambda value: Term((true if value else false)(ref))
        self.And, self.Or = (lambda *terms: all_of(many["and"], given(terms))), (lambda *terms: all_of(many["or"], given(terms)))
        self.Not = lambda a: Term(one["not"](ref, a.ast))
        self.Implies, self.Xor = (lambda a, b: Term(two["implies"](ref, a.ast, b.ast))), (lambda a, b: Term(two["xor"](ref, a.ast, b.ast)))
        self.If = lambda cond, a, b: Term(choice(ref, cond.ast, number(a).ast, number(b).ast))
        self.Sum = lambda terms: all_of(many["add"], terms)
        self.asserted = lambda solver, term: asserted(ref, solver.solver.value, term.ast)


def plain(z3: Any) -> Any:
    """z3's own module in the place of `Lean`."""
    return SimpleNamespace(**{**vars(z3), "z3": z3, "asserted": lambda solver, term: solver.add(term)})


@cache
def lean() -> Any:
    """The one of this process; z3's own module where that is not made as `Lean` knows it. Raises ImportError without z3."""
    import z3

    try:
        return Lean(z3)
    except (AttributeError, IndexError, TypeError):
        return plain(z3)
