"""`dataclass` of the standard library, made five times as fast: half of the time in which all passes load went into making methods.

The standard library writes up to seven functions a class and compiles each. Here `__init__` alone is compiled, when a first instance is made; the
others are the same functions for all classes. The result is a dataclass like any other: `fields`, `replace`, `asdict`, `match` and pickling work, and
either kind may be the base of the other. What asks for more (slots, order, keyword-only fields) is left to the standard library.
`docs/decisions/0015-dataclasses.md` says why.
"""

from __future__ import annotations

import dataclasses
import sys
from operator import attrgetter
from reprlib import recursive_repr
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any, ClassVar

__all__ = ["dataclass", "replace"]

if TYPE_CHECKING:
    from dataclasses import dataclass, replace
else:
    def replace(item, /, **changes):
        """As `dataclasses.replace`; of a frozen class made here in a third of the time."""
        names = type(item).__dict__.get(COPIED)
        if names is None:
            return dataclasses.replace(item, **changes)
        made, old = object.__new__(type(item)), item.__dict__
        kept = made.__dict__
        for name in names:
            kept[name] = old[name]
        kept.update(changes)
        if len(kept) != len(names):
            raise TypeError(f"{type(item).__name__} has no field {', '.join(sorted(changes.keys() - set(names)))}")
        return made

    def dataclass(cls=None, /, *, frozen=False, eq=True, **more):
        """As `dataclasses.dataclass`."""
        def made(cls):
            fast = _fast(cls, eq, frozen) if not more else None
            return dataclasses.dataclass(frozen=frozen, eq=eq, **more)(cls) if fast is None else fast
        return made if cls is None else made(cls)

FIELDS, PARAMS, KIND = "__dataclass_fields__", "__dataclass_params__", "_field_type"
"""What the standard library keeps in a dataclass, and in a field."""
COPIED = "_copied_fields"
"""The names of all fields, kept in a class of which a copy is an instance with these in its dictionary."""


class _Example:
    """A class that the standard library is shown, for what it keeps in one."""

    field: int = 0


_PARAMS = {(eq, frozen): getattr(dataclasses.dataclass(eq=eq, frozen=frozen)(type("Example", (), dict(vars(_Example)))), PARAMS)
           for eq in (False, True) for frozen in (False, True)}
_PLAIN: Any = next(getattr(f, KIND) for f in getattr(dataclasses.dataclass(_Example), FIELDS).values())
"""What marks a field that is neither a class variable nor for `__init__` alone."""


def _stated(cls: Any) -> dict[str, Any] | None:
    """The fields that a class states itself, each plain; None where one is not."""
    own, stated, shared = cls.__dict__, dict[str, Any](), set[str]()
    for name, kind in own.get("__annotations__", {}).items():
        default = own.get(name, dataclasses.MISSING)
        if not isinstance(kind, str) or "InitVar" in kind or "KW_ONLY" in kind:
            return None
        if "ClassVar" in kind:
            known = getattr(sys.modules.get(cls.__module__), "ClassVar", None) is ClassVar
            if not known or not kind.startswith("ClassVar") or isinstance(default, dataclasses.Field):
                return None
            shared.add(name)
            continue
        field: Any = default if isinstance(default, dataclasses.Field) else dataclasses.field(default=default)
        if isinstance(default, MemberDescriptorType) or field.default.__class__.__hash__ is None or not field.init or field.kw_only is True:
            return None
        field.name, field.type, field.kw_only = name, kind, False
        setattr(field, KIND, _PLAIN)
        stated[name] = field
    for base in (*cls.__mro__[1:], *type(cls).__mro__):
        fields = base.__dict__.get(FIELDS, {})
        if not stated.keys().isdisjoint(base.__dict__) or any(getattr(fields[name], KIND) is _PLAIN for name in shared & fields.keys()):
            return None
    return None if any(isinstance(value, dataclasses.Field) and name not in stated for name, value in own.items()) else stated


def _fast(cls: Any, eq: bool, frozen: bool) -> Any:
    """The class with its fields, and those methods that it does not define itself; None where it is left to the standard library."""
    own, stated = cls.__dict__, _stated(cls)
    bases = [base for base in reversed(cls.__mro__[1:]) if FIELDS in base.__dict__]
    if stated is None or any(getattr(base, PARAMS).frozen != frozen for base in bases) or (not frozen and cls.__setattr__ is not object.__setattr__):
        return None
    known = {name: f for held in (*(getattr(base, FIELDS) for base in bases), stated) for name, f in held.items()}
    fields = tuple(f for f in known.values() if getattr(f, KIND) is _PLAIN)
    given = [f.default is not dataclasses.MISSING or f.default_factory is not dataclasses.MISSING for f in fields]
    if any(not f.init or f.kw_only for f in fields) or given != sorted(given) or "self" in known:
        return None
    for name, f in stated.items():
        if f.default is not dataclasses.MISSING:
            setattr(cls, name, f.default)
        elif name in own:
            delattr(cls, name)  # it has no default, or makes one
    setattr(cls, FIELDS, known)
    setattr(cls, PARAMS, _PARAMS[eq, frozen])
    methods = {"__init__": _Init(cls, fields, frozen), "__repr__": _repr, "__match_args__": tuple(f.name for f in fields)}
    if frozen:
        methods |= {"__setattr__": _setattr, "__delattr__": _delattr}
    if eq:
        compared = [f.name for f in fields if f.compare]
        methods |= {"__eq__": _eq, "_compared": attrgetter(*compared) if compared else type}
        if own.get("__hash__") is None:
            cls.__hash__ = _hash if frozen else None
    if frozen and not hasattr(cls, "__post_init__") and "__init__" not in own and "__slots__" not in own and cls.__new__ is object.__new__:
        setattr(cls, COPIED, tuple(f.name for f in fields))
    for name, method in methods.items():
        if name not in own:
            setattr(cls, name, method)
    return cls


class _Init:
    """`__init__` of a class until it is asked for: most classes of a run have no instance."""

    def __init__(self, cls: Any, fields: tuple[dataclasses.Field[Any], ...], frozen: bool) -> None:
        self.cls, self.fields, self.frozen = cls, fields, frozen

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if self.cls.__dict__.get("__init__") is self:
            self.cls.__init__ = _init(self.cls, self.fields, self.frozen)
        return self.cls.__init__.__get__(instance, owner)


def _init(cls: Any, fields: tuple[dataclasses.Field[Any], ...], frozen: bool) -> Any:
    """The one method that is compiled: of a frozen class it sets the fields past `__setattr__`, right in the instance's dictionary, which is twice as
    fast."""
    names: dict[str, Any] = {"__missing": dataclasses.MISSING, "__name__": cls.__module__}
    taken, done = ["self"], ["__kept = self.__dict__"] if fields and frozen else []
    for k, f in enumerate(fields):
        given = f.name
        if f.default is not dataclasses.MISSING:
            names[f"__default{k}"] = f.default
            taken.append(f"{f.name}=__default{k}")
        elif f.default_factory is not dataclasses.MISSING:
            names[f"__make{k}"] = f.default_factory
            taken.append(f"{f.name}=__missing")
            given = f"__make{k}() if {f.name} is __missing else {f.name}"
        else:
            taken.append(f.name)
        done.append(f"__kept[{f.name!r}] = {given}" if frozen else f"self.{f.name} = {given}")
    if hasattr(cls, "__post_init__"):
        done.append("self.__post_init__()")
    try:
        exec(f"def __init__({', '.join(taken)}):\n {'; '.join(done) or 'pass'}", names)
    except SyntaxError as bad:
        raise TypeError(f"{cls.__name__}: {bad.msg}") from None
    made = names["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    made.__annotations__ = {**{f.name: f.type for f in fields}, "return": None}
    return made


def _eq(self: Any, other: Any) -> Any:
    if self is other:
        return True
    return self._compared(self) == other._compared(other) if other.__class__ is self.__class__ else NotImplemented


def _hash(self: Any) -> int:
    return hash(self._compared(self))


@recursive_repr()
def _repr(self: Any) -> str:
    shown = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if f.repr)
    return f"{type(self).__qualname__}({shown})"


def _setattr(self: Any, name: str, value: object) -> None:
    if FIELDS in type(self).__dict__ or name in getattr(self, FIELDS):
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
    object.__setattr__(self, name, value)


def _delattr(self: Any, name: str) -> None:
    if FIELDS in type(self).__dict__ or name in getattr(self, FIELDS):
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
    object.__delattr__(self, name)
