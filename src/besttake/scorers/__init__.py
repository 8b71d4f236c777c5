"""Scorers, which give each take of a start a number to pick by."""
