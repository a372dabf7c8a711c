"""serve KIR's commands to agents over the Model Context Protocol

Over standard input and output by default, which is how agents start servers; with --port over HTTP at http://127.0.0.1:PORT/mcp.
Needs the extra `mcp`: pip install 'kernel-lineage[mcp]'.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import kir


def command(
    folder: Annotated[Path, typer.Option(help="the folder that files are named in")] = Path(),
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="serve HTTP on this port of this machine (0: a free one)")] = None,
) -> int:
    """Serve KIR's commands to agents over the Model Context Protocol."""
    from kir.base.diagnostic import usage
    from kir.faces.agents.server import serve

    if not folder.is_dir():
        raise usage("KIR-C006", f"{folder} is no folder", needs="a folder that is there")
    serve(folder.resolve(), kir.__version__, port)
    return 0
