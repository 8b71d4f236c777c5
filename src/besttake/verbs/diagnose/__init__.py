"""A diagnosis from end to end. `diagnosis` is the verb; the other files are its steps, in this order.

1. `setup` opens what the plan names, checks that it fits together, and makes the manifest of the run.
2. `policies` checks that every policy fits the envs and rehearses foreign code. Then, policy by policy:
3. `check` tries retrieval at held-out demonstrations, and `choice` decides what the policy retrieves.
4. `playing` plays the takes that are missing; `until` decides which ones a run until decided plays next.
5. `policies` scores them.

Then `besttake.measure` turns takes and scores into the verdict.
"""
