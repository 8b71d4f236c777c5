"""Small flow policies over the state as a plug-in of BestTake, and what trains them and those of the testbed."""
