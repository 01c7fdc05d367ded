"""Names of models on the command line, and where their keys come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from keepfast import settings
from keepfast.errors import UsageError
from keepfast.propose.chat import is_chat, named
from keepfast.propose.chat.anthropic import Messages
from keepfast.propose.chat.wire import ChatCompletions


@pytest.mark.parametrize(("text", "model", "url", "provider"), [
    ("chat:qwen/q3@http://127.0.0.1:8000", "qwen/q3", "http://127.0.0.1:8000/v1/chat/completions", "local"),
    ("chat:q@http://[::1]:8000/v1/", "q", "http://[::1]:8000/v1/chat/completions", "local"),
    ("chat:a@b@https://gpu-box.lan/x/v1", "a@b", "https://gpu-box.lan/x/v1/chat/completions", "gpu_box_lan"),
    ("chat:q@http://h/v1/chat/completions", "q", "http://h/v1/chat/completions", "h"),
    ("chat:openrouter/deepseek/v4", "deepseek/v4", "https://openrouter.ai/api/v1/chat/completions", "openrouter"),
    ("chat:openai/gpt-9", "gpt-9", "https://api.openai.com/v1/chat/completions", "openai"),
    ("chat:gpt-9@https://api.openai.com/v1", "gpt-9", "https://api.openai.com/v1/chat/completions", "openai"),
    ("anthropic:claude-x", "claude-x", "https://api.anthropic.com/v1/messages", "anthropic"),
    ("anthropic:claude-x@http://127.0.0.1:99", "claude-x", "http://127.0.0.1:99/v1/messages", "local"),
    ("anthropic:claude-x@http://127.0.0.1:99/v1", "claude-x", "http://127.0.0.1:99/v1/messages", "local"),
])  # fmt: skip
def test_a_name_says_model_address_and_whose_key(text: str, model: str, url: str, provider: str) -> None:
    found = named(text)
    assert (found.model, found.url, found.provider, found.name) == (model, url, provider, text)
    assert is_chat(text)
    assert isinstance(found.dialect, Messages if text.startswith("anthropic") else ChatCompletions)


@pytest.mark.parametrize(
    "host", ["http://openai", "http://api.openai.com", "https://api.openai.com.evil.net", "http://openrouter", "http://local"]
)
def test_a_companys_key_goes_to_its_own_address_only(host: str) -> None:
    assert named(f"chat:m@{host}/v1").provider not in ("openai", "openrouter", "anthropic", "local")


def test_what_differs_between_servers() -> None:
    assert named("chat:openai/gpt-9").dialect == ChatCompletions("max_completion_tokens")
    assert named("chat:openrouter/a/b").dialect == ChatCompletions(costs=True)
    local = named("chat:m@http://127.0.0.1:1")
    assert (local.keyless, local.output_tokens) == (True, None)
    assert not named("anthropic:m").keyless


@pytest.mark.parametrize("text", [
    "chat:", "chat:m", "chat:openrouter/", "chat:m@ftp://x", "chat:m@http://", "chat:m@http://user:secret@host/v1", "chat:m@http://h/v1?key=secret",
    "chat:m@http://h:99999/", "chat:m@http://h/ä", "anthropic:", "anthropic:a b", "chat:m@http://h#secret",
])  # fmt: skip
def test_what_is_no_name(text: str) -> None:
    with pytest.raises(UsageError) as raised:
        named(text)
    assert "Write chat:MODEL@BASE_URL" in str(raised.value)
    assert "secret" not in str(raised.value)


# --------------------------------------------------------------------------------------------- keys


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for provider in ("OPENAI", "ANTHROPIC", "OPENROUTER", "LOCAL", "GPU_BOX_LAN"):
        monkeypatch.delenv(f"{provider}_API_KEY", raising=False)
        monkeypatch.delenv(f"KEEPFAST_KEY_{provider}", raising=False)
    monkeypatch.delenv("KEEPFAST_SECRETS", raising=False)
    return monkeypatch


def secrets(folder: Path, text: str, mode: int = 0o600) -> str:
    path = folder / "keys"
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return str(path)


def test_no_key(bare: pytest.MonkeyPatch) -> None:
    assert settings.api_key("openai") == ""
    assert settings.key_names("openai").startswith("OPENAI_API_KEY or KEEPFAST_KEY_OPENAI,")
    assert settings.key_names("gpu_box_lan").startswith("KEEPFAST_KEY_GPU_BOX_LAN,")


def test_keys_of_the_environment(bare: pytest.MonkeyPatch) -> None:
    bare.setenv("OPENAI_API_KEY", " one\n")
    assert settings.api_key("openai") == "one"
    bare.setenv("KEEPFAST_KEY_OPENAI", "two")
    assert settings.api_key("openai") == "two"
    bare.setenv("GPU_BOX_LAN_API_KEY", "three")
    assert settings.api_key("gpu_box_lan") == ""
    bare.setenv("KEEPFAST_KEY_GPU_BOX_LAN", "four")
    assert settings.api_key("gpu_box_lan") == "four"


def test_keys_of_a_file(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bare.setenv("KEEPFAST_SECRETS", secrets(tmp_path, "# mine\nexport ANTHROPIC_API_KEY='a=b'\nKEEPFAST_KEY_LOCAL = c\nnonsense\n"))
    assert settings.api_key("anthropic") == "a=b"
    assert settings.api_key("local") == "c"
    bare.setenv("ANTHROPIC_API_KEY", "nearer")
    assert settings.api_key("anthropic") == "nearer"


def test_a_file_of_keys_must_be_closed_to_others(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bare.setenv("KEEPFAST_SECRETS", secrets(tmp_path, "OPENAI_API_KEY=sesame\n", 0o644))
    with pytest.raises(UsageError, match="chmod 600") as raised:
        settings.api_key("openai")
    assert "sesame" not in str(raised.value)
    bare.setenv("KEEPFAST_SECRETS", str(tmp_path / "none"))
    with pytest.raises(UsageError, match="FileNotFoundError"):
        settings.api_key("openai")


def test_a_key_that_no_header_can_hold(bare: pytest.MonkeyPatch) -> None:
    bare.setenv("OPENAI_API_KEY", "sesame open")
    with pytest.raises(UsageError, match="OPENAI_API_KEY: holds spaces") as raised:
        settings.api_key("openai")
    assert "sesame" not in str(raised.value)
