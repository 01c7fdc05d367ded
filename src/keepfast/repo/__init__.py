"""Git: finding the repository, reading files from commits, storing candidates, the branch of keeps. The only package that runs git."""

from __future__ import annotations

from keepfast.repo.core import Repo
from keepfast.repo.patch import apply
from keepfast.repo.stream import Change, Keep

__all__ = ["Change", "Keep", "Repo", "apply"]
