"""Defines no pass."""

