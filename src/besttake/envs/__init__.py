"""Environments: one file per simulator, each keeping the contract in `besttake.envs.base`."""
