"""Which function reads which form of Python and word of TileLang: the one place where the parts of this frontend are joined."""

from __future__ import annotations

import libcst as cst

from . import assignments, branches, calls, control, displays, functions, launch, lookup, operators, subscripts, words
from .dispatch import Handlers
from .reader import Reader

HANDLERS: Handlers[Reader] = Handlers(
    expressions={
        cst.Integer: displays.literal, cst.Float: displays.literal, cst.SimpleString: displays.literal, cst.ConcatenatedString: displays.literal,
        cst.FormattedString: displays.formatted, cst.Tuple: displays.tuple_display, cst.List: displays.list_display, cst.Set: displays.list_display,
        cst.ListComp: displays.list_comprehension, cst.SetComp: displays.list_comprehension, cst.GeneratorExp: displays.generator,
        cst.Dict: displays.dict_display, cst.DictComp: displays.dict_comprehension,
        cst.Name: lookup.name, cst.Attribute: subscripts.attribute_reference, cst.Subscript: subscripts.subscription,
        cst.UnaryOperation: operators.unary_operation, cst.BinaryOperation: operators.binary_operation, cst.BooleanOperation: operators.boolean,
        cst.Comparison: operators.comparison, cst.IfExp: operators.conditional,
        cst.Call: calls.call, cst.Lambda: functions.anonymous,
    },
    statements={cst.If: branches.if_statement, cst.For: control.for_statement, cst.While: control.while_statement, cst.With: launch.with_statement},
    simple_statement=assignments.small,
    intrinsic=words.word,
)  # fmt: skip
