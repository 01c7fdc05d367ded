"""End-to-end proofs as text, and the share of keeps that survived one. Returns plain lines; knows the model and the ledger only."""

from __future__ import annotations

from collections.abc import Sequence

from keepfast.model import Estimate
from keepfast.model.proof import WHY, CellProof, Outcome, Proof, Together
from keepfast.report import numbers, text
from keepfast.report.escape import clip, line, pad

INDENT = 9
CHECKS = 12  # wide enough for the name of every check
CELL = 22


def survived(proofs: Sequence[tuple[int, Proof]]) -> str:
    """`2 of 3 micro keeps that were tried in an engine survived; 1 is a micro-win only, not shipped`; empty before any was."""
    if not proofs:
        return ""
    counts = {outcome: sum(p.outcome is outcome for _, p in proofs) for outcome in Outcome}
    micro, refused = counts[Outcome.MICRO], counts[Outcome.REFUSED]
    parts = [f"{counts[Outcome.PASSED]} of {numbers.count(len(proofs), 'micro keep')} tried in an engine survived"]
    parts += [f"{micro} {'is a micro-win' if micro == 1 else 'are micro-wins'} only, not shipped"] * bool(micro)
    parts += [f"{refused} refused"] * bool(refused)
    return "; ".join(parts)


def newest(proofs: Sequence[tuple[int, Proof]]) -> str:
    """One line on the newest proof, with its evidence class and weakest link; empty before there is one."""
    if not proofs:
        return ""
    n, proof = proofs[-1]
    gain = f", {numbers.speedup(proof.whole)} {numbers.interval(proof.whole)}" if proof.whole else ""
    worth = f"evidence: {line(proof.evidence)}; weakest link: {line(proof.weakest)}"
    return f"experiment {n} {proof.outcome.value} in {line(proof.engine)}{gain}; {worth}"


def lines(proof: Proof, columns: int = text.COLUMNS) -> list[str]:
    """One proof on one screen: outcome and why, the cells, what was checked, what it is worth."""
    first = proof.reasons[0] if proof.reasons else None
    head = f"{proof.outcome.value}: {WHY[first.why][1]}" if first else proof.outcome.value
    out = text.row("e2e", head, columns, INDENT)
    out += text.row("engine", _where(proof), columns, INDENT)
    out += ["", *table(proof, columns), ""]
    for check in proof.checks:
        out += text.row(check.name, f"{check.state}: {line(check.said)}", columns, CHECKS)
    for reason in proof.reasons if proof.outcome is not Outcome.PASSED else ():
        out += text.row("why", f"{reason.why.value}: {line(reason.said)}", columns, INDENT)
    for name, words in (("evidence", proof.evidence), ("weakest", proof.weakest), *(("look", flag) for flag in proof.flags)):
        out += text.row(name, line(words), columns, INDENT)
    for note in proof.notes:
        out += text.row("note", line(note), columns, INDENT)
    return out


def table(proof: Proof, columns: int = text.COLUMNS) -> list[str]:
    """Cells with stock's and the kernel's time, the speedup with its interval, Amdahl's, and shares inside graphs."""
    head = f"{pad('cell', CELL)} {'stock':>9} {'kept':>9}  {pad('speedup', 22)} {'predicted':>9}  graphs"
    rows = [_row(cell) for cell in proof.cells]
    whole = proof.whole
    end = [f"{pad('all cells', CELL)} {'':>9} {'':>9}  {_speed(whole)}, {numbers.count(whole.rounds, 'round')}"] if whole else []
    return [clip(one, columns) for one in (head, *rows, *end, *_opponents(proof))]


def _opponents(proof: Proof) -> list[str]:
    """Where stock was measured in other configurations: the best of each cell, and the kernel against it."""
    found = [(c, c.over_best, numbers.nanoseconds(1e9 * c.best_seconds)) for c in proof.cells if c.over_best is not None]
    rows = [f"{pad(clip(line(c.cell), CELL), CELL)} {took:>9} {'':>9}  {pad(_speed(over), 22)} {line(c.best)}" for c, over, took in found]
    return ["", f"{pad('without a kernel', CELL)} {'best':>9} {'':>9}  {pad('speedup over it', 22)} configuration", *rows] if rows else []


def together(found: Together, columns: int = text.COLUMNS) -> list[str]:
    """A campaign: one row an arm, interactions, the slowest link; then all together in full."""
    rows = [f"{pad(line(p.arm), 40)}  {pad(_speed(p.whole) if p.whole else 'not measured', 24)} {p.outcome.value}" for p in found.proofs]
    out = [clip(one, columns) for one in (f"{pad('arm', 40)}  {pad('speedup', 24)} outcome", *rows)]
    for one in found.interactions:
        out += text.row("together", f"{line(one.cell)}: {line(one.said)}", columns, INDENT)
    return [*out, *text.row("link", line(found.said), columns, INDENT), "", *lines(found.proofs[-1], columns)]


def _where(proof: Proof) -> str:
    settings = dict(proof.settings)
    versions = ", ".join(f"{name} {version}" for name, version in proof.versions)
    parts = [proof.engine, proof.model, settings.get("dtype", ""), settings.get("device", ""), proof.machine, versions]
    return line(", ".join(part for part in parts if part))


def _row(cell: CellProof) -> str:
    predicted = f"{numbers.ratio(cell.predicted.d):.2f}x" if cell.predicted else "-"
    stock, kept = (numbers.nanoseconds(1e9 * s) for s in (cell.stock_seconds, cell.kept_seconds))
    shares = " / ".join("-" if s is None else f"{100 * s:.0f} %" for s in cell.graphs)
    return f"{pad(clip(line(cell.cell), CELL), CELL)} {stock:>9} {kept:>9}  {pad(_speed(cell.estimate), 22)} {predicted:>9}  {shares}"


def _speed(estimate: Estimate) -> str:
    return f"{numbers.speedup(estimate)} {numbers.interval(estimate)}"
