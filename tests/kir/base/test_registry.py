"""The registry: listing without importing, broken plugins, clashes, provenance, and use without metadata."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from kir.base.diagnostic import KirError, UsageError
from kir.base.registry import DISTRIBUTION, GROUPS, Registry, Source, registry

ROOT = Path(__file__).parents[3]


def write_package(root: Path, package: str, files: dict[str, str]) -> None:
    folder = root.joinpath(*package.split("."))
    folder.mkdir(parents=True)
    for parent in [folder, *folder.parents]:
        if parent == root:
            break
        (parent / "__init__.py").touch()
    for name, text in files.items():
        (folder / name).write_text(text)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_modules_are_listed_by_file_name_without_being_imported(site: Path) -> None:
    write_package(site, "listed_a.passes", {"stage_twice.py": "value = 7", "_shared.py": "", "notes.txt": ""})
    (site / "listed_a" / "__init__.py").write_text("raise RuntimeError('imported')")
    found = Registry("kir.passes", [Source("listed_a.passes", "dist-a", "1.2")])
    assert list(found.entries) == ["stage-twice"]
    assert not any(name.startswith("listed_a") for name in sys.modules)
    (site / "listed_a" / "__init__.py").write_text("")
    assert found.load("stage-twice").value == 7


def test_provenance_is_that_of_the_file(site: Path) -> None:
    write_package(site, "proven", {"one.py": "x = 1\n"})
    entry = Registry("kir.passes", [Source("proven", "dist-p", "0.3")]).entry("one")
    where = entry.provenance()
    assert (where.distribution, where.version, where.module) == ("dist-p", "0.3", "proven.one")
    assert where.sha256 == hashlib.sha256(b"x = 1\n").hexdigest()


@pytest.mark.parametrize(
    "fault", ["import not_there_at_all", "raise SystemExit(3)", "def (", "from kir.base.diagnostic import error; raise error('KIR-X002', 'no')"]
)
def test_a_broken_module_is_reported_and_the_rest_works(site: Path, fault: str) -> None:
    package = f"partly_{abs(hash(fault))}"
    write_package(site, package, {"bad.py": fault, "good.py": "x = 1"})
    found = Registry("kir.passes", [Source(package, "dist-b", "1"), Source("no_such_package_here", "dist-c", "2")])
    modules, broken = found.load_all()
    assert list(modules) == ["good"]
    assert [(each.name, each.distribution) for each in broken] == [("no_such_package_here", "dist-c"), ("bad", "dist-b")]
    assert all(each.reason for each in broken)
    with pytest.raises(KirError, match="'bad' of dist-b cannot be used") as caught:
        found.load("bad")
    assert caught.value.diagnostics[0].id == "KIR-X003"


def test_a_name_that_two_distributions_offer_is_used_from_neither(site: Path) -> None:
    write_package(site, "first_claim", {"same.py": "", "own.py": ""})
    write_package(site, "second_claim", {"same.py": ""})
    found = Registry("kir.passes", [Source("first_claim", "dist-1", "1"), Source("second_claim", "dist-2", "2")])
    with pytest.raises(KirError, match="more than one distribution") as caught:
        found.load("same")
    assert caught.value.diagnostics[0].id == "KIR-X004"
    assert len(caught.value.diagnostics[0].witness) == 2
    modules, broken = found.load_all()
    assert list(modules) == ["own"] and {each.distribution for each in broken} == {"dist-1", "dist-2"}


def test_an_unknown_name_is_a_usage_error_with_the_nearest(site: Path) -> None:
    write_package(site, "nearest", {"stage_shared.py": ""})
    with pytest.raises(UsageError, match=r"there is no pass 'stage-share'; did you mean 'stage-shared'\?"):
        Registry("kir.passes", [Source("nearest", "d", "1")]).load("stage-share")


@pytest.mark.parametrize("group", GROUPS)
def test_shipped_packages_are_found_and_whole(group: str) -> None:
    found = registry(next(each for each in GROUPS if each == group))
    assert found.sources[0].package == group and found.sources[0].distribution == DISTRIBUTION
    _, broken = found.load_all()
    assert broken == ()


def test_a_bare_checkout_without_metadata_finds_the_shipped_packages(tmp_path: Path) -> None:
    script = (
        "import sys; from importlib import metadata; metadata.entry_points = lambda **_: ();"
        "from kir.base.registry import GROUPS, registry;"
        "print([source.package for group in GROUPS for source in registry(group).sources], [registry(group).broken() for group in GROUPS])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env={"PYTHONPATH": str(ROOT)}, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "['kir.passes', 'kir.frontends', 'kir.backends'] [(), (), ()]"


def test_a_distribution_that_is_no_folder_is_asked_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "zipped.zip"
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("zipped_plugin/__init__.py", "")
        made.writestr("zipped_plugin-0.3.dist-info/METADATA", "Metadata-Version: 2.1\nName: zipped-plugin\nVersion: 0.3\n")
        made.writestr("zipped_plugin-0.3.dist-info/entry_points.txt", "[kir.passes]\nmine = zipped_plugin\n")
    monkeypatch.syspath_prepend(str(archive))
    registry.cache_clear()
    try:
        assert registry("kir.passes").sources[1:] == (Source("zipped_plugin", "zipped-plugin", "0.3"),)
    finally:
        registry.cache_clear()


def test_all_passes_load_without_what_only_some_commands_need() -> None:
    """No parser, no NumPy, no reading of metadata or TOML, and nothing that writes threads' code: each is a tenth of the time that passes load in."""
    script = """
import sys
asked = set()
class Asked:
    def find_spec(self, name, path=None, target=None):
        asked.add(name)
sys.meta_path.insert(0, Asked())
from kir.rewrite import passes
print(len(list(passes())) > 100, *asked)
"""
    alone = {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-S", "-c", script], env=alone, cwd=ROOT, capture_output=True, text=True, check=True)
    enough, *asked = done.stdout.split()  # what is not installed here is asked for, too
    heavy = {"lark", "numpy", "importlib.metadata", "importlib.resources", "tomllib", "kir.ir.parser", "kir.surface.lowering", "kir.interp", "kir.gate"}
    assert enough == "True" and not heavy & set(asked)


def test_an_installed_plugin_is_found_through_its_entry_point(site: Path) -> None:
    write_package(site, "installed_plugin", {"extra_pass.py": "x = 1"})
    info = site / "installed_plugin-4.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: installed-plugin\nVersion: 4.5\n")
    (info / "entry_points.txt").write_text("[kir.passes]\nmine = installed_plugin\n")
    registry.cache_clear()
    try:
        found = registry("kir.passes")
        assert found.entry("extra-pass").source == Source("installed_plugin", "installed-plugin", "4.5")
        assert [source.package for source in found.sources] == ["kir.passes", "installed_plugin"]
    finally:
        registry.cache_clear()


def test_a_package_of_nothing_but_words_is_a_family_whose_modules_are_entries(site: Path) -> None:
    write_package(site, "housed", {"flat.py": "x = 0"})
    write_package(site / "housed", "staging", {"one.py": "x = 1", "_shared.py": ""})
    (site / "housed" / "staging" / "__init__.py").write_text('"""What stages a tile."""\n')
    write_package(site / "housed", "staging.deep", {"two.py": "x = 2"})
    write_package(site / "housed", "whole", {"part.py": ""})
    (site / "housed" / "whole" / "__init__.py").write_text("x = 3\n")
    found = Registry("kir.passes", [Source("housed", "dist-h", "1")])
    assert {e.name: (e.module, e.family) for e in found} == {
        "flat": ("housed.flat", ""), "one": ("housed.staging.one", "staging"), "two": ("housed.staging.deep.two", "staging.deep"),
        "whole": ("housed.whole", "")}
    modules, broken = found.load_all()
    assert broken == () and [modules[name].x for name in sorted(modules)] == [0, 1, 2, 3]


def test_one_name_in_two_families_is_used_from_neither(site: Path) -> None:
    write_package(site, "twice", {"own.py": ""})
    for family in ("grid", "loops"):
        write_package(site / "twice", family, {"tile.py": ""})
    found = Registry("kir.passes", [Source("twice", "dist-t", "1"), Source("twice.no_such_family", "dist-u", "1")])
    with pytest.raises(KirError, match="more than one module") as caught:
        found.load("tile")
    assert [w.partition(" ")[0] for w in caught.value.diagnostics[0].witness] == ["twice.grid.tile", "twice.loops.tile"]
    modules, broken = found.load_all()
    assert list(modules) == ["own"] and [b.name for b in broken] == ["twice.no_such_family", "tile", "tile"]
