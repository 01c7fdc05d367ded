"""Fixtures of the kit, for every file of this folder."""

from tests.capture.kit import arena, fake_library, fresh, gpu

__all__ = ["arena", "fake_library", "fresh", "gpu"]
