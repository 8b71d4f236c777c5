"""The same plan gives the same takes and the same result on every x86-64 CPU.

OpenBLAS chooses a kernel, numpy its loops, and the C library its functions by the CPU they meet. All three can be told
to do as on an older CPU, so one machine stands for several here. Plans are run in processes of their own, two at a
time, each with a cache of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden_plans import SAME_BITS

PLANS = Path(__file__).with_name("golden_plans.py")
AVX512 = ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")


@dataclass(frozen=True)
class Cpu:
    """Another CPU: the flags that this one needs to act as it, and the environment that makes it do so.

    ``without``: beginnings of the names of numpy's features that it lacks.
    """

    needs: tuple[str, ...]
    environment: dict[str, str]
    without: tuple[str, ...] = ()


def kernel(name: str) -> dict[str, str]:
    return {"OPENBLAS_CORETYPE": name}


CPUS = {
    "SkylakeX": Cpu(AVX512, kernel("SkylakeX")),
    "Haswell": Cpu(("avx2", "fma"), kernel("Haswell"), ("X86_V4", "AVX512")),
    "Zen": Cpu(("avx2", "fma"), kernel("Zen"), ("X86_V4", "AVX512")),
    "Sandybridge": Cpu(("avx",), kernel("Sandybridge"), ("",)),
    "Prescott": Cpu(("pni",), kernel("Prescott"), ("",)),
    "a C library without AVX2 and FMA": Cpu((), {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA"}),
}


def flags() -> set[str]:
    """What this CPU can do, as Linux says."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return set(next((line.partition(":")[2] for line in lines if line.startswith("flags")), "").split())


def disabled(without: tuple[str, ...]) -> str:
    """The features for which this numpy has loops of its own, which this CPU has, and the other one has not."""
    module = (np._core if hasattr(np, "_core") else np.core)._multiarray_umath
    own = [name for name in module.__cpu_dispatch__ if module.__cpu_features__.get(name)]
    return " ".join(name for name in own if name.startswith(without))


def measure(cpu: Cpu, out: Path) -> dict[str, Any]:
    """Run both plans as on ``cpu``; what they gave."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("OPENBLAS_CORETYPE", "NPY_", "GLIBC_"))}
    environment = {**inherited, **cpu.environment, "BESTTAKE_CACHE": str(out / "cache")}
    if cpu.without:
        environment["NPY_DISABLE_CPU_FEATURES"] = disabled(cpu.without)
    done = subprocess.run([sys.executable, str(PLANS), str(out)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    result: dict[str, Any] = json.loads((out / "numbers.json").read_text())
    return result


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What each CPU that this one can act as has given."""
    if not SAME_BITS:
        pytest.skip("only x86-64 CPUs are compared")
    able = {name: cpu for name, cpu in CPUS.items() if flags().issuperset(cpu.needs)}
    places = [tmp_path_factory.mktemp("cpu") for _ in able]
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(able, pool.map(measure, able.values(), places), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("plan", ["small", "until decided"])
@pytest.mark.parametrize("name", CPUS)
def test_takes_and_result_are_the_same_as_on(name: str, plan: str, every: dict[str, dict[str, Any]]) -> None:
    if name not in every:
        pytest.skip(f"this CPU lacks {', '.join(sorted(set(CPUS[name].needs) - flags()))}")
    first, own = next(iter(every.values()))[plan], every[name][plan]
    assert own["/digest"] == first["/digest"]
    paths = first.keys() | own.keys()
    changed = {path: (first.get(path), own.get(path)) for path in paths if first.get(path) != own.get(path)}
    assert not changed, f"{len(changed)} of {len(first)} numbers differ, e.g. {dict(sorted(changed.items())[:5])}"


@pytest.mark.slow
def test_plain_arithmetic_would_have_differed(every: dict[str, dict[str, Any]]) -> None:
    """So that the other tests are about something: the environment did change kernels and loops."""
    if not {"Haswell", "Prescott"} <= every.keys():
        pytest.skip("this CPU cannot act as two others")
    assert every["Haswell"]["plain arithmetic"] != every["Prescott"]["plain arithmetic"]
