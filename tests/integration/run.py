"""Run the integration tests, each folder in an environment of its own that is made when absent and kept.

    python tests/integration/run.py [NAME ...]

An environment is kept under $BESTTAKE_ENVS (default: besttake/envs in the user's cache directory) by the hash of the
folder's setup.sh and of besttake's own requirements. The script is called with the directory to create and a file of
those requirements. The environment never holds besttake itself: that comes from src/. The plug-ins
of this repository that the folder's plugins.txt lists are installed for each run, in a directory of their own; test
files of theirs that need this environment are listed in tests.txt.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
UNAVAILABLE = 77


def main(names: list[str]) -> int:
    folders = sorted(path.parent for path in HERE.glob("*/setup.sh"))
    unknown = set(names) - {folder.name for folder in folders}
    if unknown:
        print(f"no integration tests called {', '.join(sorted(unknown))}; there are: {[f.name for f in folders]}")
        return 2
    failed = [folder.name for folder in folders if not names or folder.name in names if not run(folder)]
    print(f"integration: {len(failed)} failed {failed}" if failed else "integration: all passed")
    return 1 if failed else 0


def run(folder: Path) -> bool:
    began = time.monotonic()
    python = environment(folder)
    if python is None:
        return True
    ready = time.monotonic()
    command = [str(python), "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "-q", "-rs"]
    command += ["--import-mode=importlib", "--strict-markers", "-p", "no:cacheprovider"]
    # Warnings of other projects are theirs; plug-ins are tested as installed.
    command += [word for option in ("addopts", "filterwarnings", "pythonpath") for word in ("-o", f"{option}=")]
    with tempfile.TemporaryDirectory() as plugins:
        install_plugins(folder, python, plugins)
        path = os.pathsep.join([str(ROOT / "src"), plugins])
        env = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
        # A process per file: simulators that share one also share, and spoil, its graphics.
        failed = [file for file in test_files(folder) if not passes([*command, str(file)], env)]
    outcome = f"failed {[file.name for file in failed]}" if failed else "passed"
    print(
        f"{folder.name}: {outcome}; environment {ready - began:.0f} s, tests {time.monotonic() - ready:.0f} s",
        flush=True,
    )
    return not failed


def test_files(folder: Path) -> list[Path]:
    """The folder's own, and those of plug-ins that its tests.txt lists."""
    listed = folder / "tests.txt"
    others = [ROOT / line for line in listed.read_text().split()] if listed.is_file() else []
    return [*sorted(folder.glob("test_*.py")), *others]


def passes(command: list[str], env: dict[str, str]) -> bool:
    """Whether the tests of one file pass. Machines are shared and noisy: a file has to fail twice to have failed."""
    for _ in range(2):
        if subprocess.run(command, cwd=ROOT, env=env, check=False).returncode == 0:
            return True
        print(f"failed: {command[-1]}", flush=True)
    return False


def install_plugins(folder: Path, python: Path, target: str) -> None:
    listed = folder / "plugins.txt"
    if listed.is_file():
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*pip, "--target", target, "-r", str(listed)], cwd=ROOT, check=True)


def environment(folder: Path) -> Path | None:
    """The Python of the folder's environment; None (with the reason printed) when this machine cannot have it."""
    home = (
        os.environ.get("BESTTAKE_ENVS")
        or Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "besttake/envs"
    )
    script = folder / "setup.sh"
    requirements = "\n".join(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"])
    made_of = hashlib.sha256(script.read_bytes() + requirements.encode()).hexdigest()[:12]
    target = Path(home) / f"{folder.name}-{made_of}"
    python = target / "bin" / "python"
    if not (target / ".ready").exists():
        print(f"{folder.name}: making its environment", flush=True)
        shutil.rmtree(target, ignore_errors=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as listed:
            listed.write(requirements + "\n")
            listed.flush()
            command = ["bash", str(script), str(target), listed.name]
            code = subprocess.run(command, cwd=ROOT, check=False).returncode
        if code == UNAVAILABLE:
            print(f"{folder.name}: SKIPPED, its environment cannot be made on this machine (see above)", flush=True)
            return None
        if code:
            raise SystemExit(f"{script.relative_to(ROOT)} failed with exit code {code}")
        (target / ".ready").touch()
    return python


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
