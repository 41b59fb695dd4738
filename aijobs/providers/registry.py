"""The adapters there are, and how the configured one is built."""

from __future__ import annotations

from collections.abc import Callable

from aijobs.config import ProviderSettings, Settings, provider_api_key
from aijobs.providers.anthropic import Anthropic
from aijobs.providers.base import Adapter
from aijobs.providers.http import Http
from aijobs.providers.openai_chat import OpenAIChat
from aijobs.providers.openai_responses import OpenAIResponses

_ADAPTERS: dict[str, Callable[[ProviderSettings, str | None], Adapter]] = {
    "openai-chat": OpenAIChat,
    "openai-responses": OpenAIResponses,
    "anthropic": Anthropic,
    "http": Http,
}


def build_adapter(settings: Settings, name: str) -> Adapter:
    """The adapter of a configured provider. Raises ConfigError when its key is missing or cannot be sent."""
    provider = settings.providers[name]
    return _ADAPTERS[provider.adapter](provider, provider_api_key(provider))
