"""Encoders, which turn a frame into a unit vector."""
