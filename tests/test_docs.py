"""The documents: everything public says what it is, links lead somewhere, every page is on the site."""
from __future__ import annotations

import re
from importlib import import_module

import pytest

from tests.test_layout import CODE, ROOT, python_files, source

FOLDERS = ("kir", "passes", "frontends", "backends")
WAY = "docs/tables/way-of-a-text.md"


def test_everything_public_has_a_docstring() -> None:
    bare = [f"{file.relative_to(ROOT)}{what}" for file in python_files(*FOLDERS) for what in source(file).bare]
    assert bare == []


def test_every_page_has_its_place_on_the_site() -> None:
    listed = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    missing = [name for file in sorted((ROOT / "docs").rglob("*.md")) if (name := str(file.relative_to(ROOT / "docs"))) not in listed
               and not name.startswith(("decisions/", "tables/"))]
    assert missing == []


def test_links_between_documents_lead_somewhere() -> None:
    broken = []
    for file in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", file.read_text(encoding="utf-8")):
            if "://" not in link and not (file.parent / link).exists():
                broken.append(f"{file.relative_to(ROOT)}: {link}")
    assert broken == []


def _page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def _named_files(text: str) -> list[str]:
    """The paths that a page names in backquotes, for each surface."""
    return [each.replace("SURFACE", surface).replace("some_pass", "tile").replace("some_command", "opt")
            for each in re.findall(r"`([\w/.\-]+/[\w/.\-]*)`", text) for surface in ("cuda", "triton", "tilelang")]


def test_what_the_map_of_the_code_points_at_is_there() -> None:
    filled = _named_files(_page("docs/extending/map.md"))
    assert len(filled) > 60 and [each for each in filled if not (ROOT / each).exists()] == []


def test_what_the_architecture_and_the_first_change_point_at_is_there() -> None:
    named = [each for page in ("ARCHITECTURE.md", "docs/extending/where.md") for each in _named_files(_page(page))]
    new = {f"tests/passes/cases/{name}.toml" for name in ("my_padding", "tile")}
    missing = [each for each in named if each not in new and not (ROOT / each).exists() and not any((ROOT / top / each).exists() for top in CODE)]
    assert len(named) > 100 and missing == []


def test_the_architecture_fits_two_pages_and_draws_the_house() -> None:
    lines = _page("ARCHITECTURE.md").splitlines()
    assert len(lines) <= 100 and max(map(len, lines)) <= 100
    order = re.search(r"^Order: ([\w, ]+)\.$", _page("kir/__init__.py"), re.M)
    drawn = [found[1] for line in lines if (found := re.match(r" │ (\w+) {2,}\w", line))]
    assert order is not None and drawn == order[1].split(", ")[::-1]


def test_the_readme_takes_a_screen_and_a_half_with_two_commands_and_a_picture_first() -> None:
    lines = _page("README.md").splitlines()
    assert sum(max(1, -(-len(line) // 100)) for line in lines) <= 75
    assert [line.split()[:2] for line in lines[3:5]] == [["make", "demo"], ["make", "test"]] and any(line.startswith("![") for line in lines[:20])


def test_commands_that_the_pages_show_exist_with_their_options_and_files() -> None:
    """`kir`, `python -m` and `make`, of blocks and in the text; what stands for a file of the reader's is no path of ours."""
    texts = {file.stem: file.read_text(encoding="utf-8") for file in (ROOT / "kir/faces/cli").glob("*/[a-z]*.py")}
    made, seen, wrong = _page("Makefile"), 0, []
    for page in (file for glob in ("*.md", "docs/using/*.md", "docs/extending/*.md", "docs/decisions/*.md") for file in ROOT.glob(glob)):
        text = page.read_text(encoding="utf-8")
        lines = [line.strip().removeprefix("$ ") for block in re.findall(r"```(?:sh|console)?[^\n]*\n(.*?)```", text, re.S) for line in block.split("\n")]
        for line in (each.partition(" #")[0] for each in (*lines, *re.findall(r"`((?:kir|python -m|make) [^`\n]+)`", text))):
            bad = [path for path in re.findall(r"(?<![\w/.-])((?:skills|benchmarks|grammars|tests)/[\w/-]+(?:\.\w+)*)", line) if not (ROOT / path).exists()]
            for words in (command.split() for command in re.split(r"\s*(?:\|\||&&|[;|])\s*", line) if command and page.name != "CHANGELOG.md"):
                if words[0].endswith("kir") and len(words) > 1 and re.fullmatch(r"[a-z]+", words[1]):
                    options = [x[2:].replace("-", "_") for x in " ".join(words).partition(" -- ")[0].split() if re.fullmatch(r"--[a-z-]+", x)]
                    known = (*texts.get(words[1], "").split('"'), "--json", "--debug", "--help", "--version")
                    bad += [] if words[1] in texts else words[:2]
                    bad += [x for x in options if f"--{x.replace('_', '-')}" not in known and not re.search(
                        rf"\b({x}|{x.removeprefix('no_')}): ", texts.get(words[1], ""))]
                elif words[:2] == ["python", "-m"] and words[2].startswith(("benchmarks", "kir")):
                    at = ROOT / words[2].replace(".", "/")
                    bad += [] if at.with_suffix(".py").exists() or (at / "__main__.py").exists() else [words[2]]
                elif words[0] == "make":
                    bad += [x for x in words[1:] if re.fullmatch(r"[a-z-]+", x) and not re.search(rf"^{x}:", made, re.M)]
                seen += words[0].endswith(("kir", "python", "make"))
            wrong += [f"{page.name}: {line}: {bad}"] if bad else []
    assert seen > 200 and wrong == []


def test_functions_that_a_text_passes_exist() -> None:
    """Those of the short list, and of the long one, which is written by a run."""
    short = re.findall(r"^\| .* \| `(kir\.[\w.]+)` \|$", _page("ARCHITECTURE.md"), re.M)
    long = [f"{'' if room.startswith('kir') else 'kir.'}{room}.{name}" for room, name in re.findall(r"^\| `([\w.]+)` \| `([\w.]+)` \|$", _page(WAY), re.M)]
    assert len(short) == 6 and len(long) > 40 and [name for name in (*short, *long) if not _is_there(name)] == []


def _is_there(name: str) -> bool:
    """Whether a dotted name leads to something that a module or a class of it defines."""
    parts = name.split(".")
    for k in range(len(parts) - 1, 0, -1):
        try:
            found: object = import_module(".".join(parts[:k]))
        except ModuleNotFoundError:
            continue
        for part in parts[k:]:
            found = getattr(found, part, None)
        return found is not None
    return False


@pytest.mark.parametrize(("question", "opened"), [
    ("a pass that pads shared memory", "passes/layout/pad_shared.py"), ("a TileLang word", "frontends/tilelang/intrinsics/memory.py"),
    ("a precondition", "passes/layout/pad_shared.py"), ("a command", "kir/faces/cli/rewriting/opt.py")])
def test_a_newcomer_finds_the_file_from_the_readme_alone(question: str, opened: str) -> None:
    assert "[how the code is laid out](ARCHITECTURE.md)" in _page("README.md") and "(docs/extending/where.md)" in _page("ARCHITECTURE.md")
    (row,) = (line for line in _page("docs/extending/where.md").splitlines() if line.startswith(f"| {question} |") and opened in line)
    assert (ROOT / opened).is_file() and all((ROOT / each).exists() for each in _named_files(row))
    assert "KIR-P" not in row or re.findall(r"KIR-P\d+", row)[0] in _page(opened)
