"""An encoder as if it were costly: its embeddings are kept, and a file says which thread made them."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

from besttake import registry


class Costly:
    def __init__(self, log: Path) -> None:
        self._hog: Any = registry.encoder("hog")
        self._log = log
        self.spec = replace(self._hog.spec, name="costly", cheap=False)

    def encode(self, images: Any) -> Any:
        with self._log.open("a") as file:
            file.write(f"{threading.current_thread().name}\n" * len(images))
        return self._hog.encode(images)


def make(log: str) -> Costly:
    return Costly(Path(log))
