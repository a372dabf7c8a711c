"""Lineages: an expert kernel walked back to naive, one gated step at a time, and rebuilt from the stored steps.

:mod:`.record` is the schema and the hash chain, :mod:`.walk` the backward walk, :mod:`.order` what to peel first,
:mod:`.folder` the files on disk, :mod:`.replay` the way forward, :mod:`.engine` and :mod:`.judge` the ties to the
rewriting framework and the gate.

Order: carrier, convergence, order, candidates, legalize_for_surface, records, walk, engine, along, plan, crossing, kept, judge, parameter_replay, replay,
run.
"""
