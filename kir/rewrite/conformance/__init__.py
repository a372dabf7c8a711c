"""What every pass is held to: declarations, box, cases, the law of two directions."""
from __future__ import annotations

from kir.rewrite.conformance.suite import conform

__all__ = ["conform"]
