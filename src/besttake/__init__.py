"""BestTake: what a frozen robot policy needs at test time."""
