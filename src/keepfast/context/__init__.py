"""What an agent should know and a model usually gets wrong: pages on cards, models and languages, and the chooser.

Owns the pages, their format and their order. Must not know tasks, ledgers, judges or agents.
"""

from __future__ import annotations

from keepfast.context.cards import Device
from keepfast.context.choose import TOKENS, Chosen, Need, answers, choose
from keepfast.context.pages import CHARACTERS, Sheet, read, tokens

__all__ = ["CHARACTERS", "TOKENS", "Chosen", "Device", "Need", "Sheet", "answers", "choose", "read", "tokens"]
