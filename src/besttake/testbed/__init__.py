"""The embedded world: a MuJoCo scene, a ray-cast camera, experts and small trained policies."""
