"""One file per verb. Each returns a typed result and prints nothing."""
