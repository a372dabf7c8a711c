"""Figures of forecasts against measurements."""
