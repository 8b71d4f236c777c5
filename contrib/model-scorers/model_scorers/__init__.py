"""Models as scorers of BestTake: a vision-language model behind a server, and LeRobot's reward models."""
