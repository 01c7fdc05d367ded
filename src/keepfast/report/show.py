"""`keepfast show N`: one experiment with every rung, every number, its spread, its number of rounds and its opponent."""

from __future__ import annotations

import math

from keepfast.model import SENTENCES, CaseTime, Experiment, Idea, Kind, Phase, Reason, Round, Rung, Verdict
from keepfast.report import book as books
from keepfast.report import numbers, suspects, text
from keepfast.report.book import Book
from keepfast.report.escape import clip, line, pad

LADDER = ("guard", "build", "correct", "time")
ON_A_GPU = ("guard", "build", "plan", "correct", "rules", "time")
INDENT = 9


def show(book: Book, experiment: Experiment, *, rounds: bool = False, columns: int = text.COLUMNS) -> list[str]:
    """All lines of `keepfast show N`. `rounds` adds one line a round; it needs an experiment that was read with its rounds."""
    blocks = [
        [clip(_title(experiment), columns)],
        _row("title", line(experiment.title), columns) if experiment.title else [],
        *(_row("by", words, columns) for words in [_by(book, experiment)] if words),
        *_rungs(experiment.verdict, columns),
        *_numbers(book, experiment, columns),
        _rounds(experiment.verdict.rounds) if rounds else [],
        *_origin(book, experiment, columns),
    ]
    return [one.rstrip() for block in blocks for one in block]


def judged(verdict: Verdict, columns: int = text.COLUMNS) -> list[str]:
    """A verdict that is no experiment of a run: what `keepfast check` prints."""
    claims = [words for words in (gain_text(verdict), _on_the_way(verdict)) if words]
    blocks = [
        [f"verdict  {_verdict(verdict)}"],
        *_rungs(verdict, columns),
        *(_row("" if i else "gain", words, columns) for i, words in enumerate(claims)),
        _cases(verdict.cases, columns) if verdict.cases else [],
        *(_row("noise", words, columns) for words in [noise_text(verdict)] if words),
    ]
    return [one.rstrip() for block in blocks for one in block]


def _title(experiment: Experiment) -> str:
    return f"experiment {experiment.n}   {_verdict(experiment.verdict)}"


def _verdict(verdict: Verdict) -> str:
    reason, words = verdict.reason.value.replace("-", " "), SENTENCES[verdict.reason][1]
    return f"{verdict.kind.value}: {reason}" + (f"   ({words})" if words != reason else "")


def _by(book: Book, experiment: Experiment) -> str:
    if experiment.verdict.reason is Reason.START:
        return ""
    source = f" from {experiment.source}" if experiment.source else ""
    return line(f"proposed by {experiment.proposer}{source}{_idea(book.ideas, experiment.idea)}")


def _idea(ideas: tuple[Idea, ...], n: int | None) -> str:
    if n is None:
        return ""
    words = next((f' "{i.text}"' for i in ideas if i.n == n), "")
    return f", idea {n}{words}"


def _row(name: str, words: str, columns: int) -> list[str]:
    return text.row(name, words, columns, INDENT)


def _rungs(verdict: Verdict, columns: int) -> list[list[str]]:
    out = [_rung(r, verdict, columns) for r in verdict.rungs]
    failed = any(not r.ok for r in verdict.rungs)
    if not failed and verdict.detail:
        out.append(_row("why", line(verdict.detail), columns))
    reached = {r.name for r in verdict.rungs}
    ladder = ON_A_GPU if "plan" in reached else LADDER
    return out + [_row(name, "not reached", columns) for name in ladder if failed and name not in reached]


def _rung(rung: Rung, verdict: Verdict, columns: int) -> list[str]:
    facts = ", ".join(f"{line(f.name)} {line(f.value)}".strip() for f in rung.facts)
    said = line(verdict.detail) or SENTENCES[verdict.reason][1]
    words = "; ".join(part for part in (facts, "" if rung.ok else said) if part)
    return _row(line(rung.name), f"{'ok' if rung.ok else 'FAILED':<7} {numbers.duration(rung.seconds):<7} {words}", columns)


def _numbers(book: Book, experiment: Experiment, columns: int) -> list[list[str]]:
    verdict = experiment.verdict
    rows = [_row("gain", words, columns) for words in [gain_text(verdict)] if words]
    rows += [_row("", words, columns) for words in [_on_the_way(verdict)] if words]
    told = _evidence(verdict, columns) if verdict.kind is Kind.SUSPECT else _cases(verdict.cases, columns)
    rows += [told] if verdict.cases else []
    rows += [_row("total", words, columns) for words in _totals(book, experiment)]
    rows += [_row("noise", words, columns) for words in [noise_text(verdict)] if words]
    return rows


def gain_text(verdict: Verdict) -> str:
    """The claim: `+62.4 % [61.2, 63.5], 6 confirm rounds, SD 0.7 %, against experiment 2, on this machine`."""
    e = verdict.gain
    if e is None:
        return ""
    name = "confirm round" if verdict.kind is Kind.KEEP else "round"
    return f"{numbers.gain(e)}   {numbers.count(e.rounds, name)}, SD {numbers.spread(e.sd)}, against {line(e.opponent)}"


def _on_the_way(verdict: Verdict) -> str:
    parts = [f"screen {numbers.bare_gain(verdict.screen)} (1 round)"] if verdict.screen is not None else []
    test = verdict.test
    if test:
        parts.append(f"test {numbers.gain(test)} ({numbers.count(test.rounds, 'round')}, SD {numbers.spread(test.sd)})")
    claimed = "; only the confirm rounds are claimed" if verdict.gain and verdict.kind is Kind.KEEP else "; nothing is claimed"
    return ", ".join(parts) + claimed if parts else ""


def _cases(cases: tuple[CaseTime, ...], columns: int) -> list[str]:
    if not cases:
        return []
    opponent = line(cases[0].estimate.opponent)
    head = f"{pad('case', 16)} {'one call':>9}  {'opponent':>9}  {'gain':<24} rounds  of limit"
    rows = [_case(c) for c in cases]
    return [*_row("cases", f"against {opponent}", columns), *(" " * INDENT + clip(r, columns - INDENT) for r in [head, *rows])]


def _evidence(verdict: Verdict, columns: int) -> list[str]:
    """For a suspect: claim, opponent and limit beside each other; `!` marks what the machine does not allow."""
    lines = suspects.evidence(verdict.cases, columns - INDENT)
    return [*_row("evidence", "claimed, and what this machine allows", columns), *(" " * INDENT + one for one in lines)]


def _case(case: CaseTime) -> str:
    times = f"{numbers.nanoseconds(case.subject_ns):>9}  {numbers.nanoseconds(case.opponent_ns):>9}"
    limit = limit_text(case)
    return f"{pad(clip(line(case.case), 16), 16)} {times}  {numbers.gain(case.estimate):<24} {case.estimate.rounds:>6}  {limit}"


def limit_text(case: CaseTime) -> str:
    """Share of the measured physical limit that the subject reaches, `71 %`; empty when the task gives none."""
    return f"{100 * case.limit_ns / case.subject_ns:.0f} %" if case.limit_ns and case.subject_ns else ""


def _totals(book: Book, experiment: Experiment) -> list[str]:
    if not experiment.verdict.kept or experiment.verdict.reason is Reason.START:
        return []
    total = books.total_at(book.experiments, book.directs, experiment.n)
    over = [d for d in book.directs if d.n == experiment.n and d.against != "start"]
    return ([text.total_text(total)] if total else []) + [
        f"{numbers.speedup(d.estimate)} over {line(d.against)} {numbers.interval(d.estimate)}, measured directly, "
        f"{numbers.count(d.estimate.rounds, 'round')}, SD {numbers.spread(d.estimate.sd)}"
        for d in over
    ]


def noise_text(verdict: Verdict) -> str:
    """How often a change that does nothing is kept, and what gain this evaluation could see."""
    parts = [f"false keeps on this machine: {verdict.false_keep:.2g}"] if verdict.false_keep is not None else []
    if verdict.mde is not None:
        parts.append(f"smallest gain it can see here: {numbers.bare_gain(-verdict.mde).lstrip('+')}")
    return ", ".join(parts)


def _rounds(rounds: tuple[Round, ...]) -> list[str]:
    if not rounds:
        return ["rounds   none were timed"]
    head = f"rounds   {'phase':<8} {'gain':>8}  {'block SD':>8}  {'blocks':>6}  {'took':>6}  one call, subject and opponent"
    return [head, *(f"{i + 1:>7}  {_round(r)}" for i, r in enumerate(rounds))]


def _round(r: Round) -> str:
    blocks = [b for c in r.cases for b in c.blocks]
    spread = numbers.spread(_sd(blocks)) if len(blocks) > 1 else "-"
    times = ", ".join(f"{line(c.case)} {numbers.nanoseconds(c.subject_ns)} and {numbers.nanoseconds(c.opponent_ns)}" for c in r.cases)
    phase = Phase(r.phase).value
    return f"{phase:<8} {numbers.bare_gain(r.d):>8}  {spread:>8}  {len(blocks):>6}  {numbers.duration(r.seconds):>6}  {times}"


def _sd(values: list[float]) -> float:
    mean = sum(values) / len(values)
    return math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1))


def _origin(book: Book, experiment: Experiment, columns: int) -> list[list[str]]:
    walls = f", {text.walls_text(line(experiment.verdict.walls))}" if experiment.verdict.walls else ""
    suspect = experiment.verdict.kind is Kind.SUSPECT
    values = ", ".join(f"{line(name)} = {line(str(value))}" for name, value in experiment.tunables)
    took = f"{numbers.clock(experiment.started)}, took {numbers.duration(experiment.seconds)}, {text.machine_line(book.run.machine)}"
    return [
        *([_row("tunables", values, columns)] if values else []),
        _row("when", took + (walls if experiment.verdict.walls != book.run.machine.walls else ""), columns),
        *([_row("commit", line(experiment.commit), columns)] if experiment.commit else []),
        _row("diff", f"keepfast show {experiment.n} --diff", columns),
        *([_row("clear", f'keepfast clear {experiment.n} --because "why it is right"', columns)] if suspect else []),
    ]
