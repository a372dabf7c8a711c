"""Programs that compute the wrong thing, made by rule from right ones: what a gate must refuse.

    for m in mutants(program):        # every rule at every place, each one change
        print(m.rule, m.anchor, m.how)

A rule (`RULES`) looks at one place of the tree and says what may stand there instead: a rescale or a carry dropped, another initial value, a
bound moved by one, operands exchanged. It works on the IR, so one rule serves every surface. A mutant is well formed (the verifier accepts it) and another
program than the original; whether it computes something else is for a run in float64 to say (`kir.gate.mutants.truth`), apart from the gate.
"""
from kir.gate.mutants.make import RULES, Mutant, Rule, candidates, mutants, spread
from kir.gate.mutants.sites import Change, Site, put, sites

__all__ = ["RULES", "Change", "Mutant", "Rule", "Site", "candidates", "mutants", "put", "sites", "spread"]
