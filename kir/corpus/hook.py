"""In a process of the user's: every launch of a Triton kernel is recorded, and carried out as asked.

Mode `record` notes the launch and lets it go on where there is a GPU. Mode `swap` puts kernels that KIR wrote in place of those of a
package. Where there is no GPU both have the interpreter carry out the launch, so that results are right. What happened goes to a folder,
one file of lines for each process.
"""
from __future__ import annotations

import atexit
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


def install(settings: str) -> None:
    """Patch Triton as soon as it is imported; `settings` are JSON: `mode`, `folder`, `packages` (folders; empty: all)."""
    hook = Hook(**json.loads(settings))
    sys.meta_path.insert(0, _Finder(hook))
    atexit.register(hook.close)


class _Finder(importlib.abc.MetaPathFinder):
    """Lets the ordinary finders load Triton's launcher, then patches it."""

    def __init__(self, hook: Hook) -> None:
        self.hook = hook

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> importlib.machinery.ModuleSpec | None:
        """The ordinary spec, with a loader that patches."""
        if name not in TARGETS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
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
        else:
            self.hook.patch_autotuner(vars(module)["Autotuner"])


class Hook:
    """The state of one process."""

    def __init__(self, mode: str, folder: str, packages: Sequence[str] = ()) -> None:
        self.mode, self.folder, self.packages = mode, Path(folder), tuple(packages)
        self.counts: dict[str, dict[str, Any]] = {}
        self._device: bool | None = None

    # ---------------------------------------------------------------------------------------------------------------- patches
    def patch_launcher(self, cls: Any) -> None:
        """Put `launch` before `JITFunction.run`."""
        original = cls.run

        def run(fn: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
            if warmup or self._outside(fn):
                return original(fn, *args, grid=grid, warmup=warmup, **kwargs)
            return self.launch(fn, args, kwargs, grid, lambda: original(fn, *args, grid=grid, warmup=warmup, **kwargs))
        cls.run = run

    def patch_autotuner(self, cls: Any) -> None:
        """Without a GPU nothing can be timed: the first configuration is taken."""
        original = cls.run

        def run(tuner: Any, *args: Any, **kwargs: Any) -> Any:
            if self.has_device():
                return original(tuner, *args, **kwargs)
            tuner.nargs = dict(zip(tuner.arg_names, args))
            config = next(iter(tuner.prune_configs(kwargs)), tuner.configs[0])
            tuner.best_config = config
            return tuner.fn.run(*args, **kwargs, **config.all_kwargs())
        cls.run = run

    def has_device(self) -> bool:
        """Whether Triton finds a GPU in this process."""
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
        """Carry out one launch, and note how."""
        from kir.corpus.launch import Unbound, binding_of, launch_of
        from kir.corpus.swapped import function_of, read_again
        from kir.diagnostic import KirError

        file, name = fn.fn.__code__.co_filename, fn.fn.__name__
        note: dict[str, Any] = {"file": file, "kernel": name, "how": "original", "reason": "", "hash": "", "binding": ""}
        launch = None
        try:
            launch = launch_of(fn, args, kwargs, grid)
            note["binding"] = binding_of(launch).text()
        except Unbound as why:
            note["reason"] = str(why)
        except KirError as bad:
            note["reason"] = bad.diagnostics[0].message
        if self.has_device():
            again = read_again(file, name) if self.mode == "swap" else None
            if again is not None and again.text:
                note |= {"how": "swapped", "hash": again.digest}
                made = function_of(file, name, str(self.folder / "kernels"))
                given = {**dict(zip((p.name for p in fn.params), args)), **kwargs}
                self.count(note)
                return made.run(grid=grid, warmup=False, **_for(made, given, fn))
            if again is not None:
                note["reason"] = again.reason
            self.count(note)
            return original()
        note["how"] = "not run"
        if launch is not None:
            from kir.corpus.interpreted import carry_out

            again = read_again(file, name)
            try:
                program = again.program
                if self.mode == "swap":
                    program = _reread(again, file, name)
                    note["hash"] = again.digest
                if program is None:
                    note["reason"] = again.reason
                else:
                    carry_out(program, launch)
                    note["how"] = "interpreted"
            except KirError as bad:
                note["reason"] = f"{bad.diagnostics[0].id} {bad.diagnostics[0].message}"
        self.count(note)
        return None

    def count(self, note: dict[str, Any]) -> None:
        """Note a launch; a first one of its kind is written at once."""
        key = json.dumps([note[k] for k in ("file", "kernel", "how", "binding", "reason")])
        if key in self.counts:
            self.counts[key]["launches"] += 1
            return
        self.counts[key] = {**note, "launches": 1}
        self._write()

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


def _for(made: Any, given: dict[str, Any], fn: Any) -> dict[str, Any]:
    """The arguments of a launch for the kernel that takes another's place: by name, defaults of the original included."""
    names = {p.name for p in made.params}
    defaults = {p.name: p.default for p in fn.params if p.has_default and p.name in names}
    known = {p.name for p in fn.params}
    return {**defaults, **{k: v for k, v in given.items() if k in names or k not in known}}


def _reread(again: Any, file: str, kernel: str) -> Any:
    """The program that the text written again is read as; None where there is none."""
    if not again.text:
        return None
    from kir.surface import EditableFrontend, frontend

    reader = frontend("triton")
    assert isinstance(reader, EditableFrontend)
    return reader.parse_text(Path(file).with_name(f"{Path(file).stem}__again.py"), again.text, kernel)
