"""The standing campaign against BestTake: it kills, stops, fills, corrupts and fuzzes, and counts what breaks.

``make fuzz`` runs a bounded part, ``python -m bench.campaign --full`` everything, and writes docs/reliability.md.
A stage is a function in one of the files that `__main__.py` imports; see `stage.py` for what it has to keep.
"""
