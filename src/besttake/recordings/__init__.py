"""Readers of other harnesses' results: vla-eval, lerobot-eval, tables."""
