"""A statement that was found sound is not looked at again; whatever is done around it, the verifier says what it says of the same program made anew."""
from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kir.ir import nodes as n
from kir.ir.build import const
from kir.ir.parser import parse_program
from kir.ir.paths import Path as Place
from kir.ir.paths import roots
from kir.ir.rules.kept import of
from kir.ir.rules.verify import verify
from kir.ir.visit import statements
from kir.rewrite.edit import edit_block

ROOT = Path(__file__).parents[3] / "skills"
PROGRAMS = ("experts/gemm/gemm_sm90.kir", "experts/softmax/softmax.kir", "problems/layernorm/naive.kir", "experts/topk/topk_radix.kir")
MOST = 60
"""Places of a program that are tried."""


def places(program: n.Program) -> list[Place]:
    found: list[Place] = []

    def below(block: n.Block, at: Place) -> None:
        for i, s in enumerate(block):
            found.append((*at, i))
            match s:
                case n.For() | n.While():
                    below(s.body, (*at, i, "body"))
                case n.If():
                    below(s.then, (*at, i, "then"))
                    below(s.orelse, (*at, i, "orelse"))
                case n.Roles():
                    for k, r in enumerate(s.roles):
                        below(r.body, (*at, i, "roles", k, "body"))
                case _:
                    pass
    for name, body in roots(program):
        below(body, (name,))
    return found[::max(1, len(found) // MOST)]


def edited(block: n.Block, i: int) -> Iterator[n.Block]:
    """A block with one statement dropped, twice there, a place later, in a loop, and in a loop over threads."""
    s = block[i]
    yield (*block[:i], *block[i + 1:])
    yield (*block[:i], s, s, *block[i + 1:])
    yield (*block[:i], *block[i + 1:i + 2], s, *block[i + 2:])
    for loop in (x for x in statements(block) if isinstance(x, n.For)):
        yield (*block[:i], replace(loop, body=(s,)), *block[i + 1:])
        yield (*block[:i], replace(loop, body=(s,), kind="thread"), *block[i + 1:])
        break


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_verifier_says_the_same_of_a_program_made_of_old_statements(name: str) -> None:
    program = parse_program((ROOT / name).read_text(encoding="utf-8"), name)
    assert verify(program) == () == verify(program)
    faults = 0
    for place in places(program):
        for k in range(5):
            made = _changed(program, place, k)
            if made is not None:
                found = verify(made)
                assert found == verify(pickle.loads(pickle.dumps(made))), (place, k)
                faults += bool(found)
    assert faults > 5
    first = program.params[0]
    for other in (replace(program, params=program.params[1:]), replace(program, params=(replace(first, name="other"), *program.params[1:])),
                  replace(program, params=tuple(replace(p, role="in") if p.role == "out" else p for p in program.params)),
                  replace(program, kernels=tuple(replace(k, threads=const(32)) for k in program.kernels))):
        assert verify(other) == verify(pickle.loads(pickle.dumps(other)))
    assert verify(program) == ()


def _changed(program: n.Program, place: Place, k: int) -> n.Program | None:
    i = int(place[-1])
    made: list[n.Block] = []

    def edit(block: n.Block) -> n.Block:
        made.extend(list(edited(block, i))[k:k + 1])
        return made[0] if made else block
    changed = edit_block(program, place, edit)
    return changed if made else None


def test_what_a_statement_needs_and_defines() -> None:
    program = parse_program("""kir 1
program p
  size M: i32
  in A: f32[M, 64]
  out C: f32[M, 64]
kernel main grid (i: M) threads 128
  shared S: f32[64]
  for j in 0..64
    let x = A[i, j]
    S[j] = x
    C[i, j] = S[j] * 2.0
""", "p")
    loop = program.kernels[0].body[1]
    needs = of(loop)
    assert needs is not None and needs.defined == {"j", "x"}
    assert {name for name, _ in needs.values} == {"i", "M"} and {name for name, _ in needs.buffers} == {"A", "C", "S"}


def test_a_constant_that_is_none_any_more_is_none_for_what_follows() -> None:
    text = """kir 1
program p
  size M: i32
  in A: i32[M, 64]
  out C: i32[M, 64]
kernel main grid (i: M) threads 128
  let c = {value}
  let d = c + 1
  for j in 0..d static
    C[i, j] = A[i, j]
"""
    constant, loaded = (parse_program(text.format(value=v), "p") for v in ("3", "A[i, 0]"))
    assert verify(constant) == ()
    (kernel,) = constant.kernels
    made = replace(constant, kernels=(replace(kernel, body=(loaded.kernels[0].body[0], *kernel.body[1:])),))
    found = verify(made)
    assert found and found == verify(pickle.loads(pickle.dumps(made)))
