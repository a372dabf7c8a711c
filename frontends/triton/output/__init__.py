"""The program that is handed on."""
