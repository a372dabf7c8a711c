"""Running a file in the form of KernelBench: describing it, drawing its inputs, its outputs in float64, and the bound of their errors.

It runs foreign code, in a confined process only (`kir.problem.model_child`). Arrays are by the problem's names: forward's arguments, then the
state of `Model` with dots made underscores, then `out`.
"""
from __future__ import annotations

import inspect
import linecache
import sys
import traceback
import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError, Origin, error
from kir.problem.model_source import ModelSource
from kir.problem.rounding_noise import UNITS, Known, noisy

Array = NDArray[Any]
DTYPES = {torch.float64: "f64", torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.int64: "i64", torch.int32: "i32",
          torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8", torch.bool: "bool"}
NOISES = 3
"""Disturbed runs from which a bound is made."""
FACTOR = 16.0
"""Times the spread of disturbed runs: no honest error of 10^9 elements is there."""
WINDOW = 256
"""Neighbors that share their spread, for one element's own may be small by chance."""
BLOCK = 128 * WINDOW
"""Elements of which a bound is made at once: what comes between stays in a core's cache."""
TRIED = 6
LIFTED = 4.0
"""What is added to large ones that are never negative, so that none is left near the others."""
SIGNS = ("signed", "negative")
SCALES = {"large": 8.0, "tiny": 2.0**-8, "huge": 256.0}


@dataclass(frozen=True)
class Built:
    """A model at some sizes, with inputs: `names` of forward's arguments, of which `given` are tensors and `scalars` numbers."""

    model: Any
    names: tuple[str, ...]
    given: dict[str, Any]
    scalars: dict[str, float]
    state: dict[str, Any]

    def arguments(self, tensors: Mapping[str, Any]) -> list[Any]:
        """What forward takes, in its order."""
        return [tensors[x] if x in self.given else self.scalars[x] for x in self.names]


@dataclass
class ModelFile:
    """A file at work. `source` is its text at the sizes it was written with."""

    source: ModelSource
    _spaces: dict[str, dict[str, Any]] = field(default_factory=dict)
    _narrow: Any = torch.float32

    # ---------------------------------------------------------------------------------------------------------------------- making
    def built(self, sizes: Mapping[str, int], seed: int, device: str = "cpu") -> Built:
        """The model and inputs that the file makes at these sizes with torch's generator at `seed`. Raises KirError KIR-G911, KIR-G913,
        KIR-G916."""
        space = self._space(sizes)
        with self._foreign(), torch.device(device), torch.no_grad():
            torch.manual_seed(seed % 2**63)
            made = space["get_init_inputs"]()
            if not isinstance(made, (list, tuple)):
                raise error("KIR-G913", f"get_init_inputs gives {type(made).__name__}, not a list", origin=self.source.returned("get_init_inputs", 0))
            words = made[1] if len(made) == 2 and isinstance(made[0], list) and isinstance(made[1], dict) else {}
            model = space["Model"](*(made[0] if words else made), **words)
            _hold(model)
            torch.manual_seed((seed ^ 0x5DEECE66D) % 2**63)
            given = space["get_inputs"]()
        if not isinstance(given, (list, tuple)):
            raise error("KIR-G913", f"get_inputs gives {type(given).__name__}, not a list", origin=self.source.returned("get_inputs", 0))
        names = _arguments(model, len(given))
        tensors, scalars = {}, {}
        for i, (name, x) in enumerate(zip(names, given, strict=True)):
            if isinstance(x, torch.Tensor):
                tensors[name] = self._plain(x, f"the input '{name}'", self.source.returned("get_inputs", i))
            elif isinstance(x, (int, float)):
                scalars[name] = float(x)
            else:
                raise error("KIR-G913", f"the input '{name}' is {type(x).__name__}: neither a tensor nor a number",
                            origin=self.source.returned("get_inputs", i), needs="tensors and numbers; what else a model takes, in get_init_inputs")
        if not tensors:
            raise error("KIR-G913", "get_inputs gives no tensor", origin=self.source.returned("get_inputs", 0))
        state = {}
        for key, x in model.state_dict().items():
            name = key.replace(".", "_")
            name = f"model_{name}" if name in names or name == "out" else name
            state[name] = self._plain(x, f"the state '{key}'", self.source.line(1))
        return Built(model, names, tensors, scalars, state)

    def output(self, b: Built, tensors: Mapping[str, Any], noise: tuple[Any, int] | None = None, known: Known | None = None) -> Any:
        """What forward gives, as one tensor; with `noise`, its dtype and its seed, disturbed. Raises KirError KIR-G911, KIR-G912, KIR-G916."""
        with self._foreign(), torch.no_grad():
            torch.manual_seed(0)
            given = b.arguments(tensors)
            out = b.model(*given) if noise is None else noisy(b.model, given, *noise, known)
        if isinstance(out, (tuple, list, dict)):
            raise error("KIR-G912", f"forward gives {len(out)} outputs ({type(out).__name__}), where a kernel writes one", origin=self.source.result,
                        needs="a file whose forward returns one tensor")
        if not isinstance(out, torch.Tensor):
            raise error("KIR-G912", f"forward gives {type(out).__name__}, not a tensor", origin=self.source.result, needs="one tensor")
        return self._plain(out, "the output", self.source.result)

    def _plain(self, x: Any, what: str, where: Origin) -> Any:
        if x.dtype not in DTYPES or x.layout != torch.strided:
            raise error("KIR-G916", f"{what} is {x.dtype}, {x.layout}: no dtype of the IR", origin=where, needs="dense tensors of real or whole numbers")
        if x.numel() == 0:
            raise error("KIR-G916", f"{what} has no elements: {list(x.shape)}", origin=where, needs="extents of 1 and more")
        return x.detach()

    def _space(self, sizes: Mapping[str, int]) -> dict[str, Any]:
        """The file's names at these sizes; executed once for each set of them."""
        text = self.source.at(sizes)
        if text not in self._spaces:
            name = "kir_problem_file"
            module = types.ModuleType(name)
            sys.modules[name] = module
            linecache.cache[self.source.path] = (len(text), None, text.splitlines(True), self.source.path)
            with self._foreign():
                exec(compile(text, self.source.path, "exec"), module.__dict__)
            self._spaces = {text: module.__dict__}
        return self._spaces[text]

    @contextmanager
    def _foreign(self) -> Iterator[None]:
        """Whatever foreign code raises becomes KIR-G911, at its line."""
        try:
            yield
        except KirError:
            raise
        except (Exception, SystemExit) as fault:
            rows = [f for f in traceback.extract_tb(fault.__traceback__) if f.filename == self.source.path]
            where = self.source.line(rows[-1].lineno or 1) if rows else self.source.line(1)
            words = str(fault).strip().splitlines()
            raise error("KIR-G911", f"{type(fault).__name__}{': ' + words[0] if words else ''}", origin=where,
                        needs="a file that runs on a CPU, without network, files and other processes") from None

    # ------------------------------------------------------------------------------------------------------------------ describing
    def described(self, sizes: Mapping[str, int]) -> dict[str, Any]:
        """Tensors (name, role, dtype, extents) and numbers of a call at these sizes, and which of them are state; found without computing
        where that works."""
        try:
            b = self.built(sizes, 0, "meta")
            out = self.output(b, b.given)
        except KirError:
            b = self.built(sizes, 0)
            out = self.output(b, b.given)
        def row(name: str, role: str, x: Any) -> dict[str, Any]:
            return {"name": name, "role": role, "dtype": DTYPES[x.dtype], "shape": list(x.shape) or [1]}
        rows = [row(k, "in", x) for k, x in (*b.given.items(), *b.state.items())]
        return {"tensors": [*rows, row("out", "out", out)], "scalars": b.scalars, "state": list(b.state), "dtype": DTYPES[self._dtype(b)]}

    def recorded(self, sizes: Mapping[str, int]) -> dict[str, Any]:
        """The operators that forward calls at these sizes, found without computing where that works. Raises KirError KIR-G911, KIR-G918."""
        from kir.problem.naive.recording import recorded

        def told(b: Built) -> dict[str, Any]:
            held = dict(zip(b.state, b.model.state_dict(keep_vars=True).values(), strict=True))
            with self._foreign():
                return recorded(b.model, b.arguments(b.given), {**b.given, **held}, self.source.forward)
        try:
            return told(self.built(sizes, 0, "meta"))
        except KirError as refused:
            if refused.diagnostics[0].id != "KIR-G911":
                raise
            return told(self.built(sizes, 0))

    def examined(self, sizes: Mapping[str, int]) -> None:
        """Refuse what no kernel could be held to: an output that differs from call to call, a state or inputs that forward changes.
        Raises KirError KIR-G914, KIR-G915."""
        b = self.built(sizes, 1)
        before = {k: x.clone() for k, x in (*b.given.items(), *b.state.items())}
        first = self.output(b, b.given).clone()
        for name, x in before.items():
            now = b.given[name] if name in b.given else b.state[name]
            if not torch.equal(x, now):
                what = "its input" if name in b.given else "its own state"
                raise error("KIR-G915", f"forward changes {what} '{name}'", origin=self.source.forward,
                            needs="a forward that leaves it as it is: normalization that keeps running statistics does with `self.eval()` in __init__")
        with self._foreign(), torch.no_grad():
            torch.manual_seed(99)
            second = b.model(*b.arguments(b.given))
        if not isinstance(second, torch.Tensor) or not torch.equal(torch.nan_to_num(first.double()), torch.nan_to_num(second.double())):
            raise error("KIR-G914", "forward gives another output for the same inputs: it draws numbers", origin=self.source.random,
                        needs="a model without randomness (dropout goes with `self.eval()` in __init__), or with its numbers as an input")

    def dense(self, sizes: Mapping[str, int]) -> list[str]:
        """Float inputs of which every element that is tried, some at random and the ends, shows in the output: NaN there makes NaN."""
        b = self.built(sizes, 3)
        random = torch.Generator().manual_seed(3)
        out = []
        for name, x in (*b.given.items(), *b.state.items()):
            places = [0, x.numel() - 1, *torch.randint(0, x.numel(), (TRIED,), generator=random).tolist()] if x.is_floating_point() else []
            flat = x.view(-1) if x.is_contiguous() else None
            if not places or flat is None:
                continue
            def shows(place: int, flat: Any = flat) -> bool:
                kept = flat[place].clone()
                flat[place] = torch.nan
                found = bool(torch.isnan(self.output(b, b.given)).any())
                flat[place] = kept
                return found
            if all(shows(place) for place in places):
                out.append(name)
        return out

    # ------------------------------------------------------------------------------------------------------------ inputs and oracle
    def inputs(self, sizes: Mapping[str, int], seed: int, distribution: str) -> dict[str, Array]:
        """The file's own draws at a seed; `sparse` keeps one in eight elements of float inputs, `large` and `tiny` scale them; of those that are never
        negative the large ones are lifted, `signed` gives each element a sign and `negative` all the other one. State is as the model makes it."""
        b = self.built(sizes, seed)
        random = torch.Generator().manual_seed((seed * 31 + 7) % 2**63)
        out = {}
        for name, x in b.given.items():
            if x.is_floating_point() and distribution == "sparse":
                x = x * (torch.randint(0, 8, x.shape, generator=random) == 0)
            elif x.is_floating_point() and distribution in SCALES:
                x = x * SCALES[distribution] + (LIFTED if distribution == "large" and bool((x >= 0).all()) else 0.0)
            elif x.is_floating_point() and distribution in SIGNS and bool((x >= 0).all()):
                x = -x if distribution == "negative" else x * (2 * torch.randint(0, 2, x.shape, generator=random) - 1)
            out[name] = to_numpy(x)
        return {**out, **{k: to_numpy(x) for k, x in b.state.items()}}

    def oracle(self, sizes: Mapping[str, int], inputs: Mapping[str, Array], noise: int | None = None) -> Array:
        """The output in float64 (int64 for integers), with rounding noise where a seed for it is given."""
        b = self._holding(sizes, inputs, wide=True)
        return _wide(self.output(b, b.given, None if noise is None else (self._narrow, noise)))

    def own(self, sizes: Mapping[str, int], inputs: Mapping[str, Array]) -> Array:
        """The output as the file computes it, in its own dtype."""
        b = self._holding(sizes, inputs, wide=False)
        out = self.output(b, b.given)
        return to_numpy(out.reshape(out.shape or (1,)))

    def bound(self, sizes: Mapping[str, int], inputs: Mapping[str, Array], exact: Array, unit: float) -> Array:
        """The error that each element of the output may have: its one rounding (`unit`), and FACTOR times the spread of disturbed runs,
        over the element's own and half of its neighbors': those that are disturbed, for one that is. For integers, as far as disturbed runs differ."""
        b = self._holding(sizes, inputs, wide=True)
        held = [*b.given.values(), *b.model.state_dict().values()]
        known, versions = Known(held), [x._version for x in held]
        right, square, out = exact.reshape(-1), np.zeros(exact.size), np.empty(exact.size)
        whole = exact.dtype.kind in "iu"
        for noise in range(1, NOISES + 1):
            run = _wide(self.output(b, b.given, (self._narrow, noise), known)).reshape(-1)
            if [x._version for x in held] != versions:  # forward writes to what it was given: the next run has its own
                b = self._holding(sizes, inputs, wide=True)
                held = [*b.given.values(), *b.model.state_dict().values()]
                known, versions = Known(held), [x._version for x in held]
            for at in _blocks(exact.size):
                with np.errstate(all="ignore"):
                    apart = (run[at] - right[at]).astype(np.float64)
                    apart[~np.isfinite(apart)] = 0.0
                if whole:
                    np.maximum(square[at], np.abs(apart), out=square[at])
                else:
                    square[at] += apart * apart
        if whole:
            return square.reshape(exact.shape)
        square /= NOISES
        for at in _blocks(exact.size):
            part = square[at]
            flat = np.pad(part, (0, -part.size % WINDOW), mode="edge").reshape(-1, WINDOW)
            moved = flat > 0
            near = np.where(moved, (flat.sum(1) / np.maximum(moved.sum(1), 1))[:, None], flat.mean(1)[:, None]).reshape(-1)[:part.size]
            out[at] = FACTOR * np.sqrt(np.maximum(part, near / 4)) + 1.01 * unit * np.abs(np.nan_to_num(right[at]))
        return out.reshape(exact.shape)

    def _holding(self, sizes: Mapping[str, int], inputs: Mapping[str, Array], wide: bool) -> Built:
        b = self.built(sizes, 0)
        self._narrow = self._dtype(b)
        held = {k: to_torch(v) for k, v in inputs.items()}
        with self._foreign(), torch.no_grad():
            if wide:
                b.model.double()
                held = {k: x.double() if x.is_floating_point() else x for k, x in held.items()}
            for (key, x), name in zip(b.model.state_dict().items(), b.state, strict=True):
                if tuple(x.shape) != tuple(held[name].reshape(x.shape).shape):
                    raise ValueError(key)
                x.copy_(held[name].reshape(x.shape))
        return Built(b.model, b.names, {k: held[k].reshape(x.shape) for k, x in b.given.items()}, b.scalars, b.state)

    @staticmethod
    def _dtype(b: Built) -> Any:
        """The narrowest float dtype of the call: what it computes in."""
        floats = [x.dtype for x in (*b.given.values(), *b.state.values()) if x.dtype in UNITS]
        return max(floats, key=lambda d: UNITS[d], default=torch.float32)


def _hold(model: Any) -> None:
    """Tensors that a model holds as plain attributes become buffers, and so state: a kernel must be given them, and the oracle has them in its
    own precision."""
    for part in model.modules():
        for name, x in list(vars(part).items()):
            if isinstance(x, torch.Tensor) and x.numel():
                delattr(part, name)
                part.register_buffer(name, x)


def _arguments(model: Any, count: int) -> tuple[str, ...]:
    """Names of forward's first arguments."""
    found = [p.name for p in inspect.signature(model.forward).parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    names: list[str] = [*found[:count], *(f"x{i}" for i in range(len(found), count))]
    return tuple("input" if x == "out" else x for x in names)


def _blocks(count: int) -> Iterator[slice]:
    return (slice(first, first + BLOCK) for first in range(0, count, BLOCK))


def _wide(out: Any) -> Array:
    """A tensor in float64, or int64 for integers, with one element where it has no axis."""
    out = out.reshape(out.shape or (1,))
    return np.asarray((out.double() if out.is_floating_point() else out.long()).contiguous().numpy())


def to_numpy(x: Any) -> Array:
    """A tensor's elements; bfloat16 as ml_dtypes has it."""
    x = x.contiguous()
    if x.dtype == torch.bfloat16:
        import ml_dtypes
        return np.asarray(x.view(torch.int16).numpy().view(ml_dtypes.bfloat16))
    return np.asarray(x.numpy())


def to_torch(a: Array) -> Any:
    """The inverse of `to_numpy`."""
    if a.dtype.name == "bfloat16":
        return torch.from_numpy(np.array(a).view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(np.array(a))


with torch.device("meta"):  # imports what shape inference needs, once for all children of a fork server
    torch.rand(1, 1) @ torch.rand(1, 1)
