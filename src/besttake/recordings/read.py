"""Read files and directories of results, choosing a reader for each, and count every episode once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from besttake.errors import one_line
from besttake.files import leads_out, sha256_of
from besttake.recordings import libero_log, rollouts, table
from besttake.recordings.episodes import (
    Episode,
    IngestError,
    Recording,
    UnknownFormat,
    check_file,
    files_under,
    is_data_set,
    read_json,
)
from besttake.recordings.lerobot import is_info, read_data_set, read_info
from besttake.recordings.maniskill import is_trajectories, read_trajectories
from besttake.recordings.policies import given_name
from besttake.recordings.vla_eval import is_export, is_recording, read_export, read_recording

Columns = Mapping[str, str]
KNOWN = (
    "vla-eval's recording or export, lerobot-eval's eval_info.json or recordings, logs and videos of OpenVLA, openpi "
    "or SimplerEnv, ManiSkill's trajectory JSON, or a table (CSV, Parquet, JSON lines)"
)
_MOST_NAMED = 3
_DATABASES = (".sqlite", ".sqlite3", ".db")


def read(
    paths: Sequence[str | Path], columns: Columns | None = None, policies: Mapping[str, str] | None = None
) -> tuple[list[Recording], list[str]]:
    """Read all recordings under ``paths``, each episode once, with notes on how they were read.

    ``policies`` names the policy of some files or folders; equal files of different policies both count.
    """
    reading = _Reading(columns or {}, policies or {})
    files: list[tuple[Path, bool]] = []
    for path in map(Path, paths):
        if path.is_dir():
            for file in files_under(path):
                if leads_out(path, file.absolute()):
                    reading.passed.append(f"{file} is a link that leads out of {path}; name the file itself to read it")
                elif is_data_set(file) or may_hold_outcomes(file):
                    files.append((file, False))
        else:
            check_file(path)
            files.append((path, True))
    for path, named in sorted(files, key=lambda file: str(file[0])):
        reading.add(path, named=named)
    reading.finish()
    if not reading.recordings:
        where = ", ".join(map(str, paths))
        why = f" ({'; '.join(reading.notes()[:2])})" if reading.notes() else ""
        raise IngestError(f"{where}: holds no outcomes that BestTake knows{why}; give {KNOWN}")
    recordings, notes = once(reading.recordings)
    if not any(recording.episodes for recording in recordings):
        raise IngestError(f"{', '.join(map(str, paths))}: there is no episode in it")
    own = [note for recording in recordings for note in recording.notes]
    return recordings, list(dict.fromkeys([*notes, *own, *reading.notes()]))


@dataclass
class _Reading:
    """What was read and left out so far. A file that the user named must be readable; others may be skipped."""

    columns: Columns
    policies: Mapping[str, str]
    recordings: list[Recording] = field(default_factory=list)
    passed: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    videos: list[Path] = field(default_factory=list)
    places: set[Path] = field(default_factory=set)
    copies: dict[str, str] = field(default_factory=dict)
    again: list[str] = field(default_factory=list)

    def add(self, path: Path, *, named: bool) -> None:
        """Read one file or one data set."""
        place = path.resolve()
        if place in self.places:
            self.again.append(f"{path.name} was named twice and counted once")
            return
        self.places.add(place)
        if rollouts.names_outcome(path):
            self.videos.append(path)
            return
        try:
            self._keep(path)
        except UnknownFormat as error:
            if named:
                raise
            self.unknown.append(path.name if "damaged" not in str(error) else str(error))
        except IngestError as error:
            if named:
                raise
            self.passed.append(str(error))

    def _keep(self, path: Path) -> None:
        recordings = read_file(path, self.columns)
        digest = sha256_of(path) if path.is_file() else str(path.resolve())
        digest = f"{digest} {given_name(str(path), self.policies)}"
        if digest in self.copies:
            self.again.append(f"{path.name} repeats {self.copies[digest]} and was counted once")
            return
        self.copies[digest] = path.name
        self.recordings += recordings

    def finish(self) -> None:
        """Read the outcomes in names of videos, after all logs."""
        logged = {episode.uid for recording in self.recordings for episode in recording.episodes if episode.uid}
        recordings, left_out = rollouts.read_videos(sorted(self.videos), logged)
        self.recordings += recordings
        self.passed += left_out

    def notes(self) -> list[str]:
        """A few lines on what was left out."""
        lines = [*self.again[:_MOST_NAMED], *_more(self.again, "more copies were counted once")]
        lines += [f"passed over: {reason}" for reason in self.passed[:_MOST_NAMED]]
        lines += _more(self.passed, "more files were passed over")
        if self.unknown:
            rest = len(self.unknown) - _MOST_NAMED
            names = ", ".join(self.unknown[:_MOST_NAMED]) + (f" and {rest} more" if rest > 0 else "")
            lines.append(f"passed over, without outcomes: {names}")
        return lines


def may_hold_outcomes(file: Path) -> bool:
    """Whether a file in a directory may hold outcomes: not output of `ingest` itself, nor files of other programs."""
    suffix = file.suffix.lower()
    if suffix in table.SUFFIXES:
        return file.name != "outcomes.csv" or not (file.parent / "result.json").exists()
    if suffix in rollouts.SUFFIXES:
        return rollouts.names_outcome(file)
    return (
        suffix == ".json" or suffix in libero_log.SUFFIXES or suffix in _DATABASES or file.name.startswith("recording")
    )


def read_file(path: Path, columns: Columns) -> list[Recording]:
    """Read the recordings of one file or data set; IngestError says what is wrong with it."""
    try:
        return _read(path, columns)
    except IngestError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, OverflowError, RecursionError) as error:
        # Files come from anywhere: one of the wrong shape must not end the reading of all others.
        raise IngestError(f"{path}: not what its format says ({one_line(error, 160)})") from error
    except OSError as error:
        raise IngestError(f"{path}: cannot be read ({one_line(error, 160)})") from error


def _read(path: Path, columns: Columns) -> list[Recording]:
    suffix = path.suffix.lower()
    if is_data_set(path):
        return read_data_set(path)
    if suffix in table.SUFFIXES:
        return table.read_table(path, columns)
    if suffix == ".json":
        data = read_json(path)
        for known, read in ((is_export, read_export), (is_info, read_info), (is_trajectories, read_trajectories)):
            if known(data):
                return read(path, data)
    elif is_recording(path):
        return read_recording(path)
    elif suffix in libero_log.SUFFIXES:
        return libero_log.read_log(path)
    raise UnknownFormat(f"{path}: not a known file of outcomes; give {KNOWN}")


def once(recordings: Sequence[Recording]) -> tuple[list[Recording], list[str]]:
    """Drop episodes that another recording also holds, and return notes on them.

    The larger recording keeps them. ``eval_info.json`` replaces the recordings beside it, which lack some episodes.
    """
    notes = []
    infos = {recording.origin for recording in recordings if recording.format == "lerobot-eval"}
    order = sorted(range(len(recordings)), key=lambda i: (-len(recordings[i].episodes), recordings[i].path))
    seen: dict[str, str] = {}
    wholes: list[tuple[str, Counter[str]]] = []
    kept: dict[int, Recording] = {}
    for i in order:
        recording, name = recordings[i], Path(recordings[i].path).name
        if recording.format == "LeRobot data set" and recording.origin in infos:
            evaluation = Path(recording.origin).parent.name
            notes.append(f"{evaluation}/recordings: eval_info.json beside it has the same episodes, which count once")
            continue
        almost = Counter(episode.uid for episode in recording.episodes if episode.uid.startswith("~"))
        if almost and almost.total() == len(recording.episodes):
            whole = next((other for other, held in wholes if almost <= held), None)
            if whole is not None:
                notes.append(f"{name} repeats {whole} and was counted once")
                continue
            wholes.append((name, almost))
        fresh = tuple(episode for episode in recording.episodes if not _surely(episode) or episode.uid not in seen)
        if len(fresh) < len(recording.episodes):
            other = next(seen[episode.uid] for episode in recording.episodes if episode.uid in seen)
            part = f"has {len(recording.episodes) - len(fresh)} episodes of {other}, which count once"
            notes.append(f"{name} {part if fresh else f'repeats {other} and was counted once'}")
        seen.update((episode.uid, name) for episode in fresh if _surely(episode))
        if fresh or not recording.episodes:
            kept[i] = replace(recording, episodes=fresh)
    return [kept[i] for i in sorted(kept, key=lambda i: (kept[i].path, i))], _few(notes)


def once_by_seed(recordings: Sequence[Recording]) -> tuple[list[Recording], list[str]]:
    """Count a take once if two recordings hold it (same policy, start and seed) with the same outcome.

    If two recordings differ in any such take, policy, start and seed do not identify takes, and all of them count.
    Tables with equal rows count as one table.
    """
    seen: dict[tuple[str, ...], tuple[str, bool | None]] = {}
    kept, notes = _different(recordings)
    for i in sorted(range(len(kept)), key=lambda i: (-len(kept[i].episodes), kept[i].path)):
        name, takes = Path(kept[i].path).name, [(_take(episode), episode) for episode in kept[i].episodes]
        keys = [key for key, _ in takes if key is not None]
        shared = {key for key in keys if key in seen}
        alike = all(seen[key][1] == episode.success for key, episode in takes if key in shared)
        if shared and alike and len(set(keys)) == len(keys):
            other = min(seen[key][0] for key in shared)
            notes.append(f"{name} has {len(shared)} takes of {other} (same start, seed and outcome), which count once")
            kept[i] = replace(kept[i], episodes=tuple(episode for key, episode in takes if key not in shared))
        for key, episode in takes:
            if key is not None:
                seen.setdefault(key, (name, episode.success))
    return [recording for recording in kept if recording.episodes], _few(notes)


def _different(recordings: Sequence[Recording]) -> tuple[list[Recording], list[str]]:
    """Drop tables that are equal to another one, such as a table saved in two formats."""
    kept: list[Recording] = []
    notes: list[str] = []
    seen: dict[tuple[str, ...], str] = {}
    for recording in recordings:
        name = Path(recording.path).name
        rows = tuple(sorted(map(repr, recording.episodes)))
        if f".{recording.format}" in table.SUFFIXES and rows in seen:
            notes.append(f"{name} has the same rows as {seen[rows]} and was counted once")
            continue
        seen.setdefault(rows, name)
        kept.append(recording)
    return kept, notes


def _take(episode: Episode) -> tuple[str, ...] | None:
    """What identifies a take, if it has a seed."""
    return (episode.policy, episode.env, episode.task, episode.start, episode.seed) if episode.seed else None


def _surely(episode: Episode) -> bool:
    return bool(episode.uid) and not episode.uid.startswith("~")


def _few(repeats: Sequence[str]) -> list[str]:
    notes = list(dict.fromkeys(repeats))
    return [*notes[:_MOST_NAMED], *_more(notes, "more repeats were counted once")]


def _more(lines: Iterable[str], what: str) -> list[str]:
    rest = len(list(lines)) - _MOST_NAMED
    return [f"{rest} {what}"] if rest > 0 else []
