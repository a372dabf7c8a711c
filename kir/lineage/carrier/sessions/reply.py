"""From what a model or a person wrote to an answer: the one block of code in it. Nothing else in a reply is looked at, let alone followed."""
from __future__ import annotations

import re

from kir.base.diagnostic import Origin, error
from kir.lineage.carrier.answer import Answer
from kir.lineage.carrier.contract import Contract

FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[ \t]*([\w+-]*)[^\n]*\n(.*?)^[ \t]*\1[ \t]*$", re.DOTALL | re.MULTILINE)
TAGS = {"kir": "kir", "cuda": "cuda", "cu": "cuda", "c++": "cuda", "cpp": "cuda", "triton": "triton", "tilelang": "tilelang"}
"""What a block may be marked with, and the surface it means."""


def extracted(contract: Contract, text: str, file: str = "<reply>") -> Answer:
    """The answer in a reply: its one fenced block that is marked with a surface, with one `toml` block as its binding; or the whole text
    when there is no fence. Blocks marked otherwise (`python`, `bash`, none) are not taken for an answer.

    Raises KirError KIR-H111, located in the reply, for none or several."""
    blocks = [(m[2].casefold(), m[3], m.start(2)) for m in FENCE.finditer(text.replace("\r\n", "\n"))]
    if not blocks and "```" not in text:
        return Answer(text.replace("\r\n", "\n"), "kir", file=file)
    answers = [(TAGS[tag], body) for tag, body, _ in blocks if tag in TAGS]
    bindings = [body for tag, body, _ in blocks if tag == "toml"]
    if len(answers) != 1 or len(bindings) > 1:
        marks = ", ".join(tag or "no mark" for tag, _, _ in blocks) or "an unclosed fence"
        place = blocks[-1][2] if blocks else text.find("```")
        said = f"{len(answers)} blocks are marked as an answer" + (f", {len(bindings)} as its binding" if bindings else "")
        raise error("KIR-H111", f"{said} (found: {marks})", origin=Origin.of(file, text, place, place + 3),
                    needs=f"exactly one fenced block marked {' or '.join(contract.spec.surfaces)}")
    surface, body = answers[0]
    return Answer(body, surface, bindings[0] if bindings else "", file)
