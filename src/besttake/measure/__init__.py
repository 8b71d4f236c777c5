"""Takes to numbers: arrays of cells, questions, verdicts. Pure: no engine, no files, no prose."""
