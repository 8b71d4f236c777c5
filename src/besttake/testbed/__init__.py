"""The testbed: a MuJoCo scene, a ray-cast camera, scripted experts and small trained policies.

Components of BestTake: `env` (the env ``testbed:…``), `policy` (the policies) and `demos` (the demonstrations).
The world: `scene` (its MJCF), `tasks` (starts, states, success), `camera` (pictures), `engine` (MuJoCo without GL).
The demonstrations: `expert` acts, `demonstrations` records it, `seeds` keeps the starts of every purpose apart.
The policies: `network` evaluates them in numpy (contrib/small-policies trained them), and `fingerprints` ties
weights and demonstrations to the code that made them.
"""
