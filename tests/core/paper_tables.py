"""The numbers of the paper "Reuse Before You Retrieve": Tables 1-7, S1 and the text. Success rates in percent."""

SUITES = ("spatial", "object", "goal", "10")
BACKBONES = ("pi0", "smolvla", "pi05")

# Table 1: LIBERO 4-suite mean: pass@1, with retrieval (gain), with the selector (gain).
MAIN = {
    "pi0": {"pass1": 64.2, "retrieval": (70.6, 6.4), "selector": (85.2, 21.0)},
    "smolvla": {"pass1": 65.6, "retrieval": (65.9, 0.3), "selector": (85.5, 19.9)},
    "pi05": {"pass1": 88.7, "retrieval": (89.2, 0.5), "selector": (96.5, 7.8)},
}

# Table 2: retrieval gain per suite, mean and std over three seeds.
RETRIEVAL = {
    "pi0": {"spatial": (4.5, 1.5), "object": (9.8, 2.5), "goal": (5.5, 0.8), "10": (6.0, 2.3)},
    "smolvla": {"spatial": (0.5, 0.9), "object": (-0.2, 2.0), "goal": (1.6, 0.7), "10": (-0.9, 1.6)},
    "pi05": {"spatial": (-1.1, 0.9), "object": (0.6, 0.6), "goal": (2.6, 2.0), "10": (-0.1, 2.8)},
}

# Table 3: pi0, 500 starts x 3: pass@1, then (rate, gain) of retrieval, selector, both; both minus selector.
COMPOSE = {
    "spatial": (63.6, (68.1, 4.5), (89.6, 26.0), (92.4, 28.8), 2.8),
    "object": (77.1, (86.9, 9.8), (96.0, 18.9), (97.2, 20.1), 1.2),
    "goal": (80.4, (85.9, 5.5), (97.6, 17.2), (96.8, 16.4), -0.8),
    "10": (35.7, (41.7, 6.0), (57.6, 21.9), (63.8, 28.1), 6.2),
}
COMPOSE_MEAN = (64.2, (70.6, 6.4), (85.2, 21.0), (87.5, 23.3), 2.4)
LIBERO_10_PASS3 = {"base": 64.4, "retrieval": 71.0}

# Table 4: LIBERO 4-suite mean.
ABLATION = {
    "pi0": {"pass1": 64.2, "random": 64.5, "selector2": 79.2, "selector3": 85.2, "pass3": 87.8},
    "smolvla": {"pass1": 65.6, "random": 65.3, "selector2": 81.0, "selector3": 85.5, "pass3": 87.0},
    "pi05": {"pass1": 88.7, "random": 89.0, "selector2": 94.8, "selector3": 96.5, "pass3": 98.3},
}

# Table 5: SimplerEnv-Bridge, 24 starts x 3: pass@1, (retrieval, gain), (selector, gain), pass@3.
BRIDGE = {
    "carrot": (34.7, (30.6, -4.2), (41.7, 6.9), 50.0),
    "spoon": (45.8, (47.2, 1.4), (54.2, 8.3), 62.5),
    "stack": (31.9, (31.9, -0.0), (54.2, 22.2), 54.2),
}
BRIDGE_OVERALL = (37.5, (36.6, -0.9), (50.0, 12.5), 55.6)
BRIDGE_HEADROOM, BRIDGE_CAPTURE = 18.1, 0.69

# Table 6: OpenVLA, coke can, 25 starts x 3 (shares).
OPENVLA = {"greedy": 0.40, "sample1": 0.40, "rerank": 0.36, "selector": 0.44, "pass3": 0.72}

# Table 7: LIBERO-Occ, 250 starts x 2: pass@1, retrieval gain, selector gain.
OCCLUSION = {
    "pi0": {
        "spatial": (61.6, 6.2, 18.4),
        "object": (81.0, 6.6, 9.4),
        "goal": (74.4, 2.8, 9.6),
        "10": (20.8, 1.8, 10.4),
    },
    "pi05": {
        "spatial": (80.8, 3.4, 14.0),
        "object": (74.0, 0.6, 4.8),
        "goal": (74.8, 2.0, 12.0),
        "10": (42.4, -2.6, 14.0),
    },
}
OCCLUSION_MEAN = {"pi0": (59.5, 4.3, 11.9), "pi05": (68.0, 0.8, 11.2)}

# In the text, Sec. 4.
DFE = {"pi0": 0.042, "pi05": 0.021, "smolvla": 0.003}
FIRST_ACTION_R = {"pi0": 0.91, "pi05": 0.96, "smolvla": 0.98}
CAPTURE = {"mean": 0.90, "sd": 0.11, "range": (0.61, 1.00)}
HEADROOM_R = {"r": 0.954, "ci": (0.89, 0.99), "spearman": 0.958}
DISJOINT_R = {"mean": 0.91, "sd": 0.04, "splits": 50}
WITHIN_R = (0.81, 0.95, 0.79)
LEAVE_ONE_OUT_R = (0.86, 0.96)
RETRIEVAL_R = 0.32
POOLED_AUC = {"auc": 0.96, "valid": 17_964, "all": 18_000, "invalid": 36}

# Table S1.
LIBRARY_FRAMES = {"bridge": 510, "coke-can": 1360}
SETTINGS = {"alpha": 0.3, "n": 3, "k": 3, "probe_states": 400, "horizon": 400, "chunk": 50, "demos": 50, "dim": 1536}
