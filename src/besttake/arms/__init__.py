"""Ways of running a policy: one file per arm."""
