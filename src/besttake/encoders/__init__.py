"""Encoders: what turns a frame into a unit vector."""
