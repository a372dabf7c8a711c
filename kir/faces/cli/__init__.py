"""The command line. One module per command: ``kir/faces/cli/<command>.py``, or in a folder that groups commands, listed
from its file and imported when called.

A command module's docstring opens with the line that ``kir --help`` shows, and the module holds either a function
``command`` with typer annotations or, for a command with subcommands, a ``typer.Typer`` called ``app``. Its functions
return a :class:`Result`, print nothing themselves, and raise :class:`kir.base.diagnostic.KirError`; ``--json``, ``--debug``,
exit codes and the printing of diagnostics are handled in one place. Modules with a leading underscore are no commands.

Order: _options, _program, _progress, _result, _main, _walker, judging, lineages, reading, rewriting, setup.
"""

from kir.faces.cli._main import main
from kir.faces.cli._result import Result

__all__ = ["Result", "main"]
