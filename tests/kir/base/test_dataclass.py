"""`kir.base.dataclass` makes what the standard library makes."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field
from functools import cached_property, partial
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kir.base import dataclass as module
from kir.base.dataclass import dataclass

KINDS = (dataclass, dataclasses.dataclass)
FIELDS: dict[str, Callable[[], Any]] = {
    "plain": lambda: dataclasses.MISSING, "default": lambda: 3, "made": lambda: field(default_factory=list),
    "apart": lambda: field(compare=False, repr=False), "apart_default": lambda: field(default=5, compare=False), "class": lambda: 7,
    "late": lambda: field(default=1, init=False), "only": lambda: field(default=2, kw_only=True),
}


def outcome(act: Callable[[], Any]) -> Any:
    """What a call gives, or the kind of error that it raises."""
    try:
        return act()
    except Exception as fault:
        return type(fault)


def built(kind: Any, kinds: list[str], eq: bool, bases: tuple[type, ...] = (), frozen: bool = True) -> Any:
    """A class of such fields."""
    names = {f"f{k}_{each}": each for k, each in enumerate(kinds)}
    annotations = {name: "ClassVar[int]" if each == "class" else "int" for name, each in names.items()}
    values = {name: value for name, each in names.items() if (value := FIELDS[each]()) is not dataclasses.MISSING}
    return kind(frozen=frozen, eq=eq)(type("Made", bases, {"__annotations__": annotations, "__module__": __name__, "__qualname__": "Made", **values}))


@given(st.lists(st.sampled_from(sorted(FIELDS)), max_size=4), st.lists(st.sampled_from(sorted(FIELDS)), max_size=2), st.booleans(),
       st.sampled_from(range(4)), st.booleans(), st.booleans())
def test_it_is_a_dataclass_like_any_other(base: list[str], kinds: list[str], eq: bool, mixed: int, frozen: bool,
                                          under_frozen: bool) -> None:
    """Fields, signature, equality, hash, text and copies are those of the standard library, whichever of the two made the base."""
    def law(outer: Any, inner: Any) -> list[Any]:
        under = outcome(lambda: built(inner, [f"{each}" for each in base], eq, frozen=under_frozen))
        cls = under if issubclass(under, Exception) else outcome(lambda: built(outer, kinds, eq, (under,), frozen))
        if issubclass(cls, Exception):
            return [cls]
        needed = [1] * sum(p.default is p.empty and p.kind is not p.KEYWORD_ONLY for name, p in inspect.signature(cls).parameters.items())
        a, b, c = cls(*needed), cls(*needed), outcome(lambda: cls(*needed, 9))
        return [[(f.name, f.type, f.compare, f.repr, f.init) for f in dataclasses.fields(cls)],
                list(inspect.signature(cls).parameters), repr(a), a == b, a == c, a != c, a == 1, outcome(lambda: hash(a) == hash(b)), repr(c),
                outcome(lambda: dataclasses.asdict(a)), repr(outcome(lambda: dataclasses.replace(a, **dict.fromkeys(list(vars(a))[:1], 4)))),
                cls.__match_args__, outcome(lambda: setattr(a, "new", 1)), [outcome(partial(setattr, a, name, 1)) for name in list(vars(a))],
                [outcome(partial(delattr, a, name)) for name in list(vars(a))], outcome(lambda: cls(*needed, 1, 2, 3, 4, 5, 6, 7)),
                {n: v for n, v in vars(cls).items() if n.startswith("f")}]

    assert law(KINDS[mixed % 2], KINDS[mixed // 2]) == law(dataclasses.dataclass, dataclasses.dataclass)


@dataclass(frozen=True)
class Point:
    """A class of the usual kind."""

    x: int
    y: tuple[int, ...] = ()
    seen: list[int] = field(default_factory=list, compare=False, repr=False)
    KIND: ClassVar[str] = "point"

    @cached_property
    def total(self) -> int:
        """Kept in the instance."""
        return self.x + sum(self.y)


@dataclass(frozen=True)
class Named(Point):
    """A subclass with a check, and an equality of its own."""

    name: str = ""

    def __post_init__(self) -> None:
        if self.x < 0:
            raise ValueError("below zero")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and self.name == other.name

    def __repr__(self) -> str:
        return self.name


def test_what_a_class_defines_itself_stays() -> None:
    a, b = Named(1, name="a"), Named(2, name="a")
    assert a == b and repr(a) == "a" and a.total == 1 and Named.KIND == "point"
    with pytest.raises(ValueError, match="below zero"):
        Named(-1)


def test_a_frozen_instance_cannot_be_changed_and_travels() -> None:
    a = Point(1, (2, 3))
    assert pickle.loads(pickle.dumps(a)) == a and hash(a) == hash(Point(1, (2, 3))) and a.total == 6
    with pytest.raises(FrozenInstanceError, match="'x'"):
        a.x = 2  # type: ignore[misc]  # what is tested
    match a:
        case Point(x, y):
            assert (x, y) == (1, (2, 3))


def test_only_what_is_compiled_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """One function a class, once there is an instance: that is what makes it fast."""
    compiled = list[str]()

    def seen(text: str, names: dict[str, Any]) -> None:
        compiled.append(text)
        exec(text, names)

    monkeypatch.setattr(module, "exec", seen, raising=False)
    cls = built(dataclass, ["plain", "default", "made"], True)
    assert compiled == []
    assert cls(1) == cls(1) != cls(2)
    assert len(compiled) == 1 and compiled[0].startswith("def __init__(")
