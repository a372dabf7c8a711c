"""Which function reads which form of Python and word of TileLang: the one place where the parts of this frontend are joined."""

from __future__ import annotations

import libcst as cst

from . import displays, operators
from .assignments import small
from .branches import if_statement
from .calls import call
from .control import for_statement, while_statement
from .dispatch import Handlers
from .functions import anonymous
from .launch import with_statement
from .lookup import name
from .reader import Reader
from .subscripts import attribute_reference, subscription
from .words import word

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
