"""Demonstrations: readers of data sets, and the library they become."""
