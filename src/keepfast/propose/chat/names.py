"""How a model behind an API is called on the command line, and all that can be set about it. Must not know HTTP or jobs.

chat:MODEL@BASE_URL        any OpenAI-compatible server, as in chat:qwen3-coder@http://127.0.0.1:8000/v1
chat:openrouter/MODEL      as in chat:openrouter/deepseek/deepseek-v4
chat:openai/MODEL
anthropic:MODEL            also anthropic:MODEL@BASE_URL
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from msgspec import Struct

from keepfast.errors import UsageError
from keepfast.propose.chat.anthropic import WRITE_SURCHARGE, Messages
from keepfast.propose.chat.talk import Dialect
from keepfast.propose.chat.wire import ChatCompletions

FORMS = "chat:MODEL@BASE_URL, chat:openrouter/MODEL, chat:openai/MODEL or anthropic:MODEL"
BASES = {"openrouter": "https://openrouter.ai/api/v1", "openai": "https://api.openai.com/v1", "anthropic": "https://api.anthropic.com"}
OUTPUT_TOKENS = 32_000
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class ChatOptions(Struct, frozen=True):
    """A model behind an API. `provider` names its key: see settings.api_key."""

    name: str  # as on the command line
    model: str
    url: str  # of the endpoint
    provider: str
    dialect: Dialect
    output_tokens: int | None = OUTPUT_TOKENS  # most of one answer, reasoning included; None: the server's own limit
    keyless: bool = False  # a server that may want no key
    corrections: int = 3  # answers whose errors are told to the model, in one turn
    retries: int = 5  # of one request, for what may pass
    first_wait_s: float = 2.0
    longest_wait_s: float = 60.0
    idle_seconds: float = 300.0
    stream_bytes: int = 32 * 1024 * 1024
    surcharge: float = 0.0  # of the price of input that is put into a cache


def is_chat(text: str) -> bool:
    """Whether a proposer's name is for this room."""
    return text.startswith(("chat:", "anthropic:"))


def named(text: str) -> ChatOptions:
    """The options that a name means. UsageError says what is wrong, without what may be a secret in it."""
    kind, _, rest = text.partition(":")
    model, at, base = rest.rpartition("@http")
    base = "http" + base if at else ""
    model = model if at else rest
    if kind not in ("chat", "anthropic") or not re.fullmatch(r"[!-~]+", model):
        raise _error(f"`{kind[:40]}:...` names no model")
    if kind == "anthropic":
        return _anthropic(text, model, base)
    company, _, inner = model.partition("/")
    if not base and company in ("openrouter", "openai") and inner:
        return _chat(text, inner, BASES[company])
    if not base:
        raise _error(f"`chat:{model[:80]}` does not say where the model is")
    return _chat(text, model, base)


def _chat(name: str, model: str, base: str) -> ChatOptions:
    url, provider = _url(base, "/chat/completions", "/v1"), _provider(base)
    hosted = provider in BASES
    field = "max_completion_tokens" if provider == "openai" else "max_tokens"
    dialect = ChatCompletions(limit_field=field, costs=provider == "openrouter")
    return ChatOptions(name, model, url, provider, dialect, OUTPUT_TOKENS if hosted else None, keyless=not hosted)


def _anthropic(name: str, model: str, base: str) -> ChatOptions:
    url = _url(base or BASES["anthropic"], "/v1/messages", "")
    provider = _provider(base) if base else "anthropic"
    return ChatOptions(name, model, url, provider, Messages(), keyless=provider not in BASES, surcharge=WRITE_SURCHARGE)


def _url(base: str, path: str, version: str) -> str:
    """The endpoint below a base address: `http://host:8000` means `/v1` below it."""
    try:
        parts = urlsplit(base)
        port = parts.port
    except ValueError:
        raise _error("the address is no URL") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or not re.fullmatch(r"[!-~]+", base):
        raise _error("the address must be http:// or https:// and a host")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise _error("the address must hold no user, password, query or fragment; keys come from the environment")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    folder = parts.path.rstrip("/").removesuffix(path).removesuffix("/v1" if path.startswith("/v1") else "") or version
    return f"{parts.scheme}://{host}{'' if port is None else f':{port}'}{folder}{path}"


def _provider(base: str) -> str:
    """Whose key may be sent there: a company's to its own address over https, else one that is named after the host."""
    parts = urlsplit(base)
    host = parts.hostname or ""
    for company, address in BASES.items():
        if parts.scheme == "https" and host == urlsplit(address).hostname:
            return company
    if host in _LOOPBACK:
        return "local"
    name = re.sub(r"[^a-z0-9]+", "_", host).strip("_")
    return f"{name}_host" if name in BASES or name == "local" else name


def _error(what: str) -> UsageError:
    return UsageError(what, where="--proposer", next_step=f"Write {FORMS}")
