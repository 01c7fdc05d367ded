"""Accounts made by hand: what a decode engine would hand over, with one thing changed at a time."""

from __future__ import annotations

from random import Random

from msgspec.structs import replace

from keepfast.engine.base import STOCK, Account, Cell, Graphs, Lap, Likeness, Planted, Slot

KEPT = "attention"
LAYERS = 16
CELLS = (Cell("decode", 1024, 1), Cell("decode", 8192, 8), Cell("decode", 32768, 4), Cell("decode", 131072, 1))
STEP = {"decode 1024 x 1": 4.0e-3, "decode 8192 x 8": 27.0e-3, "decode 32768 x 4": 48.0e-3, "decode 131072 x 1": 53.0e-3}
SLOT = Slot("attention_decode", KEPT, ("split_kv",), LAYERS)
OLD = "elementwise_kernel"


def account(
    ratio: float | dict[str, float] = 0.8, *, rounds: int = 6, noise: float = 0.001, share: float = 0.5, device: str = "cuda"
) -> Account:
    """`ratio`: time of the patched step over stock's, of all cells or by cell. `share`: of a stock step that the old kernel takes."""
    rng = Random(7)
    of = ratio if isinstance(ratio, dict) else dict.fromkeys(STEP, ratio)
    laps = tuple(
        Lap(c.name, arm, r, STEP[c.name] * (of[c.name] if arm == KEPT else 1.0) * (1 + rng.gauss(0, noise)), 20)
        for r in range(rounds)
        for c in CELLS
        for arm in (STOCK, KEPT)
    )
    return Account(
        engine="transformers",
        model="a model",
        machine="a card",
        versions=(("torch", "2.13"),),
        settings=(("device", device), ("dtype", "bfloat16")),
        arms=(STOCK, KEPT),
        cells=CELLS,
        slots=(SLOT,),
        laps=laps,
        graphs=tuple(g for c in CELLS for g in (stock_graphs(c, share), kept_graphs(c))),
        likeness=tuple(one for c in CELLS[:2] for one in alike(c)),
        peak_bytes=((STOCK, 40 << 30), (KEPT, 40 << 30)),
        planted=tuple(planted(c) for c in CELLS[:2]),
    )


def planted(cell: Cell, kl: float = 0.2, slot: Slot = SLOT, fault: str = "zeros") -> Planted:
    """What a damaged slot does to the logits; as alike as `kl` says."""
    return Planted(slot.name, slot.task, fault, Likeness(cell.name, slot.task, STOCK, kl, 4 * kl, 1.0, 256, 0.0))


def stock_graphs(cell: Cell, share: float = 0.5) -> Graphs:
    step = STEP[cell.name]
    return Graphs(cell.name, STOCK, 1.0, ((OLD, 2 * LAYERS), ("nvjet", 64)), ((OLD, share * step), ("nvjet", (1 - share) * step)))


def kept_graphs(cell: Cell) -> Graphs:
    launches = (("split_kv_decode", LAYERS), ("split_kv_combine", LAYERS // 2), ("nvjet", 64))
    return Graphs(cell.name, KEPT, 1.0, launches, (("split_kv_decode", 1e-3), ("nvjet", 0.5 * STEP[cell.name])))


def alike(cell: Cell, kl: float = 7e-4, top1: float = 0.97) -> tuple[Likeness, ...]:
    return (
        Likeness(cell.name, STOCK, "stock again", 0.0, 0.0, 1.0, 256),
        Likeness(cell.name, STOCK, "stock in float32", 6e-4, 5e-3, 0.97, 256),
        Likeness(cell.name, KEPT, STOCK, kl, 8 * kl, top1, 256),
    )


def with_graphs(made: Account, arm: str, **change: object) -> Account:
    return replace(made, graphs=tuple(replace(g, **change) if g.arm == arm else g for g in made.graphs))
