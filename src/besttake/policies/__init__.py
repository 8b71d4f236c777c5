"""Policies: one file per family, each keeping the contract in `besttake.policies.base`."""
