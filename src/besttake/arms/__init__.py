"""Ways of running a frozen policy, one file per arm. `base` has the contract; `sampler` runs arms side by side.

=========  =====================================  ==========================================================
arm        a_init                                 what it tells
=========  =====================================  ==========================================================
base       eps                                    how good the frozen policy is
cooled     (1 - alpha) eps                        what calmer noise alone does
renoised   a sample of its own, back at time alpha   the control of `retrieve` by the way `path`
shuffled   alpha * a random event's chunk + …     what any demonstrated chunk does
retrieve   alpha * a_retr + (1 - alpha) eps       what the paper's intervention does (Eq. 6)
rerank     eps, several candidates per replan     what per-step re-ranking does (`besttake.core.rerank`)
=========  =====================================  ==========================================================

All arms of a take use the same noise.
"""
