"""Workers as Ray actors: the same orders and answers, so the same takes, on one machine or many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from besttake.errors import ComponentError, MissingExtra
from besttake.takes.orders import Answer, Order
from besttake.takes.watch import LOOK, Watch
from besttake.takes.worker import Worker


class RayPool:
    """One actor per worker. Joins the cluster that RAY_ADDRESS names, else starts Ray on this machine."""

    def __init__(self, size: int, patience: float | None = None) -> None:
        try:
            import ray
        except ImportError as error:
            raise MissingExtra("ray", "ray", "`on` ray") from error
        self._ray: Any = ray
        self.size, self.stalled = size, 0
        self._watch = Watch(size, patience)
        self._started = not ray.is_initialized()
        if self._started:
            try:
                ray.init(log_to_driver=False, include_dashboard=False, configure_logging=False)
            except Exception as error:
                raise ComponentError(f"Ray did not start ({error}); check RAY_ADDRESS, or set `on` to local") from error
        self._actor = ray.remote(max_restarts=0)(Worker)
        self._members = [self._actor.remote() for _ in range(size)]
        self._under_way: dict[Any, int] = {}

    def send(self, worker: int, orders: Sequence[Order]) -> None:
        """Give ``worker`` a list of orders."""
        self._watch.sent(worker, list(orders))
        self._under_way[self._members[worker].obey.remote(list(orders))] = worker

    def receive(self) -> list[tuple[int, list[Answer] | None]]:
        """Answers of every worker that has some, waiting for the first."""
        answers: list[tuple[int, list[Answer] | None]] = []
        while not answers:
            ready, _ = self._ray.wait(list(self._under_way), num_returns=1, timeout=LOOK)
            more, _ = self._ray.wait(list(self._under_way), num_returns=len(self._under_way), timeout=0)
            for reference in {*ready, *more}:
                if reference not in self._under_way:
                    continue
                worker = self._under_way.pop(reference)
                try:
                    answers.append((worker, self._ray.get(reference)))
                    self._watch.answered(worker)
                except self._ray.exceptions.RayActorError:
                    answers = self._replaced(worker, answers)
            for worker, _ in self._watch.overdue([worker for worker, _ in answers]):
                self.stalled += 1
                self._ray.kill(self._members[worker])
                answers = self._replaced(worker, answers)
        return sorted(answers, key=lambda pair: pair[0])

    def _replaced(self, worker: int, answers: list[tuple[int, Any]]) -> list[tuple[int, Any]]:
        """Put a new actor in the place of one; it answers nothing that the old one was asked."""
        self._members[worker] = self._actor.remote()
        self._watch.replaced(worker)
        self._under_way = {ref: w for ref, w in self._under_way.items() if w != worker}
        return [*(pair for pair in answers if pair[0] != worker), (worker, None)]

    def close(self) -> None:
        """End the actors, and Ray itself if it was started here."""
        for member in self._members:
            self._ray.kill(member)
        if self._started:
            self._ray.shutdown()
