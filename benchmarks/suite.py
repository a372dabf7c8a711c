"""Where the suite's time goes: ``python -m benchmarks.suite FILE.json [pytest's arguments]`` runs it and keeps each test's seconds.

A test's figure is the processor's time, its own and its children's, so that it says the same beside other work. ``--table FILE.json [BEFORE.json]``
prints the folders and the longest tests, beside an earlier run. The file is written as the tests end: a run that is stopped has said what it knows.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

KEY = "processor seconds"
LONGEST = 40


class Seconds:
    """A plugin: each phase of a test carries what the processor took, and the process that reports writes the sums."""

    def __init__(self, out: Path | None) -> None:
        self.out, self.cpu, self.wall, self.failed = out, defaultdict[str, float](float), defaultdict[str, float](float), set[str]()
        self.written = time.monotonic()
        self.begun = (0.0, 0.0)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        self.begun = processor(), time.monotonic()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self) -> None:
        self.begun = processor(), time.monotonic()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self) -> None:
        self.begun = processor(), time.monotonic()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> None:
        item.user_properties[:] = [*(kept for kept in item.user_properties if kept[0] != KEY), (KEY, processor() - self.begun[0])]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self.out is None or "PYTEST_XDIST_WORKER" in os.environ:
            return
        seconds = dict(report.user_properties).get(KEY, 0.0)
        assert isinstance(seconds, float)
        self.cpu[report.nodeid] += seconds
        self.wall[report.nodeid] += report.duration
        if report.failed:
            self.failed.add(report.nodeid)
        if time.monotonic() - self.written > 10:
            self.write()

    def pytest_sessionfinish(self) -> None:
        if self.out is not None and "PYTEST_XDIST_WORKER" not in os.environ:
            self.write()

    def write(self) -> None:
        self.written = time.monotonic()
        assert self.out is not None
        rows = {name: [round(self.cpu[name], 3), round(self.wall[name], 3), *(["failed"] if name in self.failed else [])] for name in self.cpu}
        whole = self.out.with_suffix(".part")
        whole.write_text(json.dumps(rows, indent=0), encoding="utf-8")
        whole.replace(self.out)


def processor() -> float:
    """Seconds of the processor that this process and its ended children took."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def pytest_configure(config: pytest.Config) -> None:
    out = os.environ.get("KIR_SUITE_SECONDS")
    config.pluginmanager.register(Seconds(Path(out) if out else None), "suite-seconds")


def folders(rows: Mapping[str, Sequence[object]]) -> dict[str, float]:
    """Seconds of each file's folder, two levels deep."""
    summed: dict[str, float] = defaultdict(float)
    for name, row in rows.items():
        assert isinstance(row[0], float)
        summed["/".join(name.partition("::")[0].split("/")[1:-1][:2]) or "."] += row[0]
    return dict(summed)


def table(now: Mapping[str, Sequence[object]], before: Mapping[str, Sequence[object]]) -> Iterator[str]:
    """Folders by what they take, then the longest tests."""
    old, new = folders(before), folders(now)
    yield f"{sum(new.values()):9.1f} {sum(old.values()):9.1f}  all {len(now)} tests; seconds of the processor, now and before"
    for name in sorted(new.keys() | old.keys(), key=lambda name: -new.get(name, 0.0)):
        yield f"{new.get(name, 0.0):9.1f} {old.get(name, 0.0):9.1f}  {name}"
    yield ""
    for name, row in sorted(now.items(), key=lambda item: -float(str(item[1][0])))[:LONGEST]:
        yield f"{row[0]:9.1f} {before.get(name, (0.0,))[0]:9.1f}  {name}"


def main(arguments: Sequence[str]) -> int:
    if arguments[0] == "--table":
        read = [json.loads(Path(name).read_text(encoding="utf-8")) for name in arguments[1:3]]
        print("\n".join(table(read[0], read[1] if len(read) > 1 else {})))
        return 0
    os.environ["KIR_SUITE_SECONDS"] = str(Path(arguments[0]).absolute())
    return int(pytest.main(["-p", "benchmarks.suite", *(arguments[1:] or ["tests", "-m", "not gpu"])]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
