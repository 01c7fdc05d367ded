"""The ledger: runs, experiments, measurements, ideas, commands. The only package that opens the database."""

from __future__ import annotations

from keepfast.ledger.artifacts import Dropped
from keepfast.ledger.core import Ledger
from keepfast.ledger.lock import Holder
from keepfast.ledger.mail import Command, Stamped

__all__ = ["Command", "Dropped", "Holder", "Ledger", "Stamped"]
