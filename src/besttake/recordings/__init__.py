"""Readers of other harnesses' results: vla-eval, lerobot-eval, logs, names of videos, tables."""
