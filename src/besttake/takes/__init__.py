"""Takes: the draws, the rollout engine and the run directory."""
