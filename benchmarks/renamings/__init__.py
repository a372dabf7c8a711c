"""The renaming law: any identifier of a source renamed to any word that KIR uses reads to the same program, and is written back right."""
