"""The page of lineages over whole packages, in Markdown."""
from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from math import sqrt
from typing import Any

from kir.learning.corpus.lineages import SEED, stop_of

Row = dict[str, Any]
CHECKED = "## Checked"
"""The head of the last section, which `checked` writes."""
_LINE = re.compile(r"\| `([^`]+)` \| [\w-]+ \| ([^|]+) \| \d+ \|.*\| ([0-9a-f]{8}) \| [0-9a-f]{8} \|")


def page(rows: list[Row], total: Row, command: str, sample: Collection[str] = ()) -> str:
    """docs/tables/package-lineages.md: how many ended naive by family, of a random `sample` (paths of bindings) where there is one, each of them, and
    what stopped the others."""
    naive = [r for r in rows if r["ended"] == "naive"]
    walked = [r for r in rows if r["ended"] != "left"]
    left = f" {total['left']} more recorded kernels were not walked." if total["left"] else ""
    lines = [
        "# Lineages over whole packages", "",
        f"Made by `{command} --seconds 0 --markdown` from what `{command}` has left in OUT.", "",
        f"**{len(naive)} kernels of {total['families']} families of operators end in N** on the CPU gate (each state compiled for sm_90a, interpreted and",
        f"modelled; rebuilt to the same hashes), of {len(walked)} that were walked.{left} A family is what the words in the names of file, kernel and",
        "folder say, by the table `grammars/families.toml`. `kir replay OUT/PACKAGE/KERNEL` rebuilds one.", "",
        *(_of_sample([r for r in rows if r["path"] in sample], sum(not r["read_as"].startswith("shipped") for r in rows)) if sample else []),
        "| family | recorded | walked | end in N | of all |", "| --- | ---: | ---: | ---: | ---: |"]
    for family in sorted({r["family"] for r in walked}, key=lambda f: (-total["by_family"].get(f, 0), f)):
        every, tried = (sum(r["family"] == family for r in some) for some in (rows, walked))
        done = total["by_family"].get(family, 0)
        lines.append(f"| {family} | {every} | {tried} | {done} | {100 * done / every:.0f} % |")
    lines += ["", "## Kernels that end in N", "",
              "*Read as* says how the recorded launch was taken: tensors as flat memory, masked loads that say nothing else giving zero, outputs holding",
              "something before; otherwise as it was recorded. *Realized* steps change the compiled code.", "",
              "| kernel | family | read as | steps | realized | intents | seconds | expert | naive |",
              "| --- | --- | --- | ---: | ---: | --- | ---: | --- | --- |"]
    for r in sorted(naive, key=lambda r: (r["family"], r["kernel"])):
        lines.append(f"| `{r['kernel']}` | {r['family']} | {r['read_as'] or 'recorded'} | {r['steps']} | {r['realized']} | {', '.join(r['intents'])} | "
                     f"{r['seconds']:.0f} | {r['expert'][:8]} | {r['naive'][:8]} |")
    lines += ["", "## What stopped the others", "", "| reason | kernels | for example |", "| --- | ---: | --- |"]

    for each in total["stopped"]:
        example = next(r["kernel"] for r in walked if r["ended"] != "naive" and stop_of(r["reason"]) == each["reason"])
        lines.append(f"| {each['reason'].replace('|', chr(92) + '|')} | {each['kernels']} | `{example}` |")
    return "\n".join(lines) + "\n"


def _of_sample(rows: Sequence[Row], of: int) -> list[str]:
    """What became of kernels that were drawn at random of so many, with the 95 % interval of the share by Wilson's score."""
    naive, walked, n = (sum(r["ended"] in ended for r in rows) for ended in (("naive",), {r["ended"] for r in rows} - {"left"}, {r["ended"] for r in rows}))
    share, z = naive / n, 1.96
    middle, half = share + z * z / (2 * n), z * sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    low, high = ((middle + sign * half) / (1 + z * z / n) for sign in (-1, 1))
    return [f"Which kernels were walked is no random choice. Of {n} that were drawn at random from the {of} recorded ones (seed {SEED}), **{naive} end in N: "
            f"{100 * share:.0f} %**", f"(of all recorded ones {100 * low:.0f} to {100 * high:.0f} %, 19 times of 20); {n - walked} of them were not walked and "
            "count as if they did not.", ""]


def named(text: str) -> list[tuple[str, str, str]]:
    """The kernels of a page that end in N: each with how it was read ("" as recorded) and the first eight digits of its expert's hash."""
    return [(m[1], "" if m[2] == "recorded" else m[2], m[3]) for m in map(_LINE.fullmatch, text.splitlines()) if m]


def checked(text: str, now: Mapping[tuple[str, str], Sequence[str]], command: str) -> tuple[str, list[str]]:
    """The page with a last section that says which of its kernels are read as other programs today (or not at all), and those."""
    rows = named(text)
    stale = [(place, before, "" if not (found := now.get((place, how))) else found[0][:8]) for place, how, before in rows
             if all(before != each[:8] for each in now.get((place, how), ()))]
    body = text.partition(f"\n{CHECKED}\n")[0].rstrip("\n")
    if not stale:
        said = [f"`{command}` has read the {len(rows)} experts of the table again: each is the program that it names."]
    else:
        said = [f"`{command}` has read the {len(rows)} experts of the table again: {len(rows) - len(stale)} are the programs that it names. Of these",
                "it is not so, and what is said of them is what an earlier KIR made of them:", "", "| kernel | named | read today |", "| --- | --- | --- |",
                *(f"| `{place}` | {before} | {after or 'not read'} |" for place, before, after in stale)]
    return "\n".join([body, "", CHECKED, "", *said]) + "\n", [place for place, _, _ in stale]
