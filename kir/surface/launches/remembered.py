"""Where the binding of a kernel is kept that was worked out with its author: beside its source, or in the user's own folder where that may not be
written."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import platformdirs

from kir.base.store import write_atomic
from kir.ir.binding import Binding

ENDING = ".bind.toml"


def beside(source: Path, kernel: str) -> Path:
    """`FILE.KERNEL.bind.toml` in the folder of the source."""
    return source.with_name(f"{source.stem}.{kernel}{ENDING}")


def kept(source: Path, kernel: str) -> Path:
    """The same in the user's own folder."""
    key = hashlib.sha256(str(source.resolve()).encode()).hexdigest()[:16]
    return Path(platformdirs.user_state_dir("kir")) / "bindings" / f"{key}-{source.stem}.{kernel}{ENDING}"


def remembered(source: Path, kernel: str) -> Path | None:
    """The file of a binding that was kept for a kernel; None where there is none."""
    return next((p for p in (beside(source, kernel), kept(source, kernel)) if p.is_file()), None)


def remember(source: Path, kernel: str, binding: Binding, header: str = "") -> Path:
    """Keep a binding; the file that it is in."""
    path = beside(source, kernel)
    if not os.access(path.parent, os.W_OK):
        path = kept(source, kernel)
    write_atomic(path, header + binding.text())
    return path
