"""A diagnosis from end to end. `diagnosis` is the verb; the other files are its steps, in this order.

1. `finished`: does a finished run answer this plan already?
2. `setup`: the components of the plan, and every mismatch between them; `rehearsal`: a first look at foreign code.
3. `identity`: what the run is bound to, and in which order its starts come.
4. `record`: policy by policy, what follows:
5. `check` tries retrieval at held-out demonstrations, and `choice` decides what the policy retrieves.
6. `playing` plays the takes that are missing; `until` decides which ones a run until decided plays next.
7. `scored` scores them.

Then `besttake.measure` turns takes and scores into the verdict. `session` counts what one invocation did.
"""
