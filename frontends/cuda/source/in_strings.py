"""CUDA C++ that stands in strings of a Python file, as `torch.utils.cpp_extension.load_inline` compiles it."""
from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator

_CODE = re.compile(r"(?s)(__global__|<<<|__device__|torch::Tensor|at::Tensor).*[;}]")
_OPENING = re.compile(r"[rRbBuU]*('''|\"\"\"|'|\")")


def only_strings(text: str) -> str:
    """A Python file with nothing left but its strings of CUDA C++, each where it stands, so that lines and columns are the file's own; all else is blank.
    A file that is no Python is blank."""
    lines = text.split("\n")
    kept = [[" "] * len(line) for line in lines]
    for (row, at), (last, end) in _strings(text):
        for k in range(row, last + 1):
            first, stop = at if k == row else 0, end if k == last else len(lines[k])
            kept[k][first:stop] = lines[k][first:stop]
    return "\n".join("".join(line) for line in kept)


def _strings(text: str) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Where the contents of each string of CUDA begin and end: lines from 0, and columns."""
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.STRING and (opening := _OPENING.match(token.string)) and _CODE.search(token.string):
                (row, column), (last, end) = token.start, token.end
                yield (row - 1, column + opening.end()), (last - 1, end - len(opening[1]))
    except (tokenize.TokenError, SyntaxError):
        return
