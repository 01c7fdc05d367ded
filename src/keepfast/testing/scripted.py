"""A proposer that reads from a script. Where it is follows from the history, as with every proposer, so a resumed run goes on."""

from __future__ import annotations

from msgspec.structs import replace

from keepfast.model import Proposal
from keepfast.propose.base import Brief, settled


class ScriptedProposer:
    """Proposes `script` in order; entry i has the source `script/i` and comes again when the machine spoilt its turn."""

    def __init__(self, script: tuple[Proposal, ...], name: str = "scripted") -> None:
        self.name = name
        self.script = tuple(replace(p, source=f"script/{i}", proposer=name) for i, p in enumerate(script))

    def propose(self, brief: Brief) -> Proposal | None:
        # From the newest experiment back: most of a long script has had its turn.
        last = next((e for e in reversed(brief.history) if e.source.startswith("script/")), None)
        if last is None:
            return self.script[0] if self.script else None
        at = int(last.source.removeprefix("script/"))
        done = settled(e for e in brief.history[-8:] if e.source == last.source)
        at += int(done)
        return self.script[at] if at < len(self.script) else None
