"""Which function reads which form of Python and word of TileLang: the one place where the parts of this frontend are joined."""

from __future__ import annotations

import libcst as cst

from ..expressions import displays, operators
from ..expressions.calls import call
from ..expressions.lookup import name
from ..expressions.subscripts import attribute_reference, subscription
from ..intrinsics.intrinsics import word
from ..state.functions import anonymous
from ..state.handlers import Handlers
from ..state.reader import Reader
from ..statements.assignments import small
from ..statements.branches import if_statement
from ..statements.loops import for_statement, while_statement
from .with_statement import with_statement

HANDLERS: Handlers[Reader] = Handlers(
    expressions={
        cst.Integer: displays.literal, cst.Float: displays.literal, cst.SimpleString: displays.literal, cst.ConcatenatedString: displays.literal,
        cst.FormattedString: displays.formatted, cst.Tuple: displays.tuple_display, cst.List: displays.list_display, cst.Set: displays.list_display,
        cst.ListComp: displays.list_comprehension, cst.SetComp: displays.list_comprehension, cst.GeneratorExp: displays.generator,
        cst.Dict: displays.dict_display, cst.DictComp: displays.dict_comprehension,
        cst.Name: name, cst.Attribute: attribute_reference, cst.Subscript: subscription,
        cst.UnaryOperation: operators.unary_operation, cst.BinaryOperation: operators.binary_operation, cst.BooleanOperation: operators.boolean,
        cst.Comparison: operators.comparison, cst.IfExp: operators.conditional,
        cst.Call: call, cst.Lambda: anonymous,
    },
    statements={cst.If: if_statement, cst.For: for_statement, cst.While: while_statement, cst.With: with_statement},
    simple_statement=small,
    intrinsic=word,
)  # fmt: skip
