"""Markers for what a test needs of the machine. A test whose need is absent is left out, and the header says which."""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"  # before NumPy is loaded: a second thread mostly spins, beside other workers

import gc
import mmap
import random
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import platformdirs
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.entropy import deterministic_PRNG

from kir.hardware import machine
from kir.hardware.device import client
from tests.carrier_answers import recorded

TESTS = Path(__file__).parent
STATM, GROWN = Path("/proc/self/statm"), 1 << 28
_held = [0]
"""Bytes of this process when garbage was last sought."""
gc.disable()
"""Until all tests are collected: what is made by then stays."""
with deterministic_PRNG():
    """Hypothesis seeks garbage when it begins. Now there is little to look through."""
settings.register_profile("kir", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("kir")
"""The same examples on every machine, however slow it is."""
setattr(providers, "_get_local_constants", lambda: providers._local_constants)  # noqa: B010  # mypy knows no assignment to a module's function
"""Nor do they depend on what ran before: Hypothesis else tries the constants of whatever modules are loaded by then."""


def _has_zoo() -> bool:
    return all(machine.package_version(name) for name in ("flashinfer-python", "flag-gems", "liger-kernel", "fla-core", "tile-kernels", "flash-qla"))


def _learns() -> bool:
    try:
        import lightgbm  # noqa: F401  # a wheel without the system's libgomp raises OSError
    except (ImportError, OSError):
        return False
    return machine.package_version("pyarrow") is not None


def browser() -> str | None:
    """The browser that pages are looked at with."""
    return next((found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None)


NEEDS: Mapping[str, tuple[str, Callable[[], bool]]] = {
    "gpu": ("a CUDA device", lambda: bool(machine.gpus())),
    "triton": ("Triton", lambda: machine.package_version("triton") is not None),
    "tilelang": ("TileLang", lambda: machine.package_version("tilelang") is not None),
    "torch": ("torch", lambda: machine.package_version("torch") is not None),
    "mcp": ("the extra `mcp`", lambda: machine.package_version("mcp") is not None),
    "learning": ("the extra `forecast`", _learns),
    "explore": ("Starlette, uvicorn and Playwright", lambda: all(machine.package_version(name) for name in ("starlette", "uvicorn", "playwright"))),
    "gxx": ("a C++ compiler for the host (g++)", lambda: shutil.which("g++") is not None),
    "nvcc": ("a CUDA toolkit", lambda: machine.toolkit() is not None),
    "sass": ("a disassembler of device code (cuobjdump)", lambda: machine.binary_tool("cuobjdump") is not None),
    "browser": ("Chromium", lambda: browser() is not None),
    "llm": ("the clients of the extra `llm`", lambda: all(machine.package_version(name) for name in ("openai", "anthropic", "genai-prices"))),
    "zoo": ("the third-party kernels of the extra `zoo`", _has_zoo),
}


@pytest.fixture(autouse=True)
def _same_secrets(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a gate draws in secret (sizes, seeds, where a tensor begins) is a test's own, and the same in each run: a failure comes back."""
    drawn = random.Random(request.node.nodeid)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(secrets, "randbits", drawn.getrandbits)
        patch.setattr(secrets, "randbelow", drawn.randrange)
        yield


@pytest.fixture(scope="session", autouse=True)
def _own_library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The user's library is a folder of the test run's, with wrong answers recorded in it as if a user had; so is what gates have found out."""
    folder = tmp_path_factory.mktemp("library")
    recorded(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)  # no test pulls the plug
        patch.setenv("XDG_DATA_HOME", str(folder))
        patch.setenv("XDG_CACHE_HOME", str(_own_cache(tmp_path_factory.getbasetemp())))
        yield


@pytest.fixture(scope="session", autouse=True)
def _shared_compilers() -> Iterator[None]:
    """Compilers and torch, which take seconds to load, are loaded once for all workers of a run and the commands that tests start."""
    name = f"tests-{os.environ.get('PYTEST_XDIST_TESTRUNUID', str(os.getpid()))[:12]}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(client.COMMON, "")  # so that it is undone
        client.join(name)
        yield
    with suppress(OSError):
        folder = client.joined(name)
        if [each.name for each in folder.iterdir()] == [client.OWNER]:  # nobody asked for a server, which would leave nothing
            shutil.rmtree(folder)


def _own_cache(base: Path) -> Path:
    """What gates find out is kept for this run alone, whose workers share it; the grammar's tables are the user's, and so are turns at a device that others
    use beside."""
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cache"
    (folder / "kir").mkdir(parents=True, exist_ok=True)
    for name in ("grammar", "turns"):
        shared = Path(platformdirs.user_cache_dir("kir")) / name
        shared.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            (folder / "kir" / name).symlink_to(shared)
    return folder


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--require", action="append", default=[], choices=sorted(NEEDS), help="fail when the machine lacks this")


def pytest_configure(config: pytest.Config) -> None:
    for name, (what, _) in NEEDS.items():
        config.addinivalue_line("markers", f"{name}: needs {what}; left out where that is absent")
    for name in config.getoption("--require"):
        if not NEEDS[name][1]():
            raise pytest.UsageError(f"--require {name}: this machine lacks {NEEDS[name][0]}")


def pytest_report_header(config: pytest.Config) -> str:
    absent = [f"{name} ({what})" for name, (what, present) in NEEDS.items() if not present()]
    return f"left out for want of: {', '.join(absent) or 'nothing'}"


def pytest_sessionstart(session: pytest.Session) -> None:
    """Of several workers each first reads its part of the test files: what pytest makes of a file's assertions is kept, and the others find it there."""
    worker = getattr(session.config, "workerinput", None)
    if worker is None or sys.dont_write_bytecode or [Path(given).resolve() for given in session.config.args] != [TESTS]:
        return
    for file in sorted(TESTS.rglob("test_*.py"))[int(worker["workerid"].removeprefix("gw"))::worker["workercount"]]:
        with suppress(Exception):  # it is collected, and told of, like any other
            import_module(".".join(file.relative_to(TESTS.parent).with_suffix("").parts))


def pytest_collection_finish() -> None:
    """Garbage is not sought in what all tests share. Where the system says how much memory a process has, it is sought when that has grown by `GROWN` bytes,
    instead of by counting what is made: trees are large and hold no cycles, and a run's memory goes with the run."""
    gc.set_threshold(*((1 << 30, 20, 20) if STATM.exists() else (4_000_000, 20, 20)))
    gc.freeze()
    gc.enable()


def pytest_runtest_logfinish() -> None:
    if STATM.exists() and (now := _resident()) - _held[0] > GROWN:
        gc.collect()
        gc.freeze()  # what is left has been looked through
        _held[0] = min(now, _resident())


def _resident() -> int:
    """Bytes of memory that this process has."""
    return int(STATM.read_text(encoding="ascii").split()[1]) * mmap.PAGESIZE


def pytest_unconfigure() -> None:
    """Nor is it sought in what a process that ends has kept."""
    gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    above: dict[Any, frozenset[str]] = {None: frozenset()}

    def marks(node: Any) -> frozenset[str]:
        """The needs that a collector or one around it is marked with, worked out once for each."""
        if node not in above:
            above[node] = marks(node.parent) | (NEEDS.keys() & {mark.name for mark in node.own_markers})
        return above[node]

    needs = [(item, marks(item.parent) | (NEEDS.keys() & {mark.name for mark in item.own_markers})) for item in items]
    absent = {name for name in frozenset[str]().union(*(names for _, names in needs)) if not NEEDS[name][1]()}
    out = {item for item, names in needs if names & absent}
    if out:
        config.hook.pytest_deselected(items=list(out))
        items[:] = [item for item in items if item not in out]
