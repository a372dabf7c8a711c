"""The one place that dispatches commands, prints results and diagnostics, and decides exit codes."""

from __future__ import annotations

import ast
import contextlib
import errno
import gc
import importlib
import io
import json
import os
import re
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import kir
from kir.base.diagnostic import Diagnostic, KirError, UsageError, did_you_mean, usage
from kir.base.notices import notices
from kir.faces.cli._progress import shown
from kir.faces.cli._result import Result

FOLDER = Path(__file__).parent
EPILOG = "Every command also takes --json (one JSON object on standard output) and --debug."


COMPLETE = "_KIR_COMPLETE"
"""The variable by which a shell asks what may follow (`kir completion`)."""


class _Usage(Result):
    """What a command says of its own use, as a result."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run ``kir`` with ``argv`` (default: the process's) and exit: 0 done, 1 refused or failed, 2 usage."""
    gc.set_threshold(100_000, 20, 20)  # trees are large and hold no cycles: looking for some after every 700 nodes takes a sixth of the time
    if argv is None and COMPLETE in os.environ:
        sys.exit(_completed(os.environ[COMPLETE]))
    sys.exit(run(sys.argv[1:] if argv is None else argv))


def run(argv: Sequence[str]) -> int:
    """Run one command and return its exit code. ``--json`` and ``--debug`` may stand anywhere before a bare ``--``."""
    words, shared = _shared_options(argv)
    as_json, debug = "--json" in shared, "--debug" in shared
    try:
        return _dispatch(words, as_json)
    except KirError as fault:
        if debug:
            traceback.print_exc()
        _report(fault.diagnostics, as_json)
        return 2 if isinstance(fault, UsageError) else 1
    except BrokenPipeError:
        # The reader of our output is gone (``kir passes | head``): let the interpreter's last flush go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except Exception as fault:
        if debug:
            traceback.print_exc()
        _report((_of_the_machine(fault) or _internal(fault),), as_json)
        return 1


def _completed(instruction: str) -> int:
    """What a shell asks for: words that may follow those that were typed, of all commands and their options."""
    import typer.completion
    import typer.core

    typer.completion.completion_init()  # type: ignore[attr-defined]  # typer lists no names of this module
    made, said = {name: _made(name) for name in _files()}, commands()
    for name, each in made.items():
        each.name, each.help = name, said[name]
    return typer.completion.shell_complete(typer.core.TyperGroup(name="kir", commands=made), {}, "kir", COMPLETE, instruction)


def commands() -> Mapping[str, str]:
    """Each command's name and one-line summary, read from the modules' docstrings without importing them."""
    return {name: _first_line(file) for name, file in _files().items()}


_DOCSTRING = re.compile(r'"""[^"\\]*"""')
"""A plain docstring: that of a command, before which nothing stands in its file."""


def _first_line(file: Path) -> str:
    """The first line of a module's docstring. Only where it is no plain one all of the module is parsed, which takes fifty times as long."""
    text = file.read_text(encoding="utf-8")
    found = _DOCSTRING.match(text)
    return (ast.get_docstring(ast.parse(text if found is None else found[0])) or "").partition("\n")[0]


def _files() -> Mapping[str, Path]:
    """The module of each command, in this folder or in a folder of it that groups commands; sorted by name."""
    found = {file.stem.replace("_", "-"): file for pattern in ("[a-z]*.py", "[a-z]*/[a-z]*.py") for file in FOLDER.glob(pattern)}
    return {name: found[name] for name in sorted(found)}


def _shared_options(argv: Sequence[str]) -> tuple[list[str], set[str]]:
    stop = argv.index("--") if "--" in argv else len(argv)
    shared = {word for word in argv[:stop] if word in ("--json", "--debug")}
    return [word for word in argv[:stop] if word not in shared] + list(argv[stop:]), shared


def _dispatch(words: Sequence[str], as_json: bool) -> int:
    if not words or words[0] in ("--help", "-h", "help"):
        listing = commands()
        _print(Result({"version": kir.__version__, "commands": listing}, _help(listing)), "help", as_json)
        return 0 if words else 2
    name, arguments = words[0], list(words[1:])
    if name == "--version":
        _print(Result({"version": kir.__version__}, f"kir {kir.__version__}"), "version", as_json)
        return 0
    if name not in (files := _files()):
        kind = "option" if name.startswith("-") else "command"
        hint = did_you_mean(name, files if kind == "command" else ("--help", "--version", "--json", "--debug"))
        raise usage("KIR-C001", f"there is no {kind} '{name}'{f'; {hint}' if hint else ''}", attempt="kir --help")
    with notices() as told, shown(name):
        outcome = _alone(name, arguments) if as_json else _call(name, arguments)
    if isinstance(outcome, Result):
        outcome = replace(outcome, diagnostics=(*outcome.diagnostics, *told)) if told else outcome
        _print(outcome, "help" if isinstance(outcome, _Usage) else name, as_json)
        return outcome.code
    return outcome if isinstance(outcome, int) else 0


def _alone(name: str, arguments: list[str]) -> Any:
    """As `_call`, with standard output kept for the one JSON object: what a command says of its own use is a result too, and what the
    processes that it starts print there goes to standard error."""
    with _kept_output(), contextlib.redirect_stdout(io.StringIO()) as said:
        outcome = _call(name, arguments)
    text = said.getvalue()
    if isinstance(outcome, Result):
        print(text, end="", file=sys.stderr)
        return outcome
    return _Usage({"command": name, "usage": text}, text, outcome if isinstance(outcome, int) else 0)


@contextlib.contextmanager
def _kept_output() -> Iterator[None]:
    """The process's standard output is its standard error inside."""
    try:
        number = sys.stdout.fileno()
        kept = os.dup(number)
    except (OSError, ValueError, AttributeError):  # no file behind it: nothing that another process could write to
        yield
        return
    sys.stdout.flush()
    os.dup2(sys.stderr.fileno(), number)
    try:
        yield
    finally:
        os.dup2(kept, number)
        os.close(kept)


def _call(name: str, arguments: list[str]) -> Any:
    """Import a command's module and run it through typer, whose complaints become usage errors."""
    import typer

    # The class from which all complaints about the command line derive; typer keeps it in a private module.
    complaint: Any = typer.BadParameter.__mro__[1]
    made = _made(name)
    for each in (made, *getattr(made, "commands", {}).values()):
        each.epilog = EPILOG
    try:
        return made(arguments, prog_name=f"kir {name}", standalone_mode=False)
    except complaint as fault:
        if type(fault).__name__ == "NoArgsIsHelpError":
            print(fault)
            return 2
        text, hint = str(fault.format_message()).strip(), ""
        if (option := getattr(fault, "option_name", "")) and type(fault).__name__ == "NoSuchOption":
            command = getattr(fault.ctx, "command", made) if getattr(fault, "ctx", None) is not None else made
            known = [o for p in command.params for o in (*p.opts, *p.secondary_opts) if o.startswith("-")]
            plain = {o.lstrip("-"): o for o in (*known, "--help", "--json", "--debug")}  # dashes, which all have, make none alike
            text, hint = f"there is no option {option}", re.sub(r"'([^']+)'", lambda m: f"'{plain[m[1]]}'", did_you_mean(option.lstrip("-"), plain))
            hint = hint or _elsewhere(option)
        words = getattr(getattr(fault, "ctx", None), "command_path", "") or f"kir {name}"
        raise usage("KIR-C002", text[:1].lower() + text[1:].rstrip("."), subject=words, attempt=hint or f"{words} --help") from fault
    except typer.Abort:
        return 1


def _elsewhere(option: str) -> str:
    """Which commands have an option; "" where none has."""
    word = re.escape(option.lstrip("-").replace("-", "_"))
    having = [f"kir {name}" for name, file in _files().items()
              if re.search(rf'"{re.escape(option)}"|^    {word}: Annotated\[(?!\w+, typer\.Argument)', file.read_text(encoding="utf-8"), re.MULTILINE)]
    return f"{', '.join(having)} {'has' if len(having) == 1 else 'have'} it" if having else ""


def _made(name: str) -> Any:
    """A command as typer has it, of the module that holds it."""
    import typer

    module = importlib.import_module(".".join((__name__.rpartition(".")[0], *_files()[name].relative_to(FOLDER).with_suffix("").parts)))
    app = getattr(module, "app", None)
    if app is None:
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command()(module.command)
    return typer.main.get_command(app)


def _help(listing: Mapping[str, str]) -> str:
    width = max(map(len, listing), default=0) + 2
    return "\n".join(
        [
            "usage: kir COMMAND [ARGUMENTS] [--json] [--debug]",
            "begin with: kir explain FILE, kir check FILE, kir explore FILE, each of a CUDA, Triton or TileLang kernel",
            "",
            *(f"  {name:<{width}}{summary}" for name, summary in listing.items()),
            "",
            "--json prints one JSON object; --debug shows the traceback of an error; kir COMMAND --help says more.",
            "exit codes: 0 done, 1 refused or failed, 2 wrong usage",
        ]
    )


def _print(result: Result, name: str, as_json: bool) -> None:
    if as_json:
        extra = {"diagnostics": [each.to_json() for each in result.diagnostics]} if result.diagnostics else {}
        _json({"schema": f"kir.{name}/{result.version}", **result.json, **extra})
        return
    if isinstance(result.text, str):
        if result.text:
            print(result.text.removesuffix("\n"), flush=True)
    else:
        from rich.console import Console

        Console(highlight=False, markup=False).print(result.text)  # brackets are ours: lists of parameters, places
        sys.stdout.flush()
    if result.diagnostics:
        _report(result.diagnostics, as_json=False)


def _report(diagnostics: Sequence[Diagnostic], as_json: bool) -> None:
    if as_json:
        _json({"schema": "kir.error/1", "diagnostics": [each.to_json() for each in diagnostics]})
        return
    color = _colored(sys.stderr)
    print("\n\n".join(each.render(color=color) for each in diagnostics), file=sys.stderr, flush=True)


def _json(value: Mapping[str, Any]) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False), flush=True)


_FULL = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)


def _of_the_machine(fault: Exception) -> Diagnostic | None:
    """What files, memory and the stack refuse, which is no fault of KIR's own: in words."""
    if isinstance(fault, RecursionError):
        return Diagnostic("KIR-C012", "something in it is nested more deeply than KIR follows; --debug says where", needs="fewer levels within one another")
    if isinstance(fault, OSError) and fault.filename is not None and fault.strerror:
        place = fault.filename2 or fault.filename
        return Diagnostic("KIR-C006", f"{place if isinstance(place, str) else os.fsdecode(place)}: {fault.strerror[:1].lower()}{fault.strerror[1:]}",
                          needs="a place that can be read and written")
    if isinstance(fault, OSError) and fault.errno in _FULL and fault.strerror:  # a write, of which the system names no file
        return Diagnostic("KIR-C006", f"a file cannot be written: {fault.strerror[:1].lower()}{fault.strerror[1:]}",
                          needs="room where KIR writes; what was written before is whole, and the same command goes on")
    if isinstance(fault, MemoryError):
        text = str(fault)
        said = f": {text[:1].lower()}{text[1:]}" if text else ""
        return Diagnostic("KIR-C007", f"there is not memory enough{said}", needs="smaller sizes, or a machine with more memory")
    return None


def _internal(fault: Exception) -> Diagnostic:
    frames = traceback.extract_tb(fault.__traceback__)
    place = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    text = " ".join(str(fault).split())
    return Diagnostic("KIR-C003", f"internal error{place}: {type(fault).__name__}{f': {text}' if text else ''}; run with --debug")


def _colored(stream: IO[str]) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
