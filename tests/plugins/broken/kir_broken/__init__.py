"""A plugin with a module that fails to import, one without a pass, and one whose directions are no inverses."""
