"""Works out the tables of KIR's grammars and keeps them beside the bytecode of this folder, for all commands to come."""
from __future__ import annotations

from kir.ir.grammar.syntax import keep_for_all
from kir.ir.grammar.tables import keep_beside

keep_for_all()
keep_beside("pipeline")
keep_beside("ptx_asm", starts=("module",))
