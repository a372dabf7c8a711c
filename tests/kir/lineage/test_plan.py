"""Looking ahead: dead ends of the declared order are avoided by putting passes off."""

from __future__ import annotations

from collections.abc import Sequence

from kir.base.diagnostic import error
from kir.ir.nodes import Program
from kir.lineage.candidates import Candidate
from kir.lineage.plan import descend, plan
from kir.lineage.walk import Move
from tests.kir.lineage.toy import ToyEngine, expert, names


class Ordered(ToyEngine):
    """``after`` says which attributes must be gone before a name can go."""

    def __init__(self, after: dict[str, str]) -> None:
        super().__init__()
        self.after = after

    def backward(self, program: Program, candidate: Candidate) -> Move:
        if missing := [name for name in self.after.get(candidate.name, "") if name not in names(program)]:
            raise error("KIR-R999", f"{candidate.name} needs {missing[0]}")
        return super().backward(program, candidate)


def delays(after: dict[str, str], most: int = 100) -> tuple[Sequence[str], int]:
    found = plan(expert(), Ordered(after), most)
    return found.delayed, found.violations


def test_an_order_that_works_is_kept() -> None:
    assert delays({}) == ((), 0)


def test_a_pass_that_bars_another_is_put_off() -> None:
    # `c` can go only while `a` is there: the order a, b, c ends with c.
    assert descend(expert(), Ordered({"c": "a"}), ()).violations == 1
    assert delays({"c": "a"}) == (("a",), 0)


def test_two_passes_are_put_off_together() -> None:
    found, left = delays({"c": "ab"})
    assert set(found) == {"a", "b"} and left == 0


class Either(ToyEngine):
    """``c`` can go only while ``a`` or ``b`` is there."""

    def backward(self, program: Program, candidate: Candidate) -> Move:
        if candidate.name == "c" and not {"a", "b"} & set(names(program)):
            raise error("KIR-R999", "c does not go here")
        return super().backward(program, candidate)


def test_of_two_that_would_do_what_is_undone_last_is_put_off_unless_told_otherwise() -> None:
    assert plan(expert(), Either()).delayed == ("b",)
    assert plan(expert(), Either(), first=("a",)).delayed == ("a",)


def test_what_cannot_be_reached_ends_the_search() -> None:
    assert delays({"b": "x"})[1] == 1
    assert delays({"c": "ab"}, most=3)[1] > 0


class Barred(ToyEngine):
    """``b`` can go only once ``a`` has gone and ``c`` only while ``b`` is there; the declared order would take ``c`` behind ``b``."""

    def backward(self, program: Program, candidate: Candidate) -> Move:
        there = names(program)
        if (candidate.name == "b" and "a" in there) or (candidate.name == "c" and "b" not in there):
            raise error("KIR-R999", f"{candidate.name} does not go here")
        return super().backward(program, candidate)


def test_what_is_put_off_is_itself_in_an_order() -> None:
    class First(Barred):
        def candidates(self, program: Program, delayed: Sequence[str] = ()) -> Sequence[Candidate]:
            found = super().candidates(program, delayed)
            return sorted(found, key=lambda each: list(delayed).index(each.name) if each.name in delayed else -1)
    found = plan(expert(), First())
    assert found.violations == 0 and found.delayed[-1] in ("a", "b")


def test_orders_that_change_nothing_are_not_tried() -> None:
    told: list[str] = []
    plan(expert(), Ordered({"b": "x"}), told=told.append)
    assert told and not any(line.startswith("put off b:") for line in told)


def test_a_plan_whose_time_is_over_ends_where_it_is() -> None:
    """In the midst of its first way, too: what it has come to is what is known."""
    left = iter([False, True])
    found = plan(expert(), ToyEngine(), late=lambda: next(left, True))
    assert found.delayed == () and len(found.used) == 1 and found.violations > 0
