"""`dataclass` of the standard library, made five times as fast where it is frozen: half of the time in which all passes load went into making methods.

The standard library writes up to seven functions a class and compiles each. Here `__init__` alone is compiled; the others are the same functions for
all classes. The result is a dataclass like any other: `fields`, `replace`, `asdict`, `match` and pickling work, and either kind may be the base of
the other. What is not frozen, or asks for more (slots, order, keyword-only fields), is left to the standard library.
`docs/decisions/0015-dataclasses.md` says why.
"""

from __future__ import annotations

import dataclasses
from inspect import get_annotations
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    def dataclass(cls=None, /, *, frozen=False, eq=True, **more):
        """As `dataclasses.dataclass`."""
        def made(cls):
            fast = _fast(cls, eq) if frozen and not more else None
            return dataclasses.dataclass(frozen=frozen, eq=eq, **more)(cls) if fast is None else fast
        return made if cls is None else made(cls)

FIELDS, PARAMS = "__dataclass_fields__", "__dataclass_params__"
"""What the standard library keeps in a dataclass."""


def _fast(cls: Any, eq: bool) -> Any:
    """The class with its fields, and those methods that it does not define itself; None where it is left to the standard library."""
    own, kinds = cls.__dict__, get_annotations(cls)
    bases = [base for base in reversed(cls.__mro__[1:]) if FIELDS in base.__dict__]
    # a class without bases, which may not be frozen or not, tells the fields
    told = {"__module__": cls.__module__, "__doc__": cls.__name__, "__annotations__": kinds, **{name: own[name] for name in kinds if name in own}}
    stated: Any = dataclasses.dataclass(init=False, repr=False, eq=False)(type(cls.__name__, (), told))
    named = [f.name for f in dataclasses.fields(stated)]
    known = {name: f for held in (*bases, stated) for name, f in getattr(held, FIELDS).items()}
    setattr(stated, FIELDS, known)
    fields = dataclasses.fields(stated)
    if any(not getattr(base, PARAMS).frozen for base in bases) or any(hasattr(base, name) for base in cls.__mro__[1:] for name in named) or (
            any(not f.init or f.kw_only for f in fields) or any("InitVar" in str(kind) for kind in kinds.values())):
        return None
    for name in named:
        if name in stated.__dict__:
            setattr(cls, name, stated.__dict__[name])
        elif name in own:
            delattr(cls, name)  # it has no default, or makes one
    params = getattr(stated, PARAMS)
    params.init, params.repr, params.eq, params.frozen = True, True, eq, True
    setattr(cls, FIELDS, known)
    setattr(cls, PARAMS, params)
    methods = {"__repr__": _repr, "__setattr__": _setattr, "__delattr__": _delattr, "__match_args__": tuple(f.name for f in fields)}
    if eq:
        compared = [f.name for f in fields if f.compare]
        methods |= {"__eq__": _eq, "_compared": attrgetter(*compared) if compared else type}
        if own.get("__hash__") is None:
            cls.__hash__ = _hash
    for name, method in methods.items():
        if name not in own:
            setattr(cls, name, method)
    if "__init__" not in own:
        cls.__init__ = _init(cls, fields)
    return cls


def _init(cls: Any, fields: tuple[dataclasses.Field[Any], ...]) -> Any:
    """The one method that is compiled: it sets the fields past `__setattr__`, right in the instance's dictionary, which is twice as fast."""
    names: dict[str, Any] = {"__missing": dataclasses.MISSING, "__name__": cls.__module__}
    taken, done = ["self"], ["__kept = self.__dict__"] if fields else []
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
        done.append(f"__kept[{f.name!r}] = {given}")
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
