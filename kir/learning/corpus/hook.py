"""In a process of the user's: every launch of a Triton kernel is recorded, and carried out as asked.

Mode `record` notes the launch and lets it go on where there is a GPU. Mode `note` notes it and carries nothing out: device "cuda" is the CPU, and
launches of TileLang and of PyTorch's extensions are noted too. Mode `swap` puts kernels that KIR wrote in place of those of a
package; with `measure` each first launch of its kind is also carried out by both, on copies, compared and timed. Where there is no GPU
the interpreter carries out every launch, so that results are right. What happened goes to a folder, one file of lines for each process.
A command that runs many parts calls `section` before each, so that launches can be told apart.
"""
from __future__ import annotations

import atexit
import contextlib
import importlib.abc
import importlib.machinery
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

TARGETS = ("triton.runtime.jit", "triton.runtime.autotuner")
NOTED = ("torch", "tilelang.jit", "torch.utils.cpp_extension", "triton.testing")
"""What mode `note` patches besides."""
MEASURED = 2
"""Bindings of a kernel that are measured."""


def install(settings: str) -> None:
    """Patch Triton as soon as it is imported; `settings` are JSON: `mode`, `folder`, `packages` (folders; empty: all), `measure`, `tune`
    (false: autotuners take their first configuration that fits)."""
    hook = Hook(**json.loads(settings))
    sys.meta_path.insert(0, _Finder(hook))
    atexit.register(hook.close)


def section(name: str) -> None:
    """Launches from here on belong to this part of the command; without a hook in the process nothing happens."""
    for finder in sys.meta_path:
        if isinstance(finder, _Finder):
            finder.hook.part = name


class _Finder(importlib.abc.MetaPathFinder):
    """Lets the ordinary finders load Triton's launcher, then patches it."""

    def __init__(self, hook: Hook) -> None:
        self.hook = hook

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> importlib.machinery.ModuleSpec | None:
        """The ordinary spec, with a loader that patches."""
        if name not in TARGETS and not (name in NOTED and self.hook.mode == "note"):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)  # also of a package
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self.hook)
        return spec


class _Loader(importlib.abc.Loader):
    def __init__(self, inner: Any, hook: Hook) -> None:
        self.inner, self.hook = inner, hook

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """As the ordinary loader."""
        made: ModuleType | None = self.inner.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        """Run the module, then patch what launches."""
        self.inner.exec_module(module)
        if module.__name__ == TARGETS[0]:
            self.hook.patch_launcher(vars(module)["JITFunction"])
        elif module.__name__ == TARGETS[1]:
            self.hook.patch_autotuner(vars(module)["Autotuner"])
        else:
            self.hook.patch_noted(module)


class Hook:
    """The state of one process."""

    def __init__(self, mode: str, folder: str, packages: Sequence[str] = (), measure: bool = False, tune: bool = True) -> None:
        self.mode, self.folder, self.packages = mode, Path(folder), tuple(packages)
        self.measure, self.tune = measure, tune
        self.part = ""
        self.plain: Any = None
        self.measured: dict[tuple[str, str], set[str]] = {}
        self.counts: dict[str, dict[str, Any]] = {}
        self._device: bool | None = None
        self.tuning = False

    # ---------------------------------------------------------------------------------------------------------------- patches
    def patch_launcher(self, cls: Any) -> None:
        """Put `launch` before `JITFunction.run`."""
        original = cls.run

        def run(fn: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
            if warmup or self.tuning or (self._outside(fn) and (self.has_device() or self.mode == "note")):
                return original(fn, *args, grid=grid, warmup=warmup, **kwargs)
            return self.launch(fn, args, kwargs, grid, lambda: original(fn, *args, grid=grid, warmup=warmup, **kwargs))
        cls.run = run
        self.plain = original

    def patch_autotuner(self, cls: Any) -> None:
        """Where nothing can be timed, or shall not be, the first configuration that fits is taken; tuners made from Triton's own do so
        too. What one launches to choose a configuration is none of the command's launches, and nothing is noted beside what it times."""
        def made(child: type[Any], /, **options: Any) -> None:
            for name, patched in (("run", self._untuned), ("_bench", self._tuning)):
                if name in vars(child):
                    setattr(child, name, patched(vars(child)[name]))
        made(cls)
        cls.__init_subclass__ = classmethod(made)

    def patch_noted(self, module: ModuleType) -> None:
        """Put what only notes in the place of what compiles, launches and times."""
        from kir.learning.corpus import pretended

        match module.__name__:
            case "torch":
                pretended.pretend(module)
            case "tilelang.jit":
                pretended.patch_tilelang(module, self.noted)
            case "torch.utils.cpp_extension":
                pretended.patch_extensions(module, self.noted, self.folder / "sources")
            case _:
                vars(module)["do_bench"] = lambda fn, *args, **kwargs: fn() and 0.0

    def noted(self, file: str, kernel: str, binding: Any, reason: str) -> None:
        """One launch that nothing carries out."""
        if not any(file.startswith(p) for p in self.packages) and self.packages:
            return
        self.count({"file": file, "kernel": kernel, "part": self.part, "how": "recorded" if binding is not None else "not run", "reason": reason, "hash": "",
                    "binding": binding.text() if binding is not None else ""})

    def _untuned(self, original: Any) -> Any:
        def run(tuner: Any, *args: Any, **kwargs: Any) -> Any:
            if self.tune and self.has_device():
                return original(tuner, *args, **kwargs)
            tuner.nargs = dict(zip(tuner.arg_names, args))
            configs = [*tuner.prune_configs(kwargs)] or [*tuner.configs]
            for i, config in enumerate(configs):
                tuner.best_config = config
                if config.pre_hook is not None:
                    config.pre_hook({**tuner.nargs, **kwargs, **config.all_kwargs()})
                try:
                    return tuner.fn.run(*args, **kwargs, **config.all_kwargs())
                except Exception as bad:
                    if type(bad).__name__ != "OutOfResources" or i == len(configs) - 1:
                        raise
            raise AssertionError("a tuner has a configuration")
        return run

    def _tuning(self, original: Any) -> Any:
        def bench(tuner: Any, *args: Any, **kwargs: Any) -> Any:
            before, self.tuning = self.tuning, self.mode == "record"
            try:
                return original(tuner, *args, **kwargs)
            finally:
                self.tuning = before
        return bench

    def has_device(self) -> bool:
        """Whether Triton finds a GPU in this process."""
        if self.mode == "note":
            return False
        if self._device is None:
            try:
                from triton.runtime import driver

                driver.active.get_current_device()
                self._device = True
            except Exception:  # whatever a driver says when it is not there
                self._device = False
        return self._device

    def _outside(self, fn: Any) -> bool:
        file = fn.fn.__code__.co_filename
        return bool(self.packages) and not any(file.startswith(p.rstrip("/") + "/") or file == p for p in self.packages)

    # ---------------------------------------------------------------------------------------------------------------- launches
    def launch(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], grid: Any, original: Any) -> Any:
        """Carry out one launch, and note how. What comes back launches once more, as a compiled kernel does."""
        from kir.base.diagnostic import KirError
        from kir.learning.corpus.launch import Unbound, binding_of, launch_of

        file, name = fn.fn.__code__.co_filename, fn.fn.__name__
        note: dict[str, Any] = {"file": file, "kernel": name, "part": self.part, "how": "original", "reason": "",
                                "hash": "", "binding": ""}
        launch = None
        try:
            launch = launch_of(fn, args, kwargs, grid)
            note["binding"] = binding_of(launch).text()
        except Unbound as why:
            note["reason"] = str(why)
        except KirError as bad:
            note["reason"] = bad.diagnostics[0].message
        if self.mode == "note":
            note["how"] = "recorded" if note["binding"] else "not run"
            self.count(note)
            return Launched(None, lambda again, at: None)
        made = self._on_device(note, fn, args, kwargs, grid, original) if self.has_device() else self._interpreted(note, fn, launch)
        options = {k: v for k, v in kwargs.items() if k not in {p.name for p in fn.params}}
        return Launched(made, lambda again, at: self.launch(fn, again, options, at, lambda: made[at](*again)))

    def _on_device(self, note: dict[str, Any], fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], grid: Any, original: Any) -> Any:
        from kir.learning.corpus.launch import Unbound, is_tensor, tensor_of
        from kir.learning.corpus.measured import compare
        from kir.learning.corpus.patched_kernels import completed, function_of, read_again

        text = completed(fn.fn) if self.mode == "swap" else None
        again = read_again(note["file"], note["kernel"], text) if self.mode == "swap" else None
        if again is None or not again.text:
            note["reason"] = again.reason if again is not None else note["reason"]
            self.count(note)
            return original()
        note |= {"how": "swapped", "hash": again.digest}
        made = function_of(note["file"], note["kernel"], str(self.folder / "kernels"), text)
        given = _for(made, {**dict(zip((p.name for p in fn.params), args)), **kwargs}, fn)
        if self.measure and self._is_new(note):
            self.measured.setdefault((note["file"], note["kernel"]), set()).add(note["binding"])
            names = [p.name for p in fn.params]
            whole = {**{p.name: p.default for p in fn.params if p.has_default}, **dict(zip(names, args)), **kwargs}
            runs = (lambda values: self._original(fn, values, grid), lambda values: made.run(grid=grid, warmup=False, **_for(made, values, fn)))
            with contextlib.suppress(Unbound):  # what stands for a tensor and cannot be copied as one: the launch is counted all the same
                note["measured"] = compare({k: tensor_of(k, v) if is_tensor(v) else v for k, v in whole.items()}, *runs)
        self.count(note)
        return made.run(grid=grid, warmup=False, **given)

    def _original(self, fn: Any, values: dict[str, Any], grid: Any) -> Any:
        return self.plain(fn, grid=grid, warmup=False, **values)

    def _interpreted(self, note: dict[str, Any], fn: Any, launch: Any) -> Any:
        from kir.base.diagnostic import KirError
        from kir.learning.corpus.interpreted import carry_out
        from kir.learning.corpus.patched_kernels import completed, read_again

        note["how"] = "not run"
        if launch is not None:
            again = read_again(note["file"], note["kernel"], completed(fn.fn))
            try:
                program = again.program
                if self.mode == "swap" and not self._outside(fn):
                    program = again.reread
                    note["hash"] = again.digest
                if program is None:
                    note["reason"] = again.reason
                else:
                    carry_out(program, launch)
                    note["how"] = "interpreted"
            except KirError as bad:
                note["reason"] = f"{bad.diagnostics[0].id} {bad.diagnostics[0].message}"
        if not self._outside(fn):
            self.count(note)
        return None

    def count(self, note: dict[str, Any]) -> None:
        """Note a launch; a first one of its kind is written at once."""
        key = _key(note)
        if key in self.counts:
            self.counts[key]["launches"] += 1
            return
        self.counts[key] = {**note, "launches": 1}
        self._write()

    def _is_new(self, note: dict[str, Any]) -> bool:
        known = self.measured.get((note["file"], note["kernel"]), set())
        return len(known) < MEASURED and note["binding"] not in known

    def _write(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"launches-{os.getpid()}.jsonl"
        text = "".join(json.dumps(x) + "\n" for x in self.counts.values())
        partial = path.with_suffix(".partial")
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)

    def close(self) -> None:
        """The last word, with all counts."""
        if self.counts:
            self._write()


class Launched:
    """What a launch returns: everything that the compiled kernel has, and `launched[grid](..)`, with the arguments of the original, once
    more."""

    def __init__(self, made: Any, again: Any) -> None:
        self._made, self._again = made, again

    def __getitem__(self, grid: Any) -> Any:
        return lambda *args: self._again(args, grid)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._made, name)


def _key(note: dict[str, Any]) -> str:
    return json.dumps([note[k] for k in ("file", "kernel", "part", "how", "binding", "reason")])


def _for(made: Any, given: dict[str, Any], fn: Any) -> dict[str, Any]:
    """The arguments of a launch for the kernel that takes another's place: by name, defaults of the original included."""
    names = {p.name for p in made.params}
    defaults = {p.name: p.default for p in fn.params if p.has_default and p.name in names}
    known = {p.name for p in fn.params}
    return {**defaults, **{k: v for k, v in given.items() if k in names or k not in known}}
