"""LIBERO and LIBERO-Occ, eight to eleven times as fast as in the usual loop, and bit for bit the same.

Other harnesses render every camera at every control step, and robosuite repeats all its look-ups. Here pictures are
rendered only on demand, the N takes of a start share one reset, and the control step is compiled. None of this changes
a bit: the integration tests and ``python -m bench.libero_bits`` compare states and pictures with hf-libero stepped by
hand. Read the files in this order:

* `env`: the env that users name (``libero:spatial``): tasks, starts, observations, snapshots.
* `harness`: how LeRobot, openpi and vla-eval run LIBERO: cameras, flipped pictures, gripper signs, horizons, settling.
* `install`: finds the installation, its assets and its files of initial states, and imports it quietly.
* `simulator`: one task as a simulator that renders on demand and can be saved and restored exactly, with a control step
  (25 physics steps) without robosuite's repeated work.
* `controller`: the operational space controller between two physics steps, in robosuite's own arithmetic.
* `compiled`: the same, compiled by numba, and compared bit for bit with the interpreted steps before it is used.
* `renderer`: renders pictures without the meshes that the camera cannot see.
"""
