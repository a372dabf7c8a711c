"""Commands that judge programs: run, check, gate, conformance."""
