"""print or install what makes a shell complete the commands and options of kir

`eval "$(kir completion bash)"` in a shell's start-up file has the same effect as --install. bash, zsh, fish and PowerShell.
"""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from kir.faces.cli._result import Result


def command(
    shell: Annotated[Literal["bash", "zsh", "fish", "powershell", "pwsh"], typer.Argument(help="the shell")] = "bash",
    install: Annotated[bool, typer.Option("--install", help="write it to the shell's own start-up file")] = False,
) -> Result:
    """Print or install what makes a shell complete the commands and options of kir."""
    from typer import completion

    from kir.faces.cli._main import COMPLETE

    if install:
        name, path = completion.install(shell=shell, prog_name="kir", complete_var=COMPLETE)  # type: ignore[attr-defined]  # typer lists no names there
        return Result({"shell": name, "file": str(path)}, f"completion for {name} is in {path}; it works in the next shell")
    text = completion.get_completion_script(prog_name="kir", complete_var=COMPLETE, shell=shell)  # type: ignore[attr-defined]  # as above
    return Result({"shell": shell, "script": text}, text)
