"""What is useful with BestTake and not part of it."""
