"""The commands, a file per family: each parses, calls one function, and prints what it returned."""
