"""What is wrong with a binding in itself, whatever its kernel: values that cannot be, names that two sections claim. At the value's own line."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping

from kir.base.diagnostic import KirError, did_you_mean
from kir.ir.binding import LAUNCH_OPTIONS, Binding, Setting, check_dtype
from kir.ir.types import DTYPES

NAME = re.compile(r"[^\W\d]\w*")
MOST = 2**31 - 1
"""The largest extent of a grid or an axis: what 32 bits index."""
BLOCK = ("threads_x", "threads_y", "threads_z")
MOST_THREADS = 1024
"""Threads of a CTA (CUDA programming guide, compute capabilities); 64 of them along z."""
SWIZZLES = (0, 32, 64, 128)
MOST_IN_BOX = 256
"""Elements of a tensor map's box along an axis (CUDA driver API, `cuTensorMapEncodeTiled`)."""
ROLES = ("in", "out", "inout")
_SECTIONS = ("sizes", "absent", "metas", "dtypes", "scalars", "tensors", "options", "heuristics")
_MEET = {("dtypes", "scalars"), ("dtypes", "sizes"), ("scalars", "sizes"), ("options", "heuristics"), ("options", "sizes")}
"""Sections in which one name may stand twice: a scalar has a dtype and a value; a scalar that is a size says so, and a size that is called as an
option of the launch is not what a heuristic reads (both checked below)."""


def check_values(binding: Binding) -> None:
    """Raises KirError KIR-F011 for the first value that no kernel could mean."""
    if "_checked" not in binding.__dict__:
        _lists(binding)
        _names(binding)
        _numbers(binding)
        for name, t in binding.tensors.items():
            _tensor(binding, name)
            if t.dtype:
                check_dtype(t.dtype, f"tensor '{name}'", binding.at("tensors", name, "dtype"))
        for name, dtype in binding.dtypes.items():
            check_dtype(dtype, f"dtype of '{name}'", binding.at("dtypes", name))
        _options(binding, binding.options, ("options",))
        for k, each in enumerate(binding.configs):
            _options(binding, {o: v for o, v in each.items() if o in LAUNCH_OPTIONS}, ("configs", k))
        _maps(binding)
        object.__setattr__(binding, "_checked", True)


def wrong(binding: Binding, steps: tuple[str | int, ...], message: str, needs: str = "", attempt: str = "", key: bool = False) -> KirError:
    """KIR-F011 at a value."""
    return binding.refusal(steps, "KIR-F011", message, needs=needs, attempt=attempt, key=key)


def _lists(b: Binding) -> None:
    """Names that are names, and nothing said twice."""
    for section, items in (("sizes", b.sizes), ("absent", b.absent), ("facts", b.facts)):
        for k, item in enumerate(items):
            if section != "facts" and not item.isidentifier():
                raise wrong(b, (section, k), f"'{item}' is no name", "letters, digits and underscores")
            if item in items[:k]:
                raise wrong(b, (section, k), f"'{item}' stands twice under {section}")
    for section in ("metas", "dtypes", "scalars", "tensors", "arrays", "maps", "heuristics"):
        for name in getattr(b, section):
            if not name.isidentifier():
                raise wrong(b, (section, name), f"'{name}' is no name ({section})", "letters, digits and underscores", key=True)


def _names(b: Binding) -> None:
    """No name in two sections that would each give it a value."""
    claimed: dict[str, str] = {}
    for section in _SECTIONS:
        for k, name in enumerate(getattr(b, section)):
            other = claimed.get(name, "")
            if other and (other, section) not in _MEET and (section, other) not in _MEET:
                here = (section, k) if section in ("sizes", "absent") else (section, name)
                raise wrong(b, here, f"'{name}' stands under {other} and under {section}", "one of the two", key=True)
            claimed.setdefault(name, section)
    for name in b.sizes:
        said = b.scalars.get(name, name)
        if said != name:
            raise wrong(b, ("scalars", name), f"'{name}' is a size, and is said to be {said}", f'{name} = "{name}", or another name under sizes')
    for key, text in b.heuristics.items():
        for name in sorted({*b.sizes} & {*b.options} & {*re.findall(r"[A-Za-z_]\w*", str(text))}):
            raise wrong(b, ("heuristics", key), f"'{name}' is a size and an option of the launch", "another name under sizes")
    taken: dict[str, str] = {}
    for name, t in b.tensors.items():
        own = t.name or name
        if t.name and not t.name.isidentifier():
            raise wrong(b, ("tensors", name, "name"), f"'{t.name}' is no name", "letters, digits and underscores")
        if own in taken or own in b.sizes:
            other = f"the tensor '{taken[own]}'" if own in taken else "a size"
            raise wrong(b, ("tensors", name, "name"), f"the tensor '{name}' is called '{own}', as is {other}", "names that differ")
        taken[own] = name


def _numbers(b: Binding) -> None:
    """Finite scalars and metas; extents of the grid and of arrays that can be."""
    for section, values in (("metas", b.metas), ("scalars", b.scalars), *((f"configs[{k}]", c) for k, c in enumerate(b.configs))):
        steps = ("configs", int(section[8:-1])) if section.startswith("configs") else (section,)
        for name, value in values.items():
            if isinstance(value, float) and math.isnan(value):
                raise wrong(b, (*steps, name), f"{section}: '{name}' is not a number")
            if isinstance(value, int) and not -(2**63) <= value < 2**64:
                raise wrong(b, (*steps, name), f"{section}: '{name}' = {value} does not fit in 64 bits")
    if len(b.grid) > 3:
        raise wrong(b, ("grid", 3), f"the grid has {len(b.grid)} axes", "at most 3")
    for k, extent in enumerate(b.grid):
        if isinstance(extent, int) and not 1 <= extent <= MOST:
            raise wrong(b, ("grid", k), f"axis {k} of the grid has {extent} CTAs", f"1 to {MOST}")
    for name, shape in b.arrays.items():
        for k, extent in enumerate(shape):
            if not 1 <= extent <= MOST:
                raise wrong(b, ("arrays", name, k), f"axis {k} of the array '{name}' has {extent} elements", "1 or more")


def _tensor(b: Binding, name: str) -> None:
    t = b.tensors[name]
    for field in ("shape", "strides"):
        for k, extent in enumerate(getattr(t, field) or ()):
            if isinstance(extent, int) and not 0 <= extent <= (MOST if field == "shape" else 2**63 - 1):
                raise wrong(b, ("tensors", name, field, k), f"tensor '{name}': {field}[{k}] is {extent}",
                            f"a number from 0 to {MOST}, or an expression over the sizes")
    if all(isinstance(extent, int) for extent in t.shape) and math.prod(int(x) for x in t.shape) >= 2**63:
        raise wrong(b, ("tensors", name, "shape"), f"tensor '{name}' has more elements than 64 bits count")
    if t.strides is not None and t.shape and len(t.strides) != len(t.shape):
        raise wrong(b, ("tensors", name, "strides"), f"tensor '{name}' has {len(t.shape)} axes and {len(t.strides)} strides",
                    "as many strides as axes, in elements")
    if t.role and t.role not in ROLES:
        raise wrong(b, ("tensors", name, "role"), f"tensor '{name}': role '{t.role}' is not in, out or inout",
                    attempt=did_you_mean(t.role, ROLES))
    whole = DTYPES[t.dtype].bits // 8 if t.dtype in DTYPES else 1
    if t.align < 0 or t.align & (t.align - 1) or t.align > 4096 or t.align % max(whole, 1):
        raise wrong(b, ("tensors", name, "align"), f"tensor '{name}' is aligned to {t.align} bytes",
                    f"a power of two, {max(whole, 1)} to 4096, or 0 where nothing is known")


def _options(b: Binding, options: Mapping[str, Setting], table: tuple[str | int, ...]) -> None:
    """Launch options that a GPU can be given."""
    ranges = {"num_warps": (1, 32), "num_stages": (0, 32), "num_ctas": (1, 16), "maxnreg": (16, 255), "threads": (1, MOST_THREADS)}
    for name, value in options.items():
        if name not in ranges:
            continue
        low, high = ranges[name]
        two = name in ("num_warps", "num_ctas")
        number = isinstance(value, int) and not isinstance(value, bool)
        if not number or not low <= int(value) <= high or (two and int(value) & (int(value) - 1)):
            raise wrong(b, (*table, name), f"{name} = {shown(value)}", f"{'a power of two' if two else 'a whole number'} from {low} to {high}")
    if "target" in options and not isinstance(options["target"], str):
        raise wrong(b, (*table, "target"), f"target = {shown(options['target'])}", 'the name of an architecture, such as "sm_90a"')
    if "threads" in options and options.get("num_warps", 0) not in (0, int(options["threads"]) // 32) and options["threads"] != 1:
        raise wrong(b, (*table, "threads"), "threads and num_warps both say how many threads a CTA has", "one of the two")


def check_launch(b: Binding, called: Mapping[str, str]) -> None:
    """What a binding says of KIR's own words for a launch, each with what it is called beside the names of the kernel: threads of a CTA, and bytes
    that its threads share. Raises KirError KIR-F011."""
    total = 1
    for word in BLOCK:
        name = called.get(word, "")
        value = b.metas.get(name, 1)
        most = 64 if word == "threads_z" else MOST_THREADS
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise wrong(b, ("metas", name), f"{name} = {shown(value)} is no number of threads", f"a whole number from 1 to {most}")
        total *= value
        if total > MOST_THREADS:
            raise wrong(b, ("metas", name), f"a CTA has {total} threads", f"at most {MOST_THREADS} over all axes")
    if called.get("threads_x") in b.metas and "threads" in b.options:
        raise wrong(b, ("options", "threads"), f"threads and {called['threads_x']} both say how many threads a CTA has", "one of the two")
    name = called.get("shared_bytes", "")
    shared = b.metas.get(name, 0)
    if isinstance(shared, bool) or not isinstance(shared, int) or not 0 <= shared <= 232448:
        raise wrong(b, ("metas", name), f"{name} = {shown(shared)}", "a whole number from 0 to 232448 bytes, what a CTA may have")


def _maps(b: Binding) -> None:
    for name, m in b.maps.items():
        for k, extent in enumerate(m.box):
            if not 1 <= extent <= MOST_IN_BOX:
                raise wrong(b, ("maps", name, "box", k), f"axis {k} of the box of '{name}' has {extent} elements", f"1 to {MOST_IN_BOX}")
        if not 1 <= len(m.box) <= 5:
            raise wrong(b, ("maps", name, "box"), f"the box of '{name}' has {len(m.box)} axes", "1 to 5")
        if m.swizzle not in SWIZZLES:
            raise wrong(b, ("maps", name, "swizzle"), f"the swizzle of '{name}' is {m.swizzle} bytes", f"one of {', '.join(map(str, SWIZZLES))}")
        reshaped = "mode" in m.attrs or "merge" in m.attrs  # pixels by taps, or first axes as one
        if not reshaped and m.of in b.tensors and (shape := b.tensors[m.of].shape) and len(shape) != len(m.box):
            raise wrong(b, ("maps", name, "box"), f"the box of '{name}' has {len(m.box)} axes, and '{m.of}' has {len(shape)}")


def shown(value: object) -> str:
    """A value as TOML writes it."""
    return f'"{value}"' if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)


def words(texts: Iterable[object]) -> set[str]:
    """The names in expressions."""
    return {word for text in texts for word in NAME.findall(str(text))}
