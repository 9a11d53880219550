"""Metrics, scoring, timing and comparison."""
