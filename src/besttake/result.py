"""``result.json``: every number of the report, in a documented, versioned schema.

Proportions are fractions (0.11, not 11 points). A quantity that is undefined or was not measured has ``value: null``
and often a ``reason``. ``python -m besttake.result`` prints the JSON schema.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

from besttake.arms import BASE, COOLED, RETRIEVE
from besttake.core.agreement import Sources
from besttake.core.offline import RetrievalCheck
from besttake.core.policy_pool import Pool
from besttake.core.probe import Probe
from besttake.core.relation import FittedLine, SplitHalfCorrelation
from besttake.core.stats import Estimate as Estimate
from besttake.core.stats import Finding as Finding
from besttake.core.stats import Forecast as Forecast
from besttake.errors import PlanError, RunError
from besttake.files import check_run, read_json, read_regular

if TYPE_CHECKING:
    from besttake.reporting.drawing import Figure

SCHEMA = 10


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="null")


class Headroom(_Model):
    """pass@1, pass@N and their difference, the headroom (Eqs. 1 and 2).

    ``n`` is N, the number of takes from which one is picked. If there are more seeds, every number is the average over
    all subsets of that size. ``mixed`` counts the starts with both successes and failures. ``curve`` is pass@k for k of
    1, 2, … all seeds.
    """

    n: int
    starts: int
    mixed: int
    pass_1: Estimate
    pass_n: Estimate
    headroom: Estimate
    curve: list[Estimate]


class Selector(_Model):
    """One way to pick one of N takes: its success, its gain over pass@1, and its capture (gain / headroom).

    ``leak``: the score depends on what follows its window, or on the length of a take in the window ``episode``, so it
    measures the outcome and not how well the take went.
    """

    success: Estimate
    gain: Estimate
    capture: Estimate
    leak: bool = False


class Selectors(_Model):
    """All ways to pick a take: ``scored[scorer][window]``, and the controls ``random``, ``shortest`` and ``oracle``.

    ``by_n`` is the success of the chosen scorer when it picks from 1, 2, … all seeds.
    """

    scored: dict[str, dict[str, Selector]]
    random: Selector
    shortest: Selector
    oracle: Selector
    by_n: list[Estimate | None]


class Ranking(_Model):
    """How well each score orders takes, as ``within[scorer][window]`` and ``pooled[scorer][window]``.

    ``within`` is the AUC among takes of the same start, on which picking depends; ``pooled`` is the AUC over all takes,
    as in the paper. ``invalid`` counts takes without a score, ``blind`` counts starts at which no take has one.
    """

    within: dict[str, dict[str, Estimate]]
    pooled: dict[str, dict[str, Estimate]]
    invalid: int
    blind: int


class ArmResult(_Model):
    """One way of running the policy, compared with ``base``.

    ``gain`` is the success minus that of base, paired by start; ``beyond_control`` is the same against ``control``, the
    arm that this arm's spec names. ``selected`` is the result of picking a take of this arm. ``picked[window]`` is the
    success of picking from 1, 2, … all seeds with the chosen scorer.

    ``seed_mean`` and ``seed_sd`` are the mean and standard deviation, over seeds, of the success over all starts.
    ``gain_seed_mean`` and ``gain_seed_sd`` are the same for the gain over base (the paper's mean +/- std); these two
    are missing for base and for a single seed.
    """

    pass_1: Estimate
    pass_n: Estimate
    gain: Estimate
    selected: Selector | None
    selected_gain: Estimate = Field(description="success with selection on this arm minus base pass@1")
    seed_mean: float | None
    seed_sd: float | None
    gain_seed_mean: float | None = None
    gain_seed_sd: float | None = None
    picked: dict[str, list[float | None]] = {}
    control: str | None = None
    beyond_control: Estimate | None = None
    takes: int


class Arms(_Model):
    """All arms, and the differences that the verdict rests on."""

    arms: dict[str, ArmResult]
    content: Estimate = Field(description="retrieve minus cooled")
    combine: Estimate = Field(description="retrieve with selection minus base with selection")

    @property
    def controlled(self) -> dict[str, ArmResult]:
        """The arms with a control other than base, except retrieve against cooled, which ``content`` has."""
        return {
            name: arm
            for name, arm in self.arms.items()
            if arm.control not in (None, BASE) and (name, arm.control) != (RETRIEVE, COOLED)
        }


class Option(_Model):
    """Something you can choose: an ``arm`` with one take, or with the best of ``takes`` takes by ``scorer``.

    ``success`` is the mean over starts, ``gain`` is over one take of the frozen policy. ``shown``: the gain is shown to
    be at least `worth`, corrected for the number of options (`besttake.core.verdict`). ``behind`` is the option with
    the best estimate minus this one, paired by start.
    """

    name: str
    arm: str
    scorer: str | None
    takes: int
    success: Estimate
    gain: Estimate
    answer: str
    shown: bool
    behind: Estimate | None = None


class Answer(_Model):
    """The answer to one of the paper's questions, "yes", "no", "open" or "not measured", with the gain in question.

    ``further`` forecasts how many more starts would settle an open answer. ``reason`` is a code if the answer did not
    come from a test.
    """

    answer: str
    gain: Estimate
    further: Forecast | None = None
    reason: str = ""


class Given(_Model):
    """A recommendation that was shown at an earlier look, after ``starts`` starts, and therefore stands."""

    starts: int
    gain: Estimate


class Verdict(_Model):
    """What to do with the policy; ``headline`` says so in one sentence.

    ``option`` names the recommended one of ``options``: the cheapest that is shown to be within `worth` of every other
    (``within``), or else the one with the best estimate, in which case ``cheaper`` is the best option that costs less
    and may do as well. ``answer`` is "act" (its gain is shown), "leave" (no option is worth it) or "open". ``gain`` and
    ``success`` are those of the recommended option minus ``optimism``, the bias of an estimate that was chosen among
    several.

    ``takes``, ``demonstrations`` and ``both`` are the paper's questions: does keeping the best of N takes gain, do the
    retrieved actions add something at equal noise, and do both together beat either alone? ``questions`` has the answer
    to each question of `besttake.measure.verdict`, with its estimate and both p-values. ``any_chunk``: retrieved
    actions help, but any demonstrated chunk may do as well.

    ``looks`` has the number of starts, and ``look_seeds`` the number of seeds, each time the verdict was computed,
    including this one. ``looked`` is how many of these looks the test counts. Earlier answers stand; ``given`` is a
    recommendation that stands from an earlier look.
    """

    answer: str
    option: str
    gain: Estimate
    success: Estimate
    optimism: float = 0.0
    within: bool = False
    cheaper: str | None = None
    given: Given | None = None
    options: list[Option]
    takes: Answer
    demonstrations: Answer
    both: Answer
    headline: str = ""
    leak: bool = Field(description="keeping the shortest take gains as much as the score")
    any_chunk: bool = False
    questions: dict[str, Finding] = {}
    looks: list[int] = []
    look_seeds: list[int] = []
    looked: int = 1

    def row(self, name: str | None) -> Option | None:
        """Return the option called ``name``, or None if there is none."""
        return next((option for option in self.options if option.name == name), None)

    @property
    def recommended(self) -> Option:
        """The recommended option."""
        return next(option for option in self.options if option.name == self.option)

    def shown_as(self, option: Option) -> tuple[Estimate, Estimate]:
        """Return success and gain of an option for display: those of the recommended one minus ``optimism``."""
        return (self.success, self.gain) if option.name == self.option else (option.success, option.gain)

    @property
    def answers(self) -> dict[str, Answer]:
        """The paper's three questions by name."""
        return {"takes": self.takes, "demonstrations": self.demonstrations, "both": self.both}


class TaskLine(_Model):
    """The main numbers of one task of a cell."""

    env: str
    task: str
    starts: int
    takes: int
    errors: int
    pass_1: Estimate
    pass_n: Estimate
    gain: Estimate


class CellPath(_Model):
    """How a run until decided went in one cell.

    ``stopped`` is "decided", "budget", "starts" (there are no more) or "hopeless" (no number of takes can settle what
    is open). ``unsettled`` lists the open parts of the verdict. ``settled[question]`` is the number of takes after
    which the question was answered. ``paper_takes`` is the number of takes of the paper's protocol, 500 starts, with
    the same arms and seeds.
    """

    stopped: str
    unsettled: list[str]
    takes: int
    paper_takes: int
    settled: dict[str, int]


class Rejection(_Model):
    """Retrying ``arm`` until the score passes a threshold, at most ``n`` times, and otherwise keeping the best take.

    The arm is that of the recommended option if that keeps the best of several takes, or else ``base``. ``takes``,
    ``success`` and ``gain`` (over one take of base) belong to the threshold that keeps nine tenths of the best gain
    with the fewest takes, chosen for each start on other starts. ``threshold``, chosen on all starts, is for use with
    ``scorer`` from now on; it is null if running all ``n`` takes is best.
    """

    arm: str
    n: int
    scorer: str
    threshold: float | None
    takes: Estimate
    success: Estimate
    gain: Estimate


class StartAudit(_Model):
    """Whether the takes of a start really began alike, by records and outcomes (only for ingested results).

    ``resets``: whether the harness is known to reset its env to the "start" or only to the "task"; ``env_seed`` and
    ``state`` (a hash of the initial state): "same" or "varies" among the takes of a start. They are empty if nothing
    was recorded. ``sources``: how much more takes of one start agree than takes of its task, and where disagreement
    comes from. ``doubt``: "resets" or "state" (recorded as different), "chance" (they agree no more than takes of
    different starts), "few" (too few disagree to tell), "unknown" (each task has one start, and nothing else was
    recorded), or empty.
    """

    resets: str = ""
    env_seed: str = ""
    state: str = ""
    sources: Sources = Sources()
    doubt: str = ""


class Cell(_Model):
    """One policy on one task group: the unit that gets numbers and a verdict.

    The summary of a policy over all its tasks is a cell as well, with ``group: "*"``.
    """

    policy: str
    env: str
    group: str
    starts: int
    spare: int | None = Field(None, description="how many more starts its envs have; null where that is not known")
    seeds: int
    takes: int
    errors: int
    missing: int
    window: str = Field(description="the leak-free window that the verdict's score reads")
    scorer: str
    headroom: Headroom | None = None
    selectors: Selectors | None = None
    ranking: Ranking | None = None
    dfe: Probe | None = None
    arms: Arms | None = None
    verdict: Verdict | None = None
    tasks: list[TaskLine] = []
    notes: list[str] = []
    audit: StartAudit | None = None
    path: CellPath | None = None
    rejection: Rejection | None = None

    @property
    def chosen(self) -> Selector | None:
        """The selector that the verdict rests on; None if it was not measured."""
        return self.selectors.scored.get(self.scorer, {}).get(self.window) if self.selectors else None


class Relation(_Model):
    """The relation of selection gain to headroom over cells (paper Fig. 1).

    ``interval`` is that of ``r``. All intervals resample cells, and the starts within each, and are missing below eight
    cells. ``n`` of an estimate counts cells.
    """

    cells: int = 0
    r: float | None = None
    interval: tuple[float, float] | None = None
    spearman: Estimate | None = None
    disjoint: SplitHalfCorrelation = SplitHalfCorrelation()
    within: dict[str, Estimate | None] = {}
    leave_one_out: dict[str, Estimate | None] = {}
    fit: FittedLine | None = None
    capture_mean: float | None = None
    capture_sd: float | None = None
    reason: str = ""


class Cost(_Model):
    """The cost of the run.

    ``frames_encoded`` and ``seconds`` (wall clock, by stage) are only those of the last call of diagnose, which tried
    to play ``made`` takes.
    """

    takes: int
    errors: int
    steps: int
    policy_calls: int
    frames_scored: int
    frames_encoded: int
    seconds: dict[str, float]
    made: int | None = None


class Result(_Model):
    """The result of a diagnosis: every number of the report.

    Proportions are fractions (0.11, not 11 points). ``policies`` has one cell per policy over all its tasks, ``cells``
    one per policy and task group; both have verdicts. docs/result.md lists all fields.

    ``run``: the name of the run, as in its run.json. ``checks``: for each policy URI, how retrieval was chosen on
    held-out demonstrations. ``pools``: one take each of several policies, against more takes of the best one.
    """

    schema_version: int = SCHEMA
    sha256: str = ""
    besttake: str
    created: str
    command: str
    digest: str
    run: str = ""
    plan: dict[str, Any]
    versions: dict[str, str]
    library: dict[str, Any] | None
    worth: float
    cells: list[Cell]
    policies: list[Cell]
    relation: Relation
    cost: Cost
    checks: dict[str, RetrievalCheck] = {}
    pools: list[Pool] = []
    notes: list[str] = []

    def to_json(self) -> str:
        """Return the JSON text of ``result.json``, including its own checksum (``sha256``)."""
        current = self.model_copy(update={"schema_version": SCHEMA, "sha256": ""})
        checksum = _checksum(json.loads(current.model_dump_json()))
        return current.model_copy(update={"sha256": checksum}).model_dump_json(indent=1)

    def save(self, path: Path) -> None:
        """Write the result to a JSON file."""
        path.write_text(self.to_json())

    @property
    def undecided(self) -> bool:
        """Whether any policy's verdict is open, or leaves a question open."""
        verdicts = [policy.verdict for policy in self.policies if policy.verdict is not None]
        return any("open" in (verdict.answer, *(a.answer for a in verdict.answers.values())) for verdict in verdicts)

    def plot(self) -> Figure | None:
        """Draw gain against headroom over all cells as an SVG figure; None if no cell has both."""
        from besttake.reporting import figures

        return figures.relation(self, legend=True)

    def cell_of(self, policy: str = "") -> Cell:
        """Return the summary of a policy over all tasks: that of the named one, or the only one.

        Raises:
            PlanError: There is no such policy, or there are several and none is named.
        """
        named = {cell.policy: cell for cell in self.policies}
        if not policy and len(named) == 1:
            return self.policies[0]
        cell = named.get(policy) or {uri.partition(":")[2]: summary for uri, summary in named.items()}.get(policy)
        if cell is None:
            raise PlanError(f"`policy` {policy or 'is missing'}: the run has {', '.join(named)}")
        return cell

    def to_dataframe(self) -> Any:
        """Return a row per cell and number as a pandas DataFrame, proportions as fractions. Needs pandas."""
        from besttake.reporting.result_tables import numbers

        return numbers(self).dataframe()

    def __repr__(self) -> str:
        """The last lines that a diagnosis prints: one per policy, and what is not decided."""
        from besttake.reporting.result_tables import summary
        from besttake.reporting.words import remarks

        return "\n".join([*summary(self, self.policies).text(), *remarks(self)])

    __str__ = __repr__

    def _repr_html_(self) -> str:
        from besttake.reporting.result_tables import verdicts

        return verdicts(self).html()

    @classmethod
    def load(cls, path: str | Path) -> Result:
        """Read the result of a run; ``path`` is the run directory or its ``result.json``.

        Raises:
            RunError: The file is missing, damaged, or written by another version of BestTake.
        """
        path = Path(path) / "result.json" if Path(path).is_dir() else Path(path)
        try:
            data = read_regular(path)
        except FileNotFoundError as error:
            raise RunError(f"{path} is missing; `besttake diagnose` makes it") from error
        except (OSError, ValueError) as error:
            raise RunError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
        result = cls.from_bytes(data, str(path))
        check_run(path, result.run)
        return result

    @classmethod
    def from_bytes(cls, content: bytes, path: str = "result.json") -> Result:
        """Return the result from the bytes of a ``result.json``; ``path`` is used in error messages."""
        try:
            data = read_json(content)
            version, checksum = int(data["schema_version"]), _checksum(data)
            if version == SCHEMA:
                if data["sha256"] != checksum:
                    raise ValueError("its checksum is wrong")
                return cls.model_validate({**data, "sha256": ""})  # this checksum belongs to the file
        except (ValueError, KeyError, TypeError, ArithmeticError) as error:
            raise RunError(f"{path} is damaged; `besttake diagnose` on the same directory makes it again") from error
        remedy = "upgrade besttake" if version > SCHEMA else "make it again with `besttake diagnose`"
        raise RunError(f"{path} is of schema {version}, this BestTake reads {SCHEMA}; {remedy}")


def _checksum(data: dict[str, Any]) -> str:
    """The sha256 of all other entries in any layout; ValueError if there is NaN or infinity."""
    rest = {name: value for name, value in data.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, allow_nan=False).encode()).hexdigest()


if __name__ == "__main__":
    print(json.dumps(Result.model_json_schema(), indent=1))
