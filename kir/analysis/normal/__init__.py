"""The normal form: one spelling for what can be written in several ways."""
