"""A model behind an API as an agent: OpenAI-compatible chat completions and Anthropic's messages.

Owns the conversation, the edit format, protocols, retries and what a turn costs. Must not know the judge, the ledger or git.
"""

from keepfast.propose.chat.agent import ChatAgent
from keepfast.propose.chat.names import ChatOptions, is_chat, named

__all__ = ["ChatAgent", "ChatOptions", "is_chat", "named"]
