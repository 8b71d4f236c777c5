"""The zoo study (docs/zoo.md): testbed policies with known deficits, and how well their verdicts hold.

    python -m bench.zoo train roll study --dir zoo      # resumable: each stage skips what is there

``train`` needs torch and makes the weights of ``recipes/zoo``; ``roll`` plays ``recipes/zoo-plan.yaml`` with each
policy; ``study`` reads the takes and writes the tables of docs/zoo.md to ``DIR/tables.md``.
"""
