"""A process that has made calls may fork: the child has its own session and its own watch on deadlines."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.providers.test_faults_after_the_request_is_sent import script
from tests.providers.wire import CHUNKED_HEAD, PATIENCE, Peer, Server

CALL_AND_FORK = """
import os, sys
from aijobs.config import ProviderSettings
from aijobs.errors import ProviderError
from aijobs.providers.base import Request
from aijobs.providers.exchange import Exchange
from aijobs.providers.openai_chat import OpenAIChat

def ends_at_its_deadline():
    adapter = OpenAIChat(ProviderSettings(name="p", adapter="openai-chat", base_url=sys.argv[1]), None)
    try:
        adapter.call(Request(body={}, client_request_id="x", dedupe_key="0"), exchange=Exchange(0.2, lambda: None))
    except ProviderError as error:
        return error.failure.code == "aborted_deadline"

assert ends_at_its_deadline()
child = os.fork()
if child == 0:
    os._exit(0 if ends_at_its_deadline() else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) or not ends_at_its_deadline())
"""


def test_deadlines_hold_in_parent_and_child(serve: Callable[..., Server]) -> None:
    server = serve(script(CHUNKED_HEAD, then=Peer.hang))
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    subprocess.run([sys.executable, "-c", CALL_AND_FORK, server.url], env=environment, check=True, timeout=PATIENCE)
    assert server.posts == 3
