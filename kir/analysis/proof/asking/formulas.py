"""Formulas of z3 and checks of them, through its C interface: a formula is a handle, and the same formula is the same handle. z3's own operators in Python
make an object of each and ask for the sort of each operand, which took half of the time of a proof.

All that a context makes lives as long as it does. One is made for each kernel: z3 goes by the order in which it met terms, so that what it says of a kernel
does not depend on which others were asked about before."""
from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any, Final, NewType

Formula = NewType("Formula", int)
"""A term or a condition: its address in z3's memory."""
_WORD, _NUMBER, _TEXT = ctypes.c_void_p, ctypes.c_uint, ctypes.c_char_p
_NO_OF_TWO, _OF_SOME = (_WORD, _WORD, _WORD), (_WORD, _NUMBER, _WORD)
_MADE: Final = {"not": (_WORD, _WORD), "unary_minus": (_WORD, _WORD), "true": (_WORD,), "false": (_WORD,), "int_sort": (_WORD,), "bool_sort": (_WORD,),
                **dict.fromkeys(("lt", "le", "gt", "ge", "eq", "xor", "implies", "const"), _NO_OF_TWO), "ite": (_WORD, _WORD, _WORD, _WORD),
                **dict.fromkeys(("and", "or", "add", "mul", "sub", "distinct"), _OF_SOME), "numeral": (_WORD, _TEXT, _WORD),
                "string_symbol": (_WORD, _TEXT), "func_decl": (_WORD, _WORD, _NUMBER, _WORD, _WORD), "app": (_WORD, _WORD, _NUMBER, _WORD),
                "config": (), "context": (_WORD,), "params": (_WORD,), "simple_solver": (_WORD,)}
"""What `Z3_mk_..` makes, with what it takes."""
_DONE: Final[dict[str, tuple[Any, tuple[Any, ...]]]] = {
    "del_config": (None, (_WORD,)), "del_context": (None, (_WORD,)), "set_error_handler": (None, (_WORD, _WORD)), "get_error_code": (ctypes.c_int, (_WORD,)),
    "get_error_msg": (_TEXT, (_WORD, ctypes.c_int)), "params_inc_ref": (None, (_WORD, _WORD)), "params_dec_ref": (None, (_WORD, _WORD)),
    "params_set_uint": (None, (_WORD, _WORD, _WORD, _NUMBER)), "solver_set_params": (None, (_WORD, _WORD, _WORD)),
    "solver_inc_ref": (None, (_WORD, _WORD)), "solver_dec_ref": (None, (_WORD, _WORD)), "solver_assert": (None, (_WORD, _WORD, _WORD)),
    "solver_check": (ctypes.c_int, (_WORD, _WORD)), "solver_get_model": (_WORD, (_WORD, _WORD)), "solver_get_statistics": (_WORD, (_WORD, _WORD)),
    "stats_inc_ref": (None, (_WORD, _WORD)), "stats_dec_ref": (None, (_WORD, _WORD)), "stats_size": (_NUMBER, (_WORD, _WORD)),
    "stats_get_key": (_TEXT, (_WORD, _WORD, _NUMBER)), "stats_get_uint_value": (_NUMBER, (_WORD, _WORD, _NUMBER)),
    "model_inc_ref": (None, (_WORD, _WORD)), "model_dec_ref": (None, (_WORD, _WORD)),
    "model_eval": (ctypes.c_bool, (_WORD, _WORD, _WORD, ctypes.c_bool, _WORD)), "get_numeral_string": (_TEXT, (_WORD, _WORD))}
"""What else is called: what it gives, and what it takes."""
_HANDLED = ctypes.CFUNCTYPE(None, _WORD, _NUMBER)(lambda context, code: None)
"""What z3 calls for an error, which is asked for behind what may have one."""
OUTCOME: Final = {1: "sat", -1: "unsat", 0: "unknown"}


@cache
def _library() -> Any:
    """z3's functions by their names without `Z3_`, with types of our own: handles are numbers."""
    from z3 import z3core  # long to load, and seldom asked

    typed = {**{f"mk_{name}": (_WORD, takes) for name, takes in _MADE.items()}, **_DONE}
    found = {name: ctypes.cast(getattr(z3core, f"Z3_{name}").__defaults__[0].f, _WORD).value or 0 for name in typed}
    return SimpleNamespace(**{name: ctypes.CFUNCTYPE(gives, *takes)(found[name]) for name, (gives, takes) in typed.items()})


class Model:
    """Values under which conditions hold, as long as its context."""

    def __init__(self, formulas: Formulas, model: int) -> None:
        self.formulas, self.model = formulas, model
        formulas.z3.model_inc_ref(formulas.context, model)

    def __del__(self) -> None:
        self.formulas.z3.model_dec_ref(self.formulas.context, self.model)

    def value(self, x: Formula) -> int:
        """The value of an integer; what the conditions do not speak of has some value too."""
        z3, context, out = self.formulas.z3, self.formulas.context, _WORD()
        z3.model_eval(context, self.model, x, True, ctypes.byref(out))
        return int(z3.get_numeral_string(context, out))


class Formulas:
    """A context: makes formulas, each once, and checks them."""

    def __init__(self) -> None:
        z3 = self.z3 = _library()
        config = z3.mk_config()
        self.context = z3.mk_context(config)
        z3.del_config(config)
        z3.set_error_handler(self.context, _HANDLED)
        self.int_sort, self.bool_sort = z3.mk_int_sort(self.context), z3.mk_bool_sort(self.context)
        self._kept: dict[Any, Formula] = {}
        self.true, self.false = Formula(z3.mk_true(self.context)), Formula(z3.mk_false(self.context))

    def __del__(self) -> None:
        self.z3.del_context(self.context)

    # ------------------------------------------------------------------------------------------------------------------- terms
    def _symbol(self, name: str) -> int:
        return int(self.z3.mk_string_symbol(self.context, name.encode()))

    def named(self, name: str, boolean: bool = False) -> Formula:
        """A constant: an integer, or a condition."""
        key = ("named", name, boolean)
        if key not in self._kept:
            self._kept[key] = self.z3.mk_const(self.context, self._symbol(name), self.bool_sort if boolean else self.int_sort)
        return self._kept[key]

    def number(self, c: int) -> Formula:
        """A literal."""
        key = ("number", c)
        if key not in self._kept:
            self._kept[key] = self.z3.mk_numeral(self.context, str(c).encode(), self.int_sort)
        return self._kept[key]

    def _of(self, op: str, *operands: Formula) -> Formula:
        """An operation that takes so many operands."""
        key = (op, operands)
        found = self._kept.get(key)
        if found is None:
            found = self._kept[key] = getattr(self.z3, f"mk_{op}")(self.context, *operands)
        return found

    def _of_some(self, op: str, operands: Sequence[Formula]) -> Formula:
        """An operation that takes any number of operands."""
        key = (op, *operands)
        found = self._kept.get(key)
        if found is None:
            found = self._kept[key] = getattr(self.z3, f"mk_{op}")(self.context, len(operands), _array(operands))
        return found

    def added(self, terms: Sequence[Formula]) -> Formula:
        """The sum of some integers."""
        return self._of_some("add", terms)

    def less(self, a: Formula, b: Formula) -> Formula:
        """a - b."""
        return self._of_some("sub", (a, b))

    def times(self, a: Formula, b: Formula) -> Formula:
        """a * b."""
        return self._of_some("mul", (a, b))

    def negative(self, a: Formula) -> Formula:
        """-a."""
        return self._of("unary_minus", a)

    def compared(self, op: str, a: Formula, b: Formula) -> Formula:
        """a op b, of lt, le, gt, ge, eq and ne; conditions may be equal too."""
        return self._of_some("distinct", (a, b)) if op == "ne" else self._of(op, a, b)

    def choice(self, of: Formula, a: Formula, b: Formula) -> Formula:
        """a where a condition holds, else b."""
        return self._of("ite", of, a, b)

    def applied(self, name: str, operands: Sequence[Formula], boolean: bool) -> Formula:
        """A function of integers of which nothing is known; its name goes with its operands' number and what it gives."""
        key = ("applied", name, boolean, *operands)
        if key not in self._kept:
            sorts = _array([self.int_sort] * len(operands))
            declared = self.z3.mk_func_decl(self.context, self._symbol(name), len(operands), sorts, self.bool_sort if boolean else self.int_sort)
            self._kept[key] = self.z3.mk_app(self.context, declared, len(operands), _array(operands))
        return self._kept[key]

    # -------------------------------------------------------------------------------------------------------------- conditions
    def no(self, a: Formula) -> Formula:
        """Not a."""
        return self._of("not", a)

    def every(self, conditions: Sequence[Formula]) -> Formula:
        """All of some conditions."""
        return self._of_some("and", conditions)

    def some(self, conditions: Sequence[Formula]) -> Formula:
        """One of some conditions, or more."""
        return self._of_some("or", conditions)

    def either(self, a: Formula, b: Formula) -> Formula:
        """One of two, and not the other."""
        return self._of("xor", a, b)

    def implies(self, a: Formula, b: Formula) -> Formula:
        """b where a holds."""
        return self._of("implies", a, b)

    # ------------------------------------------------------------------------------------------------------------------ checks
    def check(self, conditions: Iterable[Formula], most: int) -> tuple[str, Model | None, int]:
        """What the simple solver says of conditions in so many steps at most, with a model where they hold for some values; and the steps taken.
        Raises RuntimeError for an error of z3's."""
        z3, context = self.z3, self.context
        solver = z3.mk_simple_solver(context)
        z3.solver_inc_ref(context, solver)  # at once: the next object that is made takes the place of one that nobody refers to
        params = z3.mk_params(context)
        z3.params_inc_ref(context, params)
        z3.params_set_uint(context, params, self._symbol("rlimit"), most)
        z3.solver_set_params(context, solver, params)
        z3.params_dec_ref(context, params)
        try:
            asserted = z3.solver_assert
            for each in conditions:
                asserted(context, solver, each)
            before = self._steps(solver)
            outcome = OUTCOME[z3.solver_check(context, solver)]
            if code := z3.get_error_code(context):
                raise RuntimeError(z3.get_error_msg(context, code).decode())
            taken = self._steps(solver) - before
            return outcome, Model(self, z3.solver_get_model(context, solver)) if outcome == "sat" else None, taken
        finally:
            z3.solver_dec_ref(context, solver)

    def _steps(self, solver: int) -> int:
        """The steps that all checks of the context have taken so far."""
        z3, context = self.z3, self.context
        found = z3.solver_get_statistics(context, solver)
        z3.stats_inc_ref(context, found)
        steps = next((z3.stats_get_uint_value(context, found, k) for k in range(z3.stats_size(context, found))
                      if z3.stats_get_key(context, found, k) == b"rlimit count"), 0)
        z3.stats_dec_ref(context, found)
        return int(steps)


def _array(handles: Sequence[int]) -> Any:
    return _kind_of_array(len(handles))(*handles)


@cache
def _kind_of_array(length: int) -> Any:
    return _WORD * length


__all__ = ["Formula", "Formulas", "Model"]
