"""Walks in children of a process that has all passes, frontends and grammars loaded: importing this module is what that process does once."""
from __future__ import annotations

import contextlib
import io
import socket

from kir.base.registry import registry
from kir.faces.cli import main
from kir.faces.report import page, terminal
from kir.hardware.device import wire
from kir.ir.parser import parse_program
from kir.lineage import engine, plan, run
from kir.rewrite import passes
from kir.surface import backend, frontend, reading

LOADED = (engine, plan, run, reading, page, terminal)


def serve(channel: socket.socket) -> None:
    """One command of `kir`: its words are asked for, and what it prints is the answer."""
    message, _ = wire.receive(channel)
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        main([str(word) for word in message["words"]])
    wire.send(channel, {"out": out.getvalue()})


def _warm() -> None:
    """What every walk would load and build for itself."""
    passes()
    parse_program("kir 1\nprogram p\n  out X: f32[1]\nkernel main grid (i: 1) threads 1\n  X[i] = 1.0\n")
    for kind, load in (("kir.frontends", frontend), ("kir.backends", backend)):
        for entry in registry(kind):
            load(entry.name)


_warm()
