"""What it would take to read what is opaque, by the reason that a frontend gives."""
from __future__ import annotations

import re

_ROW = "a row in `grammars/instructions.toml`, with its meaning in the interpreter"
_NEEDS = (
    (r"no meaning for triton\.language\.(extra\.cann|extract_slice|insert_slice)", f"Ascend's own operations on parts of tiles: {_ROW}"),
    (r"no meaning for triton\.experimental\.tle\b.*(alloc|barrier|copy|ptr)",
     "FlagTree's shared memory and clusters: buffers of the thread dialect in a Triton surface"),
    (r"must be a literal integer, not a constexpr|extents change from round to round",
     "the values of a launch, under which sizes inside a sort written in Triton are numbers"),
    (r"there is no meaning for", _ROW),
    (r"a reduction of a scalar", "a reduction over no axes as its operand"),
    (r"a shape with a run-time value", "block shapes that a launch decides: another binding for each"),
    (r"'(ge|lt|gt|le|eq|ne|mul)' of a pointer and", "a parameter that is a pointer under one binding and a number under another: two programs"),
    (r"'(add|sub|div)' of .*pointer", "a parameter that is a pointer under one binding and a number under another: two programs"),
    (r"an element of a tile", "an operation that takes one element of a tile at a run-time index"),
    (r"a run-time value where a tuple is needed", "tuples that are chosen at run time"),
    (r"is of several kinds in a loop", "a loop unrolled once, so that its first round has a type of its own"),
    (r"an address (as|made of) an integer|a load through a run-time value",
     "pointers that are read from memory as integers: a cast between the two, with what it may point to"),
    (r"it returns a block pointer", "block pointers that helpers make and return: a view where the helper is called"),
    (r"a tuple index that is not known", "a tuple of which a run-time number picks: a branch for each part"),
    (r"attribute '\.\.' of a run-time value", "helpers that give host objects to a kernel: evaluated under its binding"),
    (r"a scaled product", "scaled products of operands packed along another axis, and of other formats"),
    (r"a function that the binding decides", "a launch that the package shows, and the function that it gives"),
    (r"it returns choice|(that|which) the binding decides$|choice where", "functions and values whose type a setting decides: a copy for each setting"),
    (r"'\*\*' of constexprs", "powers of metas"),
    (r"a type that depends on a condition of unusual form", "a dtype that a condition chooses which no dtype term says"),
    (r"random bits of another width", "philox on words of 64 bits"),
    (r"is a tuple, and changes in a loop", "a register for each part of a tuple"),
    (r"is a pointer or a pointer after a run-time branch", "a pointer that a run-time branch chooses among buffers"),
    (r"is .* or .* after a run-time branch", "a value whose type a run-time branch chooses: the branch copied with what follows it"),
    (r"must be a literal integer", "an axis that the binding decides: a copy for each axis"),
    (r"statement Raise", "host exceptions inside a kernel"),
    (r"'(eq|ne)' of a run-time value and a dtype", "dtypes as values of helper functions"),
    (r"the concatenation of a pointer", "tiles of pointers that are joined"),
    (r"tensor memory", "the memory and the products of Blackwell's tensor cores: a space in the IR, and rows of instructions with their meaning"),
    (r"'T\.access_ptr'", "an address as a value of the kernel: a view that a call may be given"),
    (r"tilelang\.language\.ptr as a dtype", "a tensor of addresses: memory that is found at run time"),
    (r"barrier of the whole grid", "a barrier of the whole grid, and a launch that keeps every CTA resident"),
    (r"bfloat16x2|'T\.abs2'", "dtypes of two elements, and the instructions that take them"),
    (r"calls itself", "recursion unrolled under a binding"),
    (r"there is no source for", "the module that it comes from, installed"),
    (r"a call of the host function", "the evaluator of host code to know that function"),
    (r"has a decorator that may replace it", "the decorator's own source, read"),
)
"""Reasons (patterns) and needs; the first that fits counts."""


def need(reason: str) -> str:
    """What it would take; "" for a reason that nothing is known of."""
    return next((text for pattern, text in _NEEDS if re.search(pattern, reason)), "")
