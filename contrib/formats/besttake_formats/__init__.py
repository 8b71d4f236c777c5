"""Demonstrations in RLDS, Zarr, and the raw files of ALOHA, ManiSkill and DROID, as a plug-in of BestTake."""
