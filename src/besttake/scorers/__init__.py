"""Scorers: what gives each take of a start a number to pick by."""
