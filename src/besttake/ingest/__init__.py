"""Outcomes that other harnesses measured."""
