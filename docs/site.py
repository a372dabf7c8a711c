"""What the site (`make docs`) has beside the pages in this folder, made when it is built: the gallery of shipped lineages with their reports, a page of all
commands, a page of what `import kir` offers, and the pages that stand elsewhere in the repository. A hook of MkDocs; nothing of it is kept in git."""
from __future__ import annotations

import inspect
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
LINK = re.compile(r"\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")
HEAD = re.compile(r"^```(\w+) .*?file=(\S+).*$", re.M)
FENCE = re.compile(r"^```.*?^```$", re.M | re.S)


def elsewhere() -> dict[str, Path]:
    """Pages that stand elsewhere in the repository, by their place in the site."""
    measured = {f"measured/{file.name}": file for file in sorted((ROOT / "benchmarks" / "results").glob("*.md"))}
    return {"extending/architecture.md": ROOT / "ARCHITECTURE.md", "extending/changes.md": ROOT / "CHANGELOG.md", **measured,
            "measured/effects.md": ROOT / "benchmarks" / "data" / "effects" / "README.md"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Folders in the navigation stand for all of their pages."""
    def pages(folder: str) -> list[str]:
        own = [f"{folder}/{file.name}" for file in sorted((ROOT / "docs" / folder).glob("*.md"))]
        return own + [place for place in elsewhere() if place.startswith(f"{folder}/")]

    def spread(entry: Any) -> Any:
        if isinstance(entry, list):
            return [spread(each) for each in entry]
        if isinstance(entry, dict):
            return {name: pages(value) if isinstance(value, str) and not value.endswith(".md") else spread(value) for name, value in entry.items()}
        return entry
    config.nav = spread(config.nav)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made."""
    made: dict[str, str] = {place: file.read_text(encoding="utf-8") for place, file in elsewhere().items()}
    made |= {"using/commands.md": commands(), "using/api.md": interface(), "using/example.md": notebook(), **gallery()}
    for place, text in made.items():
        files.append(File.generated(config, place, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links lead to where a page stands in the site; what the site does not have keeps its name only."""
    here = page.file.src_uri
    stands = elsewhere().get(here, ROOT / "docs" / here)
    there = {file.resolve(): place for place, file in elsewhere().items()}
    there |= {(ROOT / "docs" / file.src_uri).resolve(): file.src_uri for file in files}

    def led(found: re.Match[str]) -> str:
        text, target, anchor = found[1], found[2], found[3] or ""
        if "://" in target:
            return found[0]
        place = there.get((stands.parent / target).resolve())
        if here in ("using/commands.md", "using/api.md") or here.startswith("gallery/"):
            return found[0]
        return f"[{text}]({os.path.relpath(place, os.path.dirname(here))}{anchor})" if place else text
    parts = FENCE.split(markdown)
    fences = [HEAD.sub(r'```\1 title="\2"', fence) for fence in FENCE.findall(markdown)]
    return "".join(LINK.sub(led, part) + (fences[k] if k < len(fences) else "") for k, part in enumerate(parts))


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Nothing is fetched from the network: the theme's own way to search in pages that are opened as files is."""
    return alone(output, os.path.relpath("site.js", os.path.dirname(page.file.dest_uri) or "."))


def on_post_template(output_content: str, template_name: str, config: MkDocsConfig) -> str:
    """The same of pages that are none of ours."""
    return alone(output_content, "site.js")


def alone(html: str, script: str) -> str:
    """A page with our script in the place of the one that would be fetched."""
    return html.replace("https://unpkg.com/iframe-worker/shim", script)


def commands() -> str:
    """Every command with its description and what it takes."""
    from typer.main import get_command_name

    from kir.faces.cli._main import _made
    from kir.faces.cli._main import commands as listed

    out = ["# Commands", "", "Every command also takes `--json` (one JSON object on standard output) and `--debug`.", ""]
    for name in listed():
        made = _made(name)
        for sub, command in {f"{name} {k}": v for k, v in getattr(made, "commands", {}).items()}.items() or [(name, made)]:
            context = command.make_context(get_command_name(sub), [], resilient_parsing=True)
            out += [f"## kir {sub}", "", "```text", command.get_help(context).replace(f"Usage: {context.info_name}", f"Usage: kir {sub}").strip(), "```", ""]
    return "\n".join(out)


def interface() -> str:
    """What `import kir` offers, from its signatures and docstrings."""
    import kir

    out = ["# The package kir", "", "```python", inspect.cleandoc(kir.__doc__ or ""), "```", ""]
    for name in kir._OFFERED:
        held = getattr(kir, name)
        try:
            said = str(inspect.signature(held))
        except (TypeError, ValueError):
            said = ""
        out += [f"## kir.{name}", "", f"```python\n{name}{said if inspect.isfunction(held) else ''}\n```", "", inspect.getdoc(held) or "", ""]
        if inspect.isclass(held):
            out += [f"- `{member}`: {(inspect.getdoc(value) or '').splitlines()[0]}" for member, value in vars(held).items()
                    if not member.startswith("_") and inspect.getdoc(value) and (isinstance(value, property) or callable(value))]
            out += [""]
    return "\n".join(out)


def notebook() -> str:
    """The example notebook as a page: its cells, and what they show."""
    out: list[str] = []
    for cell in json.loads((ROOT / "docs" / "using" / "example.ipynb").read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        out += [text, ""] if cell["cell_type"] == "markdown" else [f"```python\n{text}\n```", ""]
        for shown in cell.get("outputs", ()):
            html = shown.get("data", {}).get("text/html")
            plain = "".join(shown.get("text") or shown["data"]["text/plain"])
            out += [f'<div class="shown">{"".join(html)}</div>' if html else f"```text\n{plain}\n```", ""]
    return "\n".join(out)


def gallery() -> dict[str, str]:
    """A card for each lineage that ships with KIR, and its report."""
    from kir.faces.report.page import page, picture
    from kir.ir.changes.diff import diff, render_html
    from kir.lineage.records.folder import Folder, lineage_names, shipped_lineages

    out: dict[str, str] = {}
    cards = []
    for name in lineage_names():
        folder = Folder(shipped_lineages() / name)
        lineage = folder.read()
        out[f"gallery/{name}.html"] = page(lineage, folder, lambda a, b: str(render_html(diff(a, b))))
        out[f"gallery/{name}.svg"] = picture(lineage)
        intents = list(dict.fromkeys(step.intent for _, step in lineage.transitions()))
        first = f"{lineage.header.surface}, {len(lineage.transitions())} steps: {', '.join(intents[:6])}{' ..' if len(intents) > 6 else ''}"
        drawn = f'<a href="{name}.html"><img src="{name}.svg" alt="{name}, step by step" loading="lazy"></a>'
        cards.append(f'<article><h3><a href="{name}.html">{name}</a></h3><p>{first}</p>{drawn}</article>')
    about = ("Every lineage that ships with KIR, from the naive program to the expert's: a picture of the time after each step (solid: measured; "
             "dashed: modelled), and its report behind it. `kir explore NAME` opens one as slides.")
    head = ["---", "hide: [navigation, toc]", "---", "", "# Gallery", "", about, ""]
    out["gallery/index.md"] = "\n".join([*head, '<div class="gallery">', *cards, "</div>", ""])
    return out
