"""One experiment as a line, many as a table, and where a run stands: for a terminal or a pipe.

Returns plain lines of text; colour and cursor belong to `live`. Everything foreign passes through `escape`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from keepfast.model import Experiment, Idea, Kind, Machine, Reason, Run, Task
from keepfast.report import book as books
from keepfast.report import numbers
from keepfast.report.book import Book, Tally, Total
from keepfast.report.escape import clip, fold, line, pad

COLUMNS = 100
RESULT = 22


def verdict_line(experiment: Experiment, columns: int = COLUMNS, *, n_width: int = 3) -> str:
    """One line: number, verdict, gain with interval or the reason code, wall time of the experiment, what was tried or why it failed."""
    return clip(_head(experiment, n_width) + line(sentence(experiment)), columns)


def verdict_lines(experiment: Experiment, columns: int = COLUMNS) -> list[str]:
    """As `verdict_line`, with the text continued on at most one more line: for a terminal, where reading it matters most."""
    head = _head(experiment, 3)
    first, *rest = fold(line(sentence(experiment)), max(20, columns - len(head)))
    second = [" " * len(head) + clip(" ".join(rest), max(20, columns - len(head)))] if rest else []
    return [head + first, *second]


def _head(experiment: Experiment, n_width: int) -> str:
    verdict = experiment.verdict
    word = "start" if verdict.reason is Reason.START else verdict.kind.value
    return f"{experiment.n:>{n_width}}  {word:<7}  {pad(result(experiment), RESULT)}  {numbers.duration(experiment.seconds):>6}  "


def result(experiment: Experiment) -> str:
    """The number of a verdict, or its reason in words where there is no number."""
    verdict = experiment.verdict
    if verdict.reason is Reason.START:
        return start_time(experiment)
    if verdict.kind is Kind.KEEP and verdict.gain:
        return numbers.gain(verdict.gain)
    if verdict.kind is Kind.REVERT and verdict.test:
        return numbers.gain(verdict.test)
    if verdict.kind is Kind.REVERT and verdict.screen is not None:
        return f"{numbers.bare_gain(verdict.screen)} in one round"
    return verdict.reason.value.replace("-", " ")


def start_time(experiment: Experiment) -> str:
    """`9.02 ms ±0.6 %`: one call of the start kernel, with the SD between rounds; the number of cases when there are several."""
    cases = experiment.verdict.cases
    if len(cases) == 1:
        spread = f" ±{numbers.spread(cases[0].estimate.sd)}" if cases[0].estimate.rounds > 1 else ""
        return f"{numbers.nanoseconds(cases[0].subject_ns)}{spread}"
    return numbers.count(len(cases), "case") if cases else ""


def sentence(experiment: Experiment) -> str:
    """What the line says at its end; not escaped. Keeps say what was done, the others why not."""
    from keepfast.model import SENTENCES

    verdict, title = experiment.verdict, experiment.title
    words = SENTENCES[verdict.reason][1]
    if verdict.reason is Reason.CLEARED and verdict.detail:
        return f"{title or words} ({verdict.detail})"
    if verdict.kind is Kind.KEEP:
        return title or words
    if verdict.kind is Kind.REVERT:
        return f"{title}: {verdict.detail or words}" if title else verdict.detail or words
    why = verdict.detail or words
    return f"{why} ({title})" if title else why


def log(experiments: Sequence[Experiment], columns: int = COLUMNS, *, left_out: int = 0) -> list[str]:
    """The table of `keepfast log`, oldest first."""
    digits = max(3, len(str(experiments[-1].n))) if experiments else 3
    out = [f"{'n':>{digits}}  {'verdict':<7}  {'gain or reason':<{RESULT}}  {'took':>6}  what, or why not"]
    if left_out:
        out.append(f"{'':>{digits}}  {numbers.count(left_out, 'earlier experiment')}: keepfast log --newest 0")
    return [*out, *(verdict_line(e, columns, n_width=digits) for e in experiments)]


def tally_line(tally: Tally) -> str:
    """`2 kept, 1 reverted, 9 rejected (4 of them cheats); 28 of the 40 by search`."""
    cheats = f" ({tally.cheats} of them {'a cheat' if tally.cheats == 1 else 'cheats'})" if tally.cheats else ""
    parts = [f"{tally.kept} kept", f"{tally.reverted} reverted", f"{tally.rejected} rejected{cheats}"]
    parts += [f"{tally.suspect} suspect"] * bool(tally.suspect) + [f"{tally.void} void"] * bool(tally.void)
    searched = f"; {tally.searched:,} of the {tally.tried:,} by search" if tally.searched else ""
    return ", ".join(parts) + searched


def total_text(total: Total | None) -> str:
    """`3.12x over start [3.07, 3.17], measured directly, 6 rounds`, or the same marked as chained."""
    if total is None:
        return "1.00x over start: nothing kept yet"
    e = total.estimate
    how = f"measured directly, {numbers.count(e.rounds, 'round')}" if total.direct else "not measured directly yet"
    if not total.direct and e.rounds:
        how += f", {numbers.count(e.rounds, 'confirm round')}"
    return f"{'' if total.direct or e.rounds else '~'}{numbers.speedup(e)} over start {numbers.interval(e)}, {how}"


def machine_line(machine: Machine) -> str:
    """`2 cores, gcc 12.2, walls`; the packager's remarks in the compiler's name are left out."""
    compiler = re.sub(r" \([^()]*\)", "", machine.compiler)
    parts = [numbers.count(machine.cores, "core"), compiler, machine.gpu, walls_text(machine.walls)]
    return ", ".join(line(p) for p in parts if p)


def walls_text(strength: str) -> str:
    return {"walls": "walls", "partial": "partial walls", "none": "no walls"}.get(strength, strength)


def budget_text(book: Book) -> str:
    """`7 of 40 experiments, 1m04s of 2.0 h`: spent and allowed."""
    spent = books.tally(book.experiments).tried
    most = str(book.task.budget.experiments or "") if book.task else line(books.setting(book.run, "experiments"))
    hours = f"{book.task.budget.hours or 0:g}" if book.task else line(books.setting(book.run, "hours"))
    tried = f"{spent:,} of {most} experiments" if most else numbers.count(spent, "experiment")
    took = numbers.duration(books.elapsed(book))
    return f"{tried}, {took} of {hours} h" if hours and hours != "0" else f"{tried}, {took}"


def status(book: Book, holder: str, columns: int = COLUMNS) -> list[str]:
    """Where the run stands. `holder` says who runs it (`pid 8123, started 22:41`), empty when nobody does."""
    run = book.run
    goal = books.goal_text(run, book.task)
    last = books.tried(book.experiments)[-1:]
    rows = [
        ("run", f"{line(run.id)}: {_state(run, holder)}; task {line(run.task)}, branch {line(run.branch)}"),
        ("champion", champion_text(book)),
        ("goal", goal or "none: as fast as the budget allows"),
        ("budget", budget_text(book)),
        ("tried", tally_line(books.tally(book.experiments))),
        *(("last", verdict_line(e, columns - 10, n_width=1)) for e in last),
        ("machine", machine_line(run.machine)),
        ("next", "keepfast log --follow   |   keepfast stop" if holder else next_step(book)),
    ]
    return [one for name, words in rows for one in row(name, words, columns, indent=10)]


def row(name: str, words: str, columns: int, indent: int) -> list[str]:
    """`name`, then `words` from column `indent` on, over as many lines as they take."""
    first, *rest = fold(words, columns - indent)
    return [f"{name:<{indent - 1}} {first}", *(" " * indent + r for r in rest)]


def others(runs: Sequence[str], columns: int = COLUMNS) -> list[str]:
    """One row naming the other runs of this repository; none when there are none."""
    if not runs:
        return []
    names = ", ".join(line(r) for r in runs[-8:])
    return row("others", f"{names}{' and earlier ones' if len(runs) > 8 else ''}   (keepfast status --run NAME)", columns, indent=10)


def idea_table(ideas: Sequence[Idea], columns: int = COLUMNS) -> list[str]:
    """The table of `keepfast idea list`: number, state, who had it, the idea, and why it is dead."""
    head = f"{'n':>3}  {'state':<6}  {'by':<6}  idea"
    return [head, *(one for idea in ideas for one in _idea(idea, columns))]


def _idea(idea: Idea, columns: int) -> list[str]:
    why = f" ({idea.why})" if idea.why else ""
    first, *rest = fold(line(idea.text + why), columns - 21)
    head = f"{idea.n:>3}  {line(idea.state):<6}  {clip(line(idea.author), 6):<6}  "
    return [head + first, *(" " * 21 + r for r in rest)]


def champion_text(book: Book) -> str:
    best = books.champion(book.experiments)
    if best is None:
        return "none: the start kernel has not been judged yet"
    if best.verdict.reason is Reason.START:
        return "the start kernel; nothing kept yet"
    return f"experiment {best.n}, {total_text(books.total(book.experiments, book.directs))}"


def next_step(book: Book) -> str:
    """What to type now that nobody runs it."""
    if book.run.state in ("running", "stopped", "interrupted", "budget"):
        return f"keepfast run {shell_word(book.run.task_folder)} --resume   |   keepfast report"
    return "keepfast report   |   keepfast finalize"


def shell_word(text: str) -> str:
    """`text` as one word of a shell command that can be typed."""
    import shlex

    return line(shlex.quote(text))


def _state(run: Run, holder: str) -> str:
    if holder:
        return f"running ({line(holder)})"
    return "interrupted, nobody runs it now" if run.state == "running" else STATES.get(run.state, line(run.state))


STATES = {
    "stopped": "stopped",
    "goal": "ended, goal met",
    "budget": "ended, budget spent",
    "deck-done": "ended, nothing left to propose",
    "interrupted": "interrupted",
}


def doubts(book: Book) -> str:
    """What the result does not prove: sizes beyond the cases, a frozen oracle, weak walls."""
    out = [_tested(book.task)] if book.task else []
    if book.task and book.task.oracle == "frozen":
        out.append("the oracle is the frozen start kernel: same as before, not proven right")
    if book.run.machine.walls in ("partial", "none"):
        out.append(f"judged with {walls_text(book.run.machine.walls)}")
    total = books.total(book.experiments, book.directs)
    if total and not total.direct:
        out.append("the total was not measured directly")
    if hand := [e for e in book.experiments if e.verdict.reason is Reason.CLEARED]:
        out.append(f"cleared by hand: {', '.join(f'experiment {e.n}' for e in hand[:4])}")
    return "; ".join(out)


def _tested(task: Task) -> str:
    largest = [f"{axis} = {max(c.axis(axis) for c in task.cases)}" for axis in task.axes if task.cases]
    beyond = f"; not tested beyond {', '.join(largest)}" if largest else ""
    return f"correct on {numbers.count(len(task.cases), 'case')}{beyond}"
