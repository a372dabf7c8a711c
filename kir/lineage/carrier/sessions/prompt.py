"""Prompts: jinja2 templates of the package, with a version and a hash that every record keeps."""
from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from kir.base.instructions import table
from kir.hardware.target import target
from kir.ir.nodes import Hole, Program
from kir.ir.printer import program_text
from kir.lineage.carrier.checking import Checked
from kir.lineage.carrier.contract import Contract, carriers
from kir.rewrite import Pass

VERSION = 1
NAMES = ("system", "task", "repair")
MOST_FINDINGS = 12
"""Diagnostics that a repair message shows."""
MOST_PROGRAM = 60_000
"""Characters of the surrounding program that a message shows."""
EXAMPLE = """kir 1
program largest
  size N: i32
  in X: f32[N]
  out M: f32[1]
kernel main grid () threads 64
  shared part: f32[64]
  for t in 0..64 parallel thread
    register most: f32 = -inf
    for i in t..N step 64
      most = max(most, X[i])
    part[t] = most
    barrier()
    for s in 0..6
      let far = 32 >> s
      if t < far
        part[t] = max(part[t], part[t + far])
      barrier()
    if t == 0
      M[0] = part[0]
"""
"""The answer that every prompt shows; a test checks and runs it."""
CARD_FIELDS = ("intent", "anchor", "carrier", "preconditions", "effect", "evidence", "risk", "scope", "log")


@cache
def _sources() -> Mapping[str, str]:
    folder = resources.files("kir.lineage.carrier") / "prompts"
    return {name: (folder / f"{name}.j2").read_text(encoding="utf-8") for name in NAMES}


@cache
def templates_hash() -> str:
    """sha256, in hex, of the version and all templates."""
    digest = hashlib.sha256(f"{VERSION}\n".encode())
    for name in NAMES:
        text = _sources()[name].encode()
        digest.update(f"{name} {len(text)}\n".encode() + text)
    return digest.hexdigest()


@cache
def _environment() -> Any:
    from jinja2 import DictLoader, Environment, StrictUndefined
    return Environment(loader=DictLoader(dict(_sources())), undefined=StrictUndefined, keep_trailing_newline=False, autoescape=False)


def _render(name: str, **values: Any) -> str:
    return str(_environment().get_template(name).render(**values)).strip() + "\n"


def system(contract: Contract, dtype: str) -> str:
    """What stands before the conversation: the form of an answer."""
    grammar = (resources.files("kir.grammars") / "kir.lark").read_text(encoding="utf-8")
    calls: dict[str, list[str]] = {}
    for row in table().values():
        least, most = row.args
        calls.setdefault(row.level, []).append(f"{row.name}({least if least == most else f'{least}..{most}'})")
    return _render("system", contract=_contract(contract), signature=signature(contract, dtype), grammar=_indented(grammar), calls=calls,
                   example=_indented(EXAMPLE))


def task(contract: Contract, program: Program, hole: Hole, anchor: str, dtype: str, card: Mapping[str, str] | None = None) -> str:
    """The first message: the card's nine fields, the contract with its oracle, the target's limits, the surrounding program."""
    text = program_text(program)
    if len(text) > MOST_PROGRAM:
        text = f"{text[:MOST_PROGRAM]}\n# .. {len(text) - MOST_PROGRAM} characters more\n"
    a = target(contract.spec.budget.target).architecture
    machine = {"architecture": a.name, "shared memory of a CTA": f"{a.shared_per_cta} bytes", "registers of an SM": a.registers_per_sm,
               "registers of a thread": a.max_registers_per_thread, "threads of a CTA": a.max_threads_per_cta, "threads of a warp": a.warp_size}
    oracle = (contract.folder / "reference.py").read_text(encoding="utf-8")
    return _render("task", contract=_contract(contract), card=dict(card or card_of(contract, anchor)), program=text, hole=hole.name, dtype=dtype,
                   machine=machine, oracle=oracle)


def repair(verdict: Checked, left: int) -> str:
    """The message after a refusal: its stage, and its diagnostics with the lines that they point at."""
    shown = "\n\n".join(d.render(source=verdict.answer.text) for d in verdict.diagnostics[:MOST_FINDINGS])
    return _render("repair", stage=verdict.stage, findings=shown, left=left)


def signature(contract: Contract, dtype: str) -> str:
    """The header of an answer in IR text."""
    lines = [f"  size {name}: i32" for name in contract.sizes]
    lines += [f"  {t.role} {t.name}: {dtype if t.dtype == 'T' else t.dtype}[{', '.join(t.shape)}]" for t in contract.spec.tensors]
    lines += [f"  fact {text}" for text in contract.spec.facts]
    return "\n".join([f"    kir 1\n    program {contract.spec.name.replace('-', '_')}", *(f"    {line}" for line in lines)])


def _contract(contract: Contract) -> dict[str, Any]:
    return contract.to_json()


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" if line else "" for line in text.splitlines())


def card_of(contract: Contract, anchor: str) -> dict[str, str]:
    """The nine fields of a card for a step that is not recorded yet: what the pass and its contract declare."""
    found = next((cls for cls, c in carriers() if c.id == contract.id), None)
    said: type[Pass] | None = found
    conditions = "; ".join(f"{p.id} {p.sentence}" for p in said.preconditions) if said is not None else ""
    values = (said.intent if said is not None else contract.spec.title, anchor, f"a hole with the contract {contract.id}", conditions or "none declared",
              (said.claim if said is not None else "") or "none predicted", "none yet",
              f"numerics: {said.numerics}" if said is not None else "as the contract's error bound",
              f"{contract.spec.level}, any size under the facts", "empty")
    return dict(zip(CARD_FIELDS, values, strict=True))
