"""Commands that judge programs: run, gate, conformance."""
