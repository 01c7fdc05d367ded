"""What must hold beside speed: graphs on, the kernel engaged, outputs alike, memory kept.

Owns each rule and its constants. Must not know speed or outcomes. A check is ok, failed, or unshown: the engine gave no evidence.
Unshown refuses too, unless the task names it in `unshown`; CUDA graphs are no matter on a CPU.
"""

from __future__ import annotations

import math

from keepfast import stats
from keepfast.engine.base import STOCK, Account, Cell, Graphs, Likeness, Slot, runs
from keepfast.engine.laps import Times
from keepfast.engine.words import more, plural
from keepfast.model.proof import Check, Reason, Why

GRAPHS_LEAST = 0.95  # share of kernel time of a decode step inside graph nodes
GRAPHS_APART = 0.02  # by which the two arms may differ
KL_FACTOR = 3.0  # times the null's mean: 2 is what an implementation as exact as stock, with errors of its own, gives
KL_WORST_FACTOR = 5.0  # times the null's worst position: a maximum varies more
KL_FLOOR = 1e-5  # nats: about what rounding the logits once to bfloat16 does
KL_WORST_FLOOR = 1e-3
NULLS = ("stock again", "stock in float32")
TOP1_ALPHA = 0.01  # chance that top-1 agreement no worse than the null's is refused

Found = tuple[Check, tuple[Reason, ...]]


def all_of(account: Account, arm: str, unshown: tuple[str, ...], memory: float) -> tuple[Found, ...]:
    times = Times(account, arm)
    found = (_graphs(times), _engagement(times), _outputs(times), _memory(times, memory))
    return tuple(_excused(account, one, unshown) for one in found)


def on_cpu(account: Account) -> bool:
    return dict(account.settings).get("device", "").startswith("cpu")


def _excused(account: Account, found: Found, unshown: tuple[str, ...]) -> Found:
    """What is not shown is a reason to refuse, unless it is accepted."""
    check, reasons = found
    accepted = check.name in unshown or (check.name in ("graphs", "memory") and on_cpu(account))
    if check.state != "unshown" or accepted:
        return found
    said = f'{check.said}; unshown = ["{check.name}"] under [engine] would accept that, at a lower class of evidence'
    return check, (*reasons, Reason(Why.NOT_SHOWN, said))


# ------------------------------------------------------------------------------------------------ graphs


def _graphs(times: Times) -> Found:
    name, account = "graphs", times.account
    decode = [c for c in account.cells if c.phase not in ("prefill", "tail") and not c.phase.startswith("prefill ")]
    pairs = [(c.name, times.graph_share(c.name, STOCK), times.graph_share(c.name, times.arm)) for c in decode]
    if all(stock is None and kept is None for _, stock, kept in pairs):
        why = "not a GPU: graphs not shown" if on_cpu(account) else "graphs not shown: the engine gives no count of them"
        return Check(name, "unshown", why), ()
    reasons = tuple(r for pair in pairs if (r := _graph_reason(times.arm, *pair)) is not None)
    least = min((share for _, *both in pairs for share in both if share is not None), default=0.0)
    said = f"{100 * least:.1f} % of a step inside graphs at least, in both arms of {plural(len(pairs), 'cell')}"
    if reasons:
        return Check(name, "failed", reasons[0].said), reasons
    return Check(name, "ok", said), ()


def _graph_reason(arm: str, cell: str, stock: float | None, kept: float | None) -> Reason | None:
    if stock is None or kept is None:
        blind = STOCK if stock is None else arm
        return Reason(Why.GRAPHS_DIFFER, f"{cell}: graphs are shown in one arm only, not in `{blind}`")
    low = [(who, share) for who, share in ((STOCK, stock), (arm, kept)) if not share >= GRAPHS_LEAST]
    if low:
        words = ", ".join(f"{100 * share:.1f} % in `{who}`" for who, share in low)
        return Reason(Why.GRAPHS_OFF, f"{cell}: {words} ran inside CUDA graphs, at least {100 * GRAPHS_LEAST:.0f} % must")
    if abs(stock - kept) > GRAPHS_APART:
        return Reason(Why.GRAPHS_DIFFER, f"{cell}: {100 * stock:.1f} % inside graphs in `{STOCK}`, {100 * kept:.1f} % in `{arm}`")
    return None


# ------------------------------------------------------------------------------------------------ engagement


def _engagement(times: Times) -> Found:
    name, slots = "engagement", times.slots()
    seen = [(c, s) for c in times.account.cells for s in slots if _concerns(s, c) and times.graphs(c.name, times.arm) is not None]
    counted = [(c, s) for c, s in seen if _launches_known(times, c)]
    if not slots or not counted:
        return Check(name, "unshown", "engagement not shown: the engine names no launches"), ()
    reasons = tuple(r for c, s in counted if (r := _slot_reason(times, c, s)) is not None)
    if reasons:
        return Check(name, "failed", reasons[0].said), reasons
    first = {s.name: _count(times.graphs(c.name, times.arm), s) for c, s in reversed(counted)}
    said = ", ".join(f"{slot} {count}x a step" for slot, count in first.items())
    return Check(name, "ok", f"{said}, in all of {plural(len({c.name for c, _ in counted}), 'cell')}, never in stock"), ()


def _launches_known(times: Times, cell: Cell) -> bool:
    """An arm that lists nothing at all shows nothing; one that lists other kernels shows that ours is not among them."""
    both = (times.graphs(cell.name, STOCK), times.graphs(cell.name, times.arm))
    return any(g is not None and g.launches for g in both)


def _slot_reason(times: Times, cell: Cell, slot: Slot) -> Reason | None:
    kept, stock = times.graphs(cell.name, times.arm), times.graphs(cell.name, STOCK)
    names = " or ".join(slot.kernels)
    wanted = max(1, slot.expected)
    if count := _count(stock, slot):
        return Reason(Why.STOCK_PATCHED, f"{cell.name}: {names} ran {count}x a step in stock, where it must not be")
    count = _count(kept, slot)
    if not count:
        return Reason(Why.NOT_ENGAGED, f"{cell.name}: {names} ({slot.name}) never ran; {wanted} launches a step were expected")
    if count < wanted:
        return Reason(Why.PARTLY_ENGAGED, f"{cell.name}: {names} ({slot.name}) ran {count}x a step, {wanted} were expected")
    return None


def _count(graphs: Graphs | None, slot: Slot) -> int:
    """Launches of the slot's kernel that ran most often: a kernel made of two parts is not counted twice."""
    if graphs is None:
        return 0
    return max((sum(n for name, n in graphs.launches if runs(part, name)) for part in slot.kernels), default=0)


def _concerns(slot: Slot, cell: Cell) -> bool:
    phase = {"attention_decode": "prefill", "attention_prefill": "decode"}.get(slot.name)
    return cell.phase != "tail" and (phase is None or not cell.phase.startswith(phase))


# ------------------------------------------------------------------------------------------------ outputs


def _outputs(times: Times) -> Found:
    name, account = "outputs", times.account
    mine = [one for one in account.likeness if one.arm == times.arm and one.against == STOCK]
    if not mine:
        return Check(name, "unshown", "outputs not shown: the engine gives no logits"), ()
    found = [_alike(one, _null(account, one.cell)) for one in mine]
    reasons = tuple(r for _, reasons in found for r in reasons)
    if reasons:
        return Check(name, "failed", reasons[0].said), reasons
    if blind := _blind(times, {one.cell for one in mine}):
        return Check(name, "unshown", f"outputs not shown: {blind}"), ()
    worst = max(mine, key=lambda one: one.kl_mean)
    return Check(name, "ok", f"{found[mine.index(worst)][0]}; {plural(len(mine), 'cell')} compared"), ()


def _blind(times: Times, cells: set[str]) -> str:
    """Why likeness would not show a kernel that computes something else: a planted fault of one of the arm's slots stays within the bounds,
    or none was planted. "" when every fault would have been refused."""
    slots = {(s.name, s.task) for s in times.slots()} or {(one.slot, one.task) for one in times.account.planted}
    seen = [one for one in times.account.planted if (one.slot, one.task) in slots and one.alike.cell in cells]
    lacking = sorted(slot for slot, task in slots - {(one.slot, one.task) for one in seen})
    if lacking or not slots:
        return f"no fault was planted in {' or '.join(lacking) or 'a slot'}, so the logits may be blind to it"
    under = [(by, one) for one in seen if (by := _within(one.alike, _null(times.account, one.alike.cell))) >= 1]
    if not under:
        return ""
    by, one = max(under, key=lambda pair: pair[0])
    moved = f"a KL of {one.alike.kl_mean:.1e} nats, {by:.1f} times below" if math.isfinite(by) else "no KL at all, below"
    step = 'weights = "sensitive", or a checkpoint, would tell'
    return f"{one.alike.cell}: a planted fault, {one.slot} with {one.fault}, moves the logits by {moved} what would be refused; {step}"


def _within(one: Likeness, null: tuple[Likeness, ...]) -> float:
    """By what factor a planted fault stays within the bounds; 0 when it would have been refused."""
    if _alike(one, null)[1]:
        return 0.0
    mean, worst = _bounds(null)
    return max(1.0, min(mean / one.kl_mean if one.kl_mean else math.inf, worst / one.kl_worst if one.kl_worst else math.inf))


def _null(account: Account, cell: str) -> tuple[Likeness, ...]:
    """Stock against itself, once more and in float32: in this cell, or where it was made at all."""
    whole = tuple(one for one in account.likeness if STOCK in (one.arm, one.against) and {one.arm, one.against} & set(NULLS))
    return tuple(one for one in whole if one.cell == cell) or whole


def _alike(one: Likeness, null: tuple[Likeness, ...]) -> tuple[str, tuple[Reason, ...]]:
    base = max((n.kl_mean for n in null), default=0.0)
    mean_bound, worst_bound = _bounds(null)
    top_bound = _top1_bound(one, null)
    said = f"{one.cell}: KL {one.kl_mean:.1e} nats (null {base:.1e}), same best token {100 * one.top1:.1f} % of {one.tokens}"
    blind = "" if any("float32" in (n.arm + n.against) for n in null) else "; the null has no float32 run, so it knows no rounding"
    failed = [
        (one.kl_mean <= mean_bound, f"{said}; a KL of {mean_bound:.1e} is allowed{blind}"),
        (one.kl_worst <= worst_bound, f"{said}; the worst position has {one.kl_worst:.1e}, {worst_bound:.1e} is allowed{blind}"),
        (one.top1 >= top_bound, f"{said}; {100 * top_bound:.1f} % at least is asked for{blind}"),
    ]
    return said, tuple(Reason(Why.OUTPUTS_DIFFER, words) for holds, words in failed if not holds)[:1]


def _bounds(null: tuple[Likeness, ...]) -> tuple[float, float]:
    """KL that is allowed: mean, and of the worst position."""
    mean = max(KL_FACTOR * max((n.kl_mean for n in null), default=0.0), KL_FLOOR)
    return mean, max(KL_WORST_FACTOR * max((n.kl_worst for n in null), default=0.0), KL_WORST_FLOOR)


def _top1_bound(one: Likeness, null: tuple[Likeness, ...]) -> float:
    """The null's agreement less what chance explains: z SE of a difference of two shares, each with one success and one failure added."""
    low = min(null, key=lambda n: n.top1, default=None)
    top, tokens = (low.top1, low.tokens) if low is not None else (1.0, one.tokens)
    smoothed = (top * tokens + 1) / (tokens + 2)
    spread = math.sqrt(smoothed * (1 - smoothed) * (1 / max(1, tokens) + 1 / max(1, one.tokens)))
    return top - stats.normal_quantile(1 - TOP1_ALPHA) * spread


# ------------------------------------------------------------------------------------------------ memory


def _memory(times: Times, most: float) -> Found:
    name, peaks = "memory", dict(times.account.peak_bytes)
    stock, kept = peaks.get(STOCK, 0), peaks.get(times.arm, 0)
    if not stock or not kept:
        return Check(name, "unshown", "peak memory not shown"), ()
    said = f"peak {kept / 2**20:,.0f} MiB, stock {stock / 2**20:,.0f} MiB ({more(math.log(kept / stock))} %)"
    if kept > stock * (1 + most):
        return Check(name, "failed", said), (Reason(Why.MEMORY, f"{said}; {100 * most:.1f} % more is allowed"),)
    return Check(name, "ok", said), ()
