"""Hostile replies, and servers that go wrong: what each is, what is said of it, and what it costs. `docs/tables/hostile-answers.md` is made from it:

    python -m tests.kir.lineage.carrier.hostile > docs/tables/hostile-answers.md
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from tests.kir.lineage.carrier.asking import RIGHT, SERIAL, Asked, ask
from tests.kir.lineage.carrier.server import Says


def changed(old: str, new: str) -> str:
    """The right answer with one thing made wrong."""
    assert old in SERIAL
    return f"```kir\n{SERIAL.replace(old, new, 1)}```"


@dataclass(frozen=True)
class Case:
    """`said` in the table; the script of the server; the id that must come; whether it is a refusal of the answer or ends the asking; and
    whether it may cost nothing, its tokens, or the worst case."""

    said: str
    script: tuple[Says, ...]
    id: str
    kind: str = "answer"
    cost: str = "tokens"
    more: dict[str, Any] = field(default_factory=dict)
    requests: int = 1


def _answer(said: str, text: str, id: str, **more: Any) -> Case:
    return Case(said, (Says(text),), id, more=more)


ANSWERS = (
    _answer("nothing at all", "", "KIR-H112"),
    _answer("white space", "  \n\n ", "KIR-H112"),
    _answer("prose without code", "I would rather talk about scans.", "KIR-T001"),
    _answer("prose with two answers in it", f"{RIGHT}\nor, if you prefer:\n{RIGHT}", "KIR-H111"),
    _answer("a fence that is never closed", f"```kir\n{SERIAL}", "KIR-H111"),
    _answer("code in a language that was not asked for", "```python\nprint(sum(range(9)))\n```", "KIR-H111"),
    _answer("a shell script instead of IR", "```kir\n#!/bin/sh\ncurl http://127.0.0.1/ | sh\n```", "KIR-T001"),
    _answer("Python in a block marked as IR", "```kir\nimport os\nos.system('touch /tmp/pwned')\n```", "KIR-T001"),
    _answer("a fragment that opens a file", "```triton\nimport triton\nopen('/etc/passwd').read()\n```", "KIR-H113"),
    _answer("a fragment that imports a host module", "```triton\nimport os\n@os.system\ndef k(): pass\n```", "KIR-H113"),
    _answer("a fragment that runs code when it is imported", "```triton\nimport triton\n[].append(__import__('os').getcwd())\n```", "KIR-H113"),
    _answer("a fragment with a decorator that calls out", "```triton\nimport triton\n@(lambda f: __import__('os').getcwd())\ndef k(x): pass\n```",
            "KIR-H113"),
    _answer("a fragment with a default value that calls out", "```triton\nimport triton\n@triton.jit\ndef k(x=open('/etc/passwd')): pass\n```",
            "KIR-H113"),
    _answer("a CUDA fragment that includes a host header", "```cuda\n#include <cstdlib>\n__global__ void k() { system(\"id\"); }\n```", "KIR-H113"),
    _answer("a CUDA fragment that includes a file", "```cuda\n#include \"/etc/passwd\"\n```", "KIR-H113"),
    _answer("a CUDA fragment with text for the assembler", "```cuda\n__global__ void k() { asm(\"trap;\"); }\n```", "KIR-H113"),
    _answer("an answer that calls a function that does not exist", changed("S[0] = total", 'S[0] = system("id")'), "KIR-T001"),
    _answer("an answer with opaque text", changed("S[0] = total", 'opaque cuda reads nothing writes S because "x" text "__trap();"'), "KIR-H123"),
    _answer("an answer that leaves a hole", changed("S[0] = total", 'hole more contract "x/1" writes S'), "KIR-H123"),
    _answer("an operand of its own", changed("in X: f32[N]", "in X: f32[N]\n  in SECRET: f32[N]"), "KIR-H120"),
    _answer("an input declared as an output", changed("in X: f32[N]", "inout X: f32[N]"), "KIR-H120"),
    _answer("an input that is written", changed("P[i] = total", "P[i] = total\n    X[i] = 0.0"), "KIR-V025"),
    _answer("a fact that the contract does not grant", changed("out S: f32[1]", "out S: f32[1]\n  fact N <= 64"), "KIR-H122"),
    _answer("a kernel that leaves the CTA", changed("S[0] = total", "S[0] = total\n  return"), "KIR-H124"),
    _answer("a read outside the contract", changed("X[i]", "X[i + 1]"), "KIR-H131"),
    _answer("a read before the operand", changed("X[i]", "X[i - 1]"), "KIR-H131"),
    _answer("a write outside the contract", changed("P[i] = total", "P[i + 1] = total"), "KIR-H131"),
    _answer("an undefined value in an output", changed("f32 = 0.0", "f32"), "KIR-H131"),
    _answer("an output that is left as it was", changed("S[0] = total", "S[0] = S[0]"), "KIR-H131"),
    _answer("a race between threads", changed("S[0] = total", "for t in 0..32 parallel thread\n    S[0] = cast(t, f32)"), "KIR-H131"),
    _answer("an answer that is right but for the tail", changed("0..N", "0..N // 2 * 2"), "KIR-H131"),
    _answer("an answer that is right but for one element", changed("S[0] = total", "S[0] = total\n  P[0] = 0.0"), "KIR-H130"),
    _answer("an answer that is right at the sizes of the contract alone",
            changed("S[0] = total", "S[0] = select(N == 1 | N == 37 | N == 64 | N == 4096, total, 0.0)"), "KIR-H130"),
    _answer("zeros", changed("P[i] = total", "P[i] = 0.0"), "KIR-H130"),
    _answer("a constant NaN", changed("total = total + X[i]", "total = nan"), "KIR-H130"),
    _answer("a loop that does not end", changed("S[0] = total", "while X[0] == X[0]\n    S[0] = total"), "KIR-I007"),
    _answer("more time than the budget", changed("P[i] = total", "for z in 0..100000\n      P[i] = total"), "KIR-H125"),
    _answer("more shared memory than the budget", changed("S[0] = total", "shared all: f32[9999] = 0.0\n  S[0] = total"), "KIR-H125"),
    _answer("more registers than the budget", changed("S[0] = total", "for t in 0..32 parallel thread\n    register r: f32[99] = 0.0\n  S[0] = total"),
            "KIR-H125"),
    _answer("a value too large to be interpreted", changed("S[0] = total", "S[0] = cast(reduce(iota(5000000), axis=0, op=sum), f32)"), "KIR-H126"),
    _answer("calls three thousand deep", changed("S[0] = total", f"S[0] = {'exp(' * 3000}total{')' * 3000}"), "KIR-T001", max_tokens=20_000),
    _answer("a character that no source has", changed("@scan", "@sc\x00an"), "KIR-H112"),
    _answer("an invisible character", changed("@scan", "@sc\u202ean"), "KIR-H112"),
    _answer("half of a character", changed("@scan", "@sc\ud800an"), "KIR-H112"),
    _answer("half of a megabyte", changed("S[0] = total", "S[0] = total\n# " + "x" * 500_000), "KIR-H112", max_tokens=200_000),
)

SERVERS = (
    Case("401: the key is refused", (Says("no such key", status=401),), "KIR-H303", "call", "nothing"),
    Case("403: the key may not do this", (Says("not yours", status=403),), "KIR-H303", "call", "nothing"),
    Case("404: an unknown model", (Says("no model m", status=404),), "KIR-H304", "call", "nothing"),
    Case("400: a request that it does not take", (Says("max_tokens too large", status=400),), "KIR-H305", "call", "nothing"),
    Case("a redirect to another host", (Says("elsewhere", status=307, headers=(("Location", "http://127.0.0.1:9/v1"),)),), "KIR-H305", "call",
         "nothing"),
    Case("429 for ever, without retry-after", (Says("slow down", status=429),), "KIR-H306", "call", "nothing", requests=3),
    Case("429 that asks to wait an hour", (Says("slow down", status=429, headers=(("Retry-After", "3600"),)),), "KIR-H306", "call", "nothing"),
    Case("500 for ever", (Says("oops", status=500),), "KIR-H306", "call", "nothing", requests=3),
    Case("529: overloaded, for ever", (Says("busy", status=529),), "KIR-H306", "call", "nothing", requests=3),
    Case("a stream cut in the middle, every time", (Says(RIGHT, cut=4),), "KIR-H307", "call", "worst", requests=3),
    Case("a stream that stalls, every time", (Says(RIGHT, stall=30),), "KIR-H307", "call", "worst",
         {"time": {"connect": 30, "silence": 0.6, "total": 60}}, requests=3),
    Case("a stream that only pings", (Says(RIGHT, pings=0.05),), "KIR-H307", "call", "worst",
         {"time": {"connect": 30, "silence": 30, "total": 0.4}}),
    Case("headers that come byte by byte, for ever", (Says(drip=0.05),), "KIR-H307", "call", "worst",
         {"time": {"connect": 30, "silence": 30, "total": 0.2}}),
    Case("a reply without end", (Says(RIGHT, endless=True),), "KIR-H308", "call", "worst"),
    Case("bytes that are no UTF-8", (Says(raw=b'data: {"choices": [{"delta": {"content": "\xff\xfe"}}]}\n\n'),), "KIR-H309", "call", "worst"),
    Case("events that are no JSON", (Says(raw=b"data: {nonsense\n\n"),), "KIR-H309", "call", "worst"),
    Case("a web page", (Says(raw=b"<html>login</html>"),), "KIR-H309", "call", "worst"),
    Case("an empty body", (Says(raw=b""),), "KIR-H307", "call", "worst", requests=3),
    Case("an error in the middle of the stream", (Says(raw=b'data: {"type": "error", "error": {"message": "overloaded"}}\n\n'),), "KIR-H307",
         "call", "worst", requests=3),
    Case("token counts below what the bytes allow", (Says(RIGHT, counts=(1, 1)),), "", "accepted", "worst"),
    Case("negative token counts", (Says(RIGHT, counts=(-5, -5)),), "", "accepted", "worst"),
    Case("token counts above the worst case", (Says(RIGHT, counts=(10**9, 10**9)),), "", "accepted", "claimed"),
    Case("no token counts", (Says(RIGHT, counts=None),), "", "accepted", "worst"),
    Case("prose around the one answer", (Says(f"Of course!\n\n{RIGHT}\n\nHope this helps."),), "", "accepted", "tokens"),
    Case("an answer cut off at max_tokens", (Says(RIGHT[:-9], finish="length"),), "KIR-H111", "answer", "tokens"),
    Case("500 once, then the answer", (Says("oops", status=500), Says(RIGHT)), "", "accepted", "tokens", requests=2),
    Case("429 with retry-after 2, then the answer", (Says("slow", status=429, headers=(("Retry-After", "2"),)), Says(RIGHT)), "", "accepted",
         "tokens", requests=2),
    Case("cut once, then the answer", (Says(RIGHT, cut=3), Says(RIGHT)), "", "accepted", "worst and tokens", requests=2),
)


def asked(case: Case, protocol: str) -> Asked:
    """The case, against the loopback server; each is played once."""
    return _played(case.said, protocol)


@cache
def _played(said: str, protocol: str) -> Asked:
    case = next(c for c in (*ANSWERS, *SERVERS) if c.said == said)
    return ask(list(case.script), protocol, **case.more)


def verdict_of(a: Asked) -> str:
    """How a case ended, in a few words."""
    if a.outcome.program is not None:
        return "accepted"
    if a.outcome.attempts:
        d = a.outcome.attempts[-1].verdict.diagnostics[0]
        return f"refused at `{a.outcome.attempts[-1].verdict.stage}`: {d.id}"
    return f"ended: {a.outcome.stopped[0].id}"


def table() -> Iterator[str]:
    """`docs/tables/hostile-answers.md`, a line each."""
    from kir.base.diagnostic import explanation
    yield "# Hostile answers and their verdicts"
    yield ""
    yield "Made by `python -m tests.kir.lineage.carrier.hostile`, which lets a real HTTP server on loopback say each of these, against the contract of the"
    yield "tests; a test holds this page to it, and puts the servers' part in both protocols. No answer is imported, evaluated or passed to a shell; each"
    yield "ends in one verdict. *Counted as* says what the budget is charged: nothing, the tokens that the server counts, the worst case that was set aside"
    yield "before the call (for what may have been billed and is not known), or what the server claims, when that is more."
    yield "How holes, contracts and providers work: [writing-a-contract.md](../extending/writing-a-contract.md)."
    for title, cases in (("Answers", ANSWERS), ("Servers", SERVERS)):
        yield from ("", f"## {title}", "", "| what came | verdict | what it means | counted as |", "| --- | --- | --- | --- |")
        for case in cases:
            verdict = verdict_of(asked(case, "openai"))
            row = explanation(verdict.rpartition(" ")[2])
            yield f"| {case.said} | {verdict} | {row.title if row is not None else ''} | {case.cost} |"


if __name__ == "__main__":
    print("\n".join(table()))
