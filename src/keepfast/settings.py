"""The one file that reads the environment. Every other module is handed what it needs.

Each function says which variable it reads and what it means when it is absent.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from keepfast.errors import UsageError


def cache_folder() -> Path:
    """Where compiled helpers are kept: XDG_CACHE_HOME, else ~/.cache (of a user without a home: nowhere); then `keepfast`."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    home = os.path.expanduser("~/.cache")
    return Path(next((folder for folder in (base, home) if folder.startswith("/")), "/nonexistent")) / "keepfast"


def crash_point() -> str:
    """KEEPFAST_CRASH, for tests: `NAME` or `NAME@N`, where the process kills itself; absent: nowhere. See docs/crash-points.md."""
    return os.environ.get("KEEPFAST_CRASH", "")


def visible_gpu() -> str:
    """CUDA_VISIBLE_DEVICES: the first card that it names, by index or UUID; absent or empty: keepfast chooses one that is free."""
    return os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip()


def reference_environment(threads: int) -> dict[str, str]:
    """The user's environment for the human's own Python, with NumPy's libraries held to `threads`."""
    return os.environ | {f"{name}_NUM_THREADS": str(threads) for name in ("OMP", "OPENBLAS", "MKL", "BLIS")}


def program_environment(first: str, *, eager: bool) -> dict[str, str]:
    """The user's environment for a program of hers, the folder `first` in front of PYTHONPATH. `eager`: torch.compile is off."""
    places = (first, os.environ.get("PYTHONPATH", ""))
    off = {"TORCHDYNAMO_DISABLE": "1", "TORCH_COMPILE_DISABLE": "1"} if eager else {}
    return os.environ | {"PYTHONPATH": os.pathsep.join(place for place in places if place)} | off


def engine_environment() -> dict[str, str]:
    """The user's environment for a serving benchmark of the user's own."""
    return dict(os.environ)


def git_environment() -> dict[str, str]:
    """The user's environment for git, less the GIT_ variables that would point it at another repository or index."""
    keep = ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_EXEC_PATH")
    calm = {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "GIT_NO_REPLACE_OBJECTS": "1"}
    return {k: v for k, v in os.environ.items() if not k.startswith("GIT_") or k in keep or k.startswith("GIT_CONFIG")} | calm


def api_key(provider: str) -> str:
    """The key for a model's provider, "" when there is none.

    KEEPFAST_KEY_<PROVIDER>; for openai, anthropic and openrouter also <PROVIDER>_API_KEY; then lines `NAME=value` of the same names in
    the file that KEEPFAST_SECRETS names. UsageError for a file that others may read, or a key that no header can hold; never with the key.
    """
    upper = "".join(c if c.isalnum() else "_" for c in provider).upper()
    names = [f"KEEPFAST_KEY_{upper}", *([f"{upper}_API_KEY"] if provider in ("openai", "anthropic", "openrouter") else [])]
    secrets = os.environ.get("KEEPFAST_SECRETS", "")
    places = [os.environ, *([_secrets(Path(secrets))] if secrets else [])]
    name, value = next(((n, place[n].strip()) for place in places for n in names if place.get(n, "").strip()), ("", ""))
    if not all("!" <= c <= "~" for c in value):
        raise UsageError("holds spaces or characters that are no key's", where=name, next_step="Copy the key again")
    return value


def key_names(provider: str) -> str:
    """Where a key for this provider is looked for, for a message."""
    upper = "".join(c if c.isalnum() else "_" for c in provider).upper()
    company = f"{upper}_API_KEY or " if provider in ("openai", "anthropic", "openrouter") else ""
    return f"{company}KEEPFAST_KEY_{upper}, in the environment or in the file that KEEPFAST_SECRETS names"


def _secrets(path: Path) -> dict[str, str]:
    try:
        mode, text = path.stat().st_mode, path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot be read: {type(error).__name__}", where="KEEPFAST_SECRETS", next_step="Name a text file") from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise UsageError("others may read the file of keys", where="KEEPFAST_SECRETS", next_step=f"chmod 600 {path}")
    lines = (line.strip().removeprefix("export ").partition("=") for line in text.splitlines() if not line.lstrip().startswith("#"))
    return {name.strip(): value.strip().strip("'\"") for name, equals, value in lines if equals}


def agents_path() -> str:
    """KEEPFAST_AGENTS_PATH, folders as in PATH, then PATH itself: where the command lines of coding agents are looked for."""
    places = (os.environ.get("KEEPFAST_AGENTS_PATH", ""), os.environ.get("PATH", ""))
    return os.pathsep.join(place for place in places if place)


def agents_file() -> Path | None:
    """KEEPFAST_AGENTS, the user's file of agents; absent: agents.toml in `keepfast` below XDG_CONFIG_HOME, else below ~/.config, where
    there is one.
    """
    if named := os.environ.get("KEEPFAST_AGENTS", ""):
        return Path(named)
    base, home = os.environ.get("XDG_CONFIG_HOME", ""), os.path.expanduser("~/.config")
    place = Path(next((folder for folder in (base, home) if folder.startswith("/")), "/nonexistent")) / "keepfast" / "agents.toml"
    return place if place.is_file() else None


CALM = ("LANG", "LC_ALL", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CUDA_HOME", "CUDA_PATH")
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


def agent_environment(names: tuple[str, ...] = ()) -> dict[str, str]:
    """What an agent's CLI sees of the environment: language, time zone, PATH (see `agents_path`), certificates, proxies, CUDA's place,
    and the variables `names`, which hold its keys; those are also looked for in the file that KEEPFAST_SECRETS names.
    Empty ones are absent.
    """
    secrets = os.environ.get("KEEPFAST_SECRETS", "")
    kept = _secrets(Path(secrets)) if secrets and names else {}
    wanted = (*CALM, *PROXIES, *(name.lower() for name in PROXIES), *names)
    found = {n: os.environ.get(n, "") or (kept.get(n, "") if n in names else "") for n in wanted}
    return {n: value for n, value in found.items() if value} | {"PATH": agents_path()}
