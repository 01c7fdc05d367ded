"""The hostile corpus, by its old name for the scripts here: keepfast.redteam.attacks."""

from __future__ import annotations

from keepfast.redteam.attacks import Attack, Places, corpus, files_of, kinds, places_of, wrong

__all__ = ["Attack", "Places", "corpus", "files_of", "kinds", "places_of", "wrong"]
