"""Values for what only a binding decides, where nothing launches a kernel in a way that can be followed: what the code beside it gives parameters of the same
names (tables of settings, calls, defaults), and usual numbers for the rest."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import combinations, islice, product
from pathlib import Path

import libcst as cst

from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.types import BOOL
from kir.ir.visit import transform, walk
from kir.surface.launches.values import FEW

from ..teams.warp_roles import evaluated
from ..values.names import DTYPES
from ..values.values import Items, TypeOf, Value
from .host_code import allocated_extents, keyword_extents, made_of, tensor_extents, unrolled_extents

USUAL = (64, 1024, 32_768)
"""Numbers for an extent of which nothing is said, one after the other."""
SHORT, THREADS = 2, 128
"""How long a list is, how large each of its elements, a cluster and a pipeline; threads of a CTA."""
FEW_OF = ("stage", "warp", "cluster", "split", "slot", "depth", "unroll", "buffers", "wgs")
"""What names of numbers speak of of which there are few."""
BYTES_OF = ("itemsize", "item_size", "element_size", "elem_size")
"""What names of the bytes of an element hold."""
TRIED = (64, 128, 32, 16, 8, 256, 4, 2, 1, 512, 1024)
"""Numbers that are tried for a condition to hold."""
CHANGED = ("int", "bool", "any", "str")
"""Kinds of metas that are changed for conditions to hold."""
MOST_FILES, MOST_BYTES = 12, 400_000
"""Files beside a kernel that are looked through, and how large they may be."""
MOST_STEPS = 10_000
"""Statements of the source that are followed, at most, before no more values are tried."""
ALIKE = 3
"""Names that a call or a signature of something else must share with a factory to be taken for one of its."""
Said = dict[str, Value]


@dataclass(frozen=True)
class Guess:
    """Values by the names of metas, names that stay sizes, what of them nothing says, and whether each number has a value."""

    given: Said
    sizes: tuple[str, ...]
    names: tuple[str, ...]
    whole: bool


@dataclass
class Asked:
    """What reading a function asks of the binding: conditions that are `needed` for it to be reached, by checks of its factory and by branches that leave
    before; `lists` whose elements are looked at, each with how many (0: all, however many there are); `choices` that texts and dtypes are compared with;
    metas that are `answered` once the others are known; and how many statements of the source were followed."""

    needed: list[n.Expr] = field(default_factory=list)
    lists: dict[str, int] = field(default_factory=dict)
    choices: dict[str, list[Value]] = field(default_factory=dict)
    answered: set[str] = field(default_factory=set)
    metas: dict[str, n.Meta] = field(default_factory=dict)
    steps: int = 0


def guesses(source: Path, owners: Sequence[cst.FunctionDef], node: cst.FunctionDef, asked: Asked) -> Iterator[Guess]:
    """Values under which a kernel may be read, those that leave the most open first. Conditions that are needed hold under each, as far as values
    decide them; lists are given by their elements, as many as are looked at, and texts and dtypes are among their choices."""
    metas = [m for m in asked.metas.values() if m.name not in asked.answered]
    lists, choices = asked.lists, asked.choices
    wanted = {m.name: m for m in metas if m.name not in lists}
    said: Said = {}
    for name, value in stated(source, [f.name.value for f in owners], {*wanted, *lists}).items():
        if name in lists and isinstance(value, Items):
            said |= _elements(name, value.items)
        elif fits(wanted.get(name), value):
            said[name] = value
    free: Said = {m.name: v for m in metas if m.name not in said and (v := _of_kind(m, choices.get(m.name, ()))) is not None}
    for name in lists:
        if f"{name}_0" not in said:
            free.update(_elements(name, _items(name, lists, lambda x: _of_kind(wanted[x], choices.get(x, ())) if x in wanted else None)))
    whole = [k for k, m in wanted.items() if m.kind == "int" and m.default is None and k not in said and k not in free]
    shapes = made_of(tensor_extents(node), owners) - made_of(allocated_extents(node), owners)
    open_ = tuple(x for x in whole if x in shapes)
    numbers = {**{x: SHORT for x in whole if any(word in x.lower() for word in FEW_OF)}, **dict.fromkeys(unrolled_extents(node), FEW),
               **dict.fromkeys(made_of(keyword_extents(node, "cluster_dims"), owners), SHORT), **{x: THREADS for x in whole if "threads" in x.lower()}}
    width = next((v.dtype.bits // 8 for v in (*said.values(), *free.values()) if isinstance(v, TypeOf)), SHORT)
    numbers |= {x: width for x in whole if any(word in x.lower() for word in BYTES_OF)}
    tried: list[tuple[Said, tuple[str, ...]]] = [(said, ()), ({**said, **free}, ())]
    for k, number in enumerate(USUAL):
        given = {**said, **free, **{x: numbers.get(x, number) for x in whole}}
        tried += [({x: v for x, v in given.items() if x not in open_}, open_)] if open_ and not k else []
        tried += [(given, ())]
    before: list[tuple[Said, tuple[str, ...]]] = []
    for given, sizes in tried:
        made = repaired(given, asked.needed, {m.name: m.kind for m in metas}, {*said})
        if (made, sizes) not in before:
            before.append((made, sizes))
            yield Guess(made, sizes, tuple(k for k in made if k not in said or made[k] != said[k]), made.keys() >= {*whole})


def _items(name: str, lists: Mapping[str, int], of_kind: Callable[[str], Value]) -> list[Value]:
    """Elements of a list: as many as are looked at, or else as other lists have; those that are lists have their own."""
    parts = [f"{name}_{at}" for at in range(lists[name] or max(lists.values()) or SHORT)]
    return [Items(tuple(_items(x, lists, of_kind))) if x in lists else SHORT if (v := of_kind(x)) is None else v for x in parts]


def _elements(name: str, items: Sequence[Value]) -> Said:
    """The elements of a list by the names that a binding has for them."""
    return {**{f"{name}_{at}": v for at, v in enumerate(items)}, f"{name}_last": items[-1]} if items else {}


def fits(m: n.Meta | None, v: Value) -> bool:
    """Whether a value is of a meta's kind."""
    match m.kind if m is not None else "":
        case "":
            return False
        case "int":
            return type(v) is int
        case "bool":
            return isinstance(v, bool)
        case "float":
            return isinstance(v, (int, float)) and not isinstance(v, bool)
        case "dtype":
            return isinstance(v, TypeOf)
        case "str":
            return isinstance(v, str)
        case _:
            return not isinstance(v, Items)


def _of_kind(m: n.Meta, choices: Sequence[Value]) -> Value:
    """A value for a meta that is no number, without a default; None where there is none."""
    if m.default is not None:
        return None
    usual = TypeOf(DTYPES["float32" if m.name.startswith("acc") else "float16"])
    own = [x for x in choices if isinstance(x, TypeOf) == (m.kind == "dtype")]
    if m.kind == "dtype":
        own += [TypeOf(DTYPES[x]) for x in choices if isinstance(x, str) and x in DTYPES]
    if m.kind == "dtype":
        return usual if usual in own or not own else own[0]
    return False if m.kind == "bool" else own[0] if own and m.kind in ("str", "any") else "float16" if m.kind == "str" and not own else None


def repaired(given: Said, needed: Sequence[n.Expr], kinds: Mapping[str, str], firm: set[str]) -> Said:
    """The values with others for some that conditions speak of, so that more of them hold: one or two at a time, `firm` ones last."""
    made, failing = dict(given), _failing(given, needed)
    texts: dict[str, list[Value]] = {}
    for x in (x for cond in needed for x in walk(cond) if isinstance(x, n.Call) and x.fn == "meta_is"):
        if isinstance(var := x.args[0], n.Var) and (text := str(dict(x.attrs)["value"])) != "None":
            texts.setdefault(var.name, []).append(text)
    for _ in range(len(failing)):
        for cond in failing:
            asked = [x.name for x in dict.fromkeys(x for x in walk(cond) if isinstance(x, n.Var)) if x.name in made and kinds.get(x.name) in CHANGED]
            asked.sort(key=lambda x: x in firm)
            some_of = (*((x,) for x in asked), *combinations(asked, 2))
            better = next((each for some in some_of for values in product(*(_values(made[x], texts.get(x, [])) for x in some))
                           if len(_failing(each := {**made, **dict(zip(some, values, strict=True))}, needed)) < len(failing)), None)
            if better is not None:
                made, failing = better, _failing(better, needed)
                break
        else:
            break
    return made


def _values(held: Value, texts: Sequence[Value]) -> Sequence[Value]:
    """Other values of the kind of one."""
    match held:
        case bool():
            return [not held]
        case int():
            return [x for x in TRIED if x != held]
        case str():
            return [x for x in texts if x != held]
        case _:
            return []


def _failing(given: Said, needed: Sequence[n.Expr]) -> list[n.Expr]:
    """The conditions that do not hold under these values; not those that they do not decide."""
    numbers = {k: int(v) for k, v in given.items() if isinstance(v, (bool, int))}

    def answered(old: n.Node, new: n.Node) -> n.Node:
        if not (isinstance(new, n.Call) and new.fn in ("meta_is", "meta_true") and isinstance(var := new.args[0], n.Var) and var.name in given):
            return new
        held = given[var.name]
        return n.Const(bool(held) if new.fn == "meta_true" else str(held) == str(dict(new.attrs)["value"]), BOOL)

    return [cond for cond in needed if evaluated(transform(cond, answered), numbers, {}) == 0]


# ---------------------------------------------------------------------------------------------------------------- what code says
def stated(source: Path, factories: Sequence[str], names: Collection[str]) -> Said:
    """What the code of a file, and of files beside it that name its factory, gives these names: those of one table or one call together, the one that
    has the most of them first."""
    out: Said = {}
    for tree in _trees(source, factories):
        groups = list(_groups(tree, factories, names))
        for group in sorted(groups, key=len, reverse=True):
            for name, value in group.items():
                out.setdefault(name, value)
    return out


def _trees(source: Path, factories: Sequence[str]) -> Iterator[ast.Module]:
    beside = sorted(p for p in source.parent.glob("*.py") if p.name != source.name) if source.parent.is_dir() else []
    naming = (p for p in beside if factories and any(_holds(p, name) for name in factories[:1]))
    for path in (source, *islice(naming, MOST_FILES)):
        try:
            data = path.read_bytes()
            if len(data) <= MOST_BYTES:
                yield ast.parse(data)
        except (OSError, SyntaxError, ValueError):
            continue


def _holds(path: Path, name: str) -> bool:
    try:
        return name.encode() in path.read_bytes()
    except OSError:
        return False


def _groups(tree: ast.Module, factories: Sequence[str], names: Collection[str]) -> Iterator[Said]:
    """What each table, call and signature of a file says of these names."""
    constants = {t.id: s.value for s in tree.body if isinstance(s, ast.Assign) for t in s.targets if isinstance(t, ast.Name)}
    order = {f.name: [a.arg for a in (*f.args.posonlyargs, *f.args.args)] for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) and f.name in factories}
    bodies = [tree.body, *(x.body for x in tree.body if isinstance(x, ast.ClassDef))]
    of_file = {id(s) for body in bodies for s in body}
    for x in ast.walk(tree):
        pairs: list[tuple[object, ast.expr]] = []
        least = 1
        match x:
            case ast.Dict():
                pairs = [(k.value, v) for k, v in zip(x.keys, x.values, strict=True) if isinstance(k, ast.Constant)]
            case ast.Call(func=ast.Name(id=word)) if word in order:
                pairs = [*zip(order[word], x.args), *((k.arg, k.value) for k in x.keywords)]
            case ast.Call(func=ast.Call(func=ast.Name(id=word))) if word in factories[:1] and len(factories) > 1 and factories[1] in order:
                pairs = [*zip(order[factories[1]], x.args), *((k.arg, k.value) for k in x.keywords)]
            case ast.Call():
                pairs, least = [(k.arg, k.value) for k in x.keywords], ALIKE
            case ast.FunctionDef():
                least = 1 if x.name in factories else ALIKE
                every = [*x.args.posonlyargs, *x.args.args]
                pairs = [(a.arg, v) for a, v in zip(every[len(every) - len(x.args.defaults):], x.args.defaults, strict=True)]
                pairs += [(a.arg, v) for a, v in zip(x.args.kwonlyargs, x.args.kw_defaults, strict=True) if v is not None]
            case ast.Assign(targets=[ast.Name(id=name)], value=value) | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value) if id(x) in of_file:
                pairs = [(name, value)]
            case _:
                continue
        found: Said = {str(k): v for k, e in pairs if k in names and (v := _literal(e, constants)) is not None}
        if len(found) >= least:
            yield found


def _literal(e: ast.expr, constants: Mapping[str, ast.expr], deep: bool = True) -> Value:
    """A number, a text or a dtype that is written out, or is a constant of the file; None for anything else."""
    match e:
        case ast.Constant(value=bool() | int() | float() as value):
            return value
        case ast.Constant(value=str() as value):
            return TypeOf(DTYPES[value]) if value in DTYPES else value
        case ast.Attribute(value=ast.Name(id="torch" | "T"), attr=word) if word in DTYPES:
            return TypeOf(DTYPES[word])
        case ast.Tuple(elts=parts) | ast.List(elts=parts) if parts:
            items = [_literal(x, constants, deep) for x in parts]
            return Items(tuple(items)) if None not in items else None
        case ast.Name(id=name) if deep and name in constants:
            return _literal(constants[name], constants, False)
        case _:
            return None
