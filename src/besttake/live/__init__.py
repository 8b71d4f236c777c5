"""The live page: a run's report while it goes on, served on loopback by a process that only reads the run directory."""
