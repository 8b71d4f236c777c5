"""Ways of running a frozen policy, one file per arm. `base` has the contract; `sampler` runs arms side by side.

=========  =====================================  ==========================================================
arm        a_init                                 what it shows
=========  =====================================  ==========================================================
base       eps                                    how good the frozen policy is
cooled     noise * eps                            what calmer noise alone does
shuffled   prior * a random chunk + noise * eps   what any demonstrated chunk does at the same noise
retrieve   prior * a_retr + noise * eps           what the retrieved chunk adds at the same noise
rerank     eps, several candidates per replan     what per-step re-ranking does (`besttake.core.retrieve`)
=========  =====================================  ==========================================================

All arms of a take use the same eps. ``retrieve?alpha=0.3`` is the paper's Eq. 6: prior 0.3, noise 0.7.
"""

BASE, COOLED, SHUFFLED, RETRIEVE, RERANK = "base", "cooled", "shuffled", "retrieve", "rerank"
"""Names of the arms of this package."""
SEARCHING = (SHUFFLED, RETRIEVE, RERANK)
"""The arms that search the library at each replan, which costs more than sampling alone."""
