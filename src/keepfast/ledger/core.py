"""The ledger of a repository: what was tried, measured and decided, in order, nothing lost, nothing twice.

Owns the records of runs. Must not know git, the judge or the proposers. One process writes (`hold`), any number read.
Experiments form a hash chain: each carries the hash of the one before it and of its own record and rounds.
"""

from __future__ import annotations

import hashlib
import re
import time
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from msgspec.structs import replace

from keepfast import crash
from keepfast.errors import LedgerError, UsageError, nearest
from keepfast.ledger import artifacts, lock
from keepfast.ledger.mail import Mail
from keepfast.ledger.store import FILE, Store, decode, encode, text
from keepfast.model import BaselineResult, Calibration, Direct, Event, Experiment, Kind, Round, Run

HEX = re.compile(rb"[0-9a-f]{64}")


class Ledger(Mail):
    """`with Ledger.open(repo.state) as ledger: ...`"""

    def __init__(self, folder: Path, store: Store) -> None:
        self.folder = folder
        self._store = store

    @classmethod
    def open(cls, folder: Path, *, readonly: bool = False) -> Self:
        """Open (or create) the ledger in `folder`. LedgerError when it cannot be; UsageError for a reader where there is none."""
        return cls(folder, Store.open(folder / FILE, readonly=readonly))

    def close(self) -> None:
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def hold(self, run_id: str) -> AbstractContextManager[None]:
        """The right to write, for as long as the block runs; UsageError when another process has it."""
        return lock.held(self.folder, run_id)

    def holder(self) -> lock.Holder | None:
        """The process that runs now. A run whose state is `running` without a holder was killed and can be resumed."""
        return lock.holder(self.folder)

    # ---------------------------------------------------------------------------------- runs

    def runs(self) -> tuple[Run, ...]:
        """All runs, oldest first."""
        return tuple(_run(row) for row in self._store.rows("SELECT id, state, record FROM runs ORDER BY started, rowid"))

    def run(self, run_id: str) -> Run:
        row = self._store.one("SELECT id, state, record FROM runs WHERE id = ?", run_id)
        if row is None:
            known = [r.id for r in self.runs()]
            what = f"no run `{run_id}` in this ledger.{nearest(run_id, known)}"
            raise UsageError(what, where=str(self.folder), next_step="keepfast status")
        return _run(row)

    def latest(self, task: str | None = None) -> Run | None:
        """The run that was started last (of `task`, when given); None when there is none."""
        sql = "SELECT id, state, record FROM runs WHERE ? IN ('', task) ORDER BY started DESC, rowid DESC LIMIT 1"
        row = self._store.one(sql, task or "")
        return _run(row) if row else None

    def start(self, run: Run) -> None:
        """Write the run down. Once: a second run of the same id is a LedgerError."""
        with self._store.transaction():
            if self._store.one("SELECT 1 FROM runs WHERE id = ?", run.id):
                raise LedgerError(f"run {run.id} is in the ledger already", where=str(self.folder), next_step="keepfast run --resume")
            self._store.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?)", run.id, text(run.task), run.started, run.state, encode(run))

    def end(self, run_id: str, state: str) -> None:
        """Set the run's state: running, stopped, goal, budget, deck-done or interrupted."""
        self._store.execute("UPDATE runs SET state = ? WHERE id = ?", state, run_id)

    # ---------------------------------------------------------------------------------- experiments

    def append(self, run_id: str, experiment: Experiment) -> None:
        """One experiment with its rounds, cost, idea and event, in one transaction: all of it is on disk or none of it.

        LedgerError when its number is not the next one.
        """
        verdict = experiment.verdict
        record = encode(replace(experiment, verdict=replace(verdict, rounds=())))
        rounds = [encode(r) for r in verdict.rounds]
        with self._store.transaction():
            before = self._tip(run_id, experiment.n)
            cells = (experiment.n, verdict.kind, verdict.reason, experiment.tree, verdict.code, _chain(before, record, rounds), record)
            self._store.execute("INSERT INTO experiments VALUES (?, ?, ?, ?, ?, ?, ?, ?)", run_id, *cells)
            crash.point("append-open", experiment.n)
            for i, blob in enumerate(rounds):
                self._store.execute("INSERT INTO rounds VALUES (?, ?, ?, ?)", run_id, experiment.n, i, blob)
            self._append_rest(run_id, experiment)

    def _append_rest(self, run_id: str, experiment: Experiment) -> None:
        self._settle_costs(run_id, experiment)
        if experiment.idea is not None:
            state = "kept" if experiment.verdict.kept else "trying"
            sql = "UPDATE ideas SET state = ? WHERE n = ? AND state IN ('open', 'trying') AND task = (SELECT task FROM runs WHERE id = ?)"
            self._store.execute(sql, state, experiment.idea, run_id)
        self.add_event(run_id, Event("verdict", experiment=experiment))

    def _settle_costs(self, run_id: str, experiment: Experiment) -> None:
        """Give the experiment the costs of its proposer that waited for it, and write down what of its own cost is not there yet."""
        who = text(experiment.proposer)
        self._store.execute("UPDATE costs SET n = ? WHERE run = ? AND who = ? AND n = 0", experiment.n, run_id, who)
        sql = "SELECT COALESCE(SUM(dollars), 0), COALESCE(SUM(tokens), 0) FROM costs WHERE run = ? AND n = ?"
        dollars, tokens = self._store.one(sql, run_id, experiment.n)
        rest = round(max(0.0, experiment.dollars - dollars), 9), max(0, experiment.tokens - tokens)
        if any(rest):
            self.add_cost(run_id, who, *rest, experiment.n)

    def _tip(self, run_id: str, n: int) -> str:
        row = self._store.one("SELECT n, hash FROM experiments WHERE run = ? ORDER BY n DESC LIMIT 1", run_id)
        last, before = (row[0], row[1]) if row else (0, "")
        if n != last + 1:
            raise LedgerError(f"experiment {n} cannot follow experiment {last} of {run_id}", where=str(self.folder))
        return str(before)

    def experiments(self, run_id: str, *, rounds: bool = False, newest: int | None = None) -> tuple[Experiment, ...]:
        """Experiments in order; the `newest` ones only, when given. Raw rounds are left out unless asked for."""
        sql = "SELECT record FROM experiments WHERE run = ? ORDER BY n DESC LIMIT ?"
        found = self._store.rows(sql, run_id, -1 if newest is None else newest)
        plain = tuple(self._experiment(blob) for (blob,) in reversed(found))
        return tuple(self._with_rounds(run_id, e) for e in plain) if rounds else plain

    def experiment(self, run_id: str, n: int) -> Experiment:
        """Experiment `n` with its raw rounds; UsageError when there is none."""
        row = self._store.one("SELECT record FROM experiments WHERE run = ? AND n = ?", run_id, n)
        if row is None:
            raise UsageError(f"no experiment {n} in run {self.run(run_id).id}", next_step="keepfast log")
        return self._with_rounds(run_id, self._experiment(row[0]))

    def champion(self, run_id: str) -> Experiment | None:
        """The last experiment that was kept, the start included; None before the start was judged."""
        row = self._store.one("SELECT record FROM experiments WHERE run = ? AND kind = ? ORDER BY n DESC LIMIT 1", run_id, Kind.KEEP)
        return self._experiment(row[0]) if row else None

    def keeps(self, run_id: str) -> tuple[Experiment, ...]:
        """Every experiment that was kept, the start first."""
        rows = self._store.rows("SELECT record FROM experiments WHERE run = ? AND kind = ? ORDER BY n", run_id, Kind.KEEP)
        return tuple(self._experiment(blob) for (blob,) in rows)

    def seen(self, run_id: str, tree: str) -> Experiment | None:
        """The first experiment with these files that has a verdict (void is none)."""
        return self._first("tree", run_id, tree)

    def seen_code(self, run_id: str, code: str) -> Experiment | None:
        """The first experiment that compiled to this code and has a verdict."""
        return self._first("code", run_id, code)

    def counts(self, run_id: str) -> tuple[tuple[Kind, int], ...]:
        """How many experiments of each kind, the start among the keeps."""
        rows = dict(self._store.rows("SELECT kind, COUNT(*) FROM experiments WHERE run = ? GROUP BY kind", run_id))
        return tuple((kind, int(rows.get(kind.value, 0))) for kind in Kind)

    def spent(self, run_id: str) -> tuple[float, int]:
        """Dollars and tokens of the run so far."""
        row = self._store.one("SELECT COALESCE(SUM(dollars), 0), COALESCE(SUM(tokens), 0) FROM costs WHERE run = ?", run_id)
        return float(row[0]), int(row[1])

    def _first(self, column: str, run_id: str, value: str) -> Experiment | None:
        if not value:
            return None
        sql = f"SELECT record FROM experiments WHERE run = ? AND {column} = ? AND kind != ? ORDER BY n LIMIT 1"
        row = self._store.one(sql, run_id, value, Kind.VOID)
        return self._experiment(row[0]) if row else None

    def _experiment(self, blob: bytes) -> Experiment:
        return decode(blob, Experiment, str(self._store.path))

    def _with_rounds(self, run_id: str, experiment: Experiment) -> Experiment:
        rows = self._store.rows("SELECT record FROM rounds WHERE run = ? AND n = ? ORDER BY i", run_id, experiment.n)
        rounds = tuple(decode(blob, Round, f"experiment {experiment.n}") for (blob,) in rows)
        return replace(experiment, verdict=replace(experiment.verdict, rounds=rounds))

    # ---------------------------------------------------------------------------------- the hash chain

    def head_hash(self, run_id: str, n: int | None = None) -> str:
        """The chain's hash after experiment `n`, or after the last one; empty before the first."""
        sql = "SELECT hash FROM experiments WHERE run = ? AND (? IS NULL OR n = ?) ORDER BY n DESC LIMIT 1"
        row = self._store.one(sql, run_id, n, n)
        return str(row[0]) if row else ""

    def broken(self, run_id: str) -> int | None:
        """The first experiment whose record or rounds are not what was appended; None when the chain holds."""
        before = ""
        for n, said, record in self._store.each("SELECT n, hash, record FROM experiments WHERE run = ? ORDER BY n", run_id):
            rounds = [r for (r,) in self._store.rows("SELECT record FROM rounds WHERE run = ? AND n = ? ORDER BY i", run_id, n)]
            before = _chain(before, record, rounds)
            if before != said:
                return int(n)
        return None

    # ---------------------------------------------------------------------------------- measurements

    def add_direct(self, run_id: str, direct: Direct) -> None:
        sql = "INSERT INTO directs (run, n, against, record) VALUES (?, ?, ?, ?)"
        self._store.execute(sql, run_id, direct.n, text(direct.against), encode(direct))

    def directs(self, run_id: str) -> tuple[Direct, ...]:
        """Direct measurements, oldest first."""
        rows = self._store.rows("SELECT record FROM directs WHERE run = ? ORDER BY id", run_id)
        return tuple(decode(blob, Direct, str(self._store.path)) for (blob,) in rows)

    def add_baseline(self, run_id: str, result: BaselineResult) -> None:
        """Store what came of a baseline; a second result of the same name replaces the first."""
        self._store.execute("INSERT OR REPLACE INTO baselines VALUES (?, ?, ?)", run_id, text(result.name), encode(result))

    def baselines(self, run_id: str) -> tuple[BaselineResult, ...]:
        rows = self._store.rows("SELECT record FROM baselines WHERE run = ? ORDER BY rowid", run_id)
        return tuple(decode(blob, BaselineResult, str(self._store.path)) for (blob,) in rows)

    def add_calibration(self, task_hash: str, calibration: Calibration) -> None:
        sql = "INSERT INTO calibrations (machine, task_hash, record) VALUES (?, ?, ?)"
        self._store.execute(sql, calibration.machine, task_hash, encode(calibration))

    def calibration(self, machine_hash: str, task_hash: str) -> Calibration | None:
        """The newest calibration of this machine for this task."""
        sql = "SELECT record FROM calibrations WHERE machine = ? AND task_hash = ? ORDER BY id DESC LIMIT 1"
        row = self._store.one(sql, machine_hash, task_hash)
        return decode(row[0], Calibration, str(self._store.path)) if row else None

    # ---------------------------------------------------------------------------------- artifacts

    def put_artifact(self, data: bytes) -> str:
        """Store bytes under their sha256, which is what a record must name (a `Fact` value) to keep them from `gc`."""
        return artifacts.put(self.folder, data)

    def artifact(self, name: str) -> bytes:
        return artifacts.get(self.folder, name)

    def gc(self) -> artifacts.Dropped:
        """Drop artifacts older than a day that no record names."""
        tables = ("runs", "experiments", "rounds", "directs", "baselines", "calibrations", "events")
        needed: set[str] = set()
        for table in tables:
            for (blob,) in self._store.each(f"SELECT record FROM {table}"):
                needed.update(found.decode() for found in HEX.findall(blob))
        return artifacts.drop(self.folder, needed, time.time())


def _run(row: Any) -> Run:
    return replace(decode(row[2], Run, f"run {row[0]}"), state=row[1])


def _chain(before: str, record: bytes, rounds: list[bytes]) -> str:
    parts = hashlib.sha256(before.encode())
    for blob in (record, *rounds):
        parts.update(hashlib.sha256(blob).digest())
    return parts.hexdigest()
