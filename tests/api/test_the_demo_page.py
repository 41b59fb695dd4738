"""The demonstration page is served where it was asked for, and there it loads nothing but itself."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import resources

import pytest

from aijobs.config import Settings
from aijobs.errors import ConfigError
from tests.api.client import Client


def test_it_is_not_there_unless_it_is_switched_on(client: Client) -> None:
    assert client.get("/demo").status_code == 404
    assert client.get("/demo/page.js").status_code == 404


def test_it_cannot_be_switched_on_where_keys_are_needed() -> None:
    with pytest.raises(ConfigError, match="AIJOBS_DEMO_PAGE"):
        Settings.from_env({"AIJOBS_DEMO_PAGE": "on"})
    assert Settings.from_env({"AIJOBS_DEMO_PAGE": "on", "AIJOBS_AUTH": "open"}).demo_page == "on"


def test_every_file_is_served_and_named_by_another(make_client: Callable[..., Client]) -> None:
    client = make_client(auth="open", demo_page="on")
    texts = [client.get("/demo").text]
    wanted = set(re.findall(r'(?:src|href)="(/demo/[^"]+)"', texts[0]))
    seen: set[str] = set()
    while wanted:
        address = wanted.pop()
        seen.add(address)
        answered = client.get(address)
        assert answered.status_code == 200, address
        wanted |= set(re.findall(r'from "(/demo/[^"]+)"', answered.text)) - seen
        texts.append(answered.text)
    shipped = {each.name for each in resources.files("aijobs.api.demo").iterdir() if each.is_file()}
    assert {address.removeprefix("/demo/") for address in seen} == {
        name for name in shipped if not name.endswith((".py", ".html"))
    }
    fetched = re.compile(r"""(?:src|href|from|import|url)\s*[=(]?\s*["']?(?:https?:)?//""")
    assert not [text for text in texts if fetched.search(text)]


def test_nothing_inline_and_nothing_from_elsewhere_is_allowed(make_client: Callable[..., Client]) -> None:
    answered = make_client(auth="open", demo_page="on").get("/demo")
    policy = answered.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "*" not in policy and ":" not in policy
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|<script(?![^>]*src=)", answered.text)
