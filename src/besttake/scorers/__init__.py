"""Scores of takes: one file per scorer."""
