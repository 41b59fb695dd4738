"""What the system's packages are for: a real browser on `aijobs dev`."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.system.demo_page import DemoPage
from tests.system.dev import Dev, dev

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
# Without these it talks to its maker's hosts, and as root it does not start.
CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def running_dev() -> Iterator[Dev]:
    folder = Path(tempfile.mkdtemp(prefix="aijobs-system-"))
    # Under root PostgreSQL runs as another user, who must get through to its data.
    folder.chmod(0o711)
    try:
        with dev(folder) as running:
            yield running
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no chromium on PATH (Debian: chromium)")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_FLAGS)
        yield launched
        launched.close()


@pytest.fixture
def console_errors() -> Iterator[list[str]]:
    """What pages write to the console as an error. A test fails if one is left in the list at its end."""
    errors: list[str] = []
    yield errors
    assert errors == []


@pytest.fixture
def open_context(browser: Browser, console_errors: list[str]) -> Iterator[Callable[..., BrowserContext]]:
    """Make browsers with an empty memory."""
    contexts: list[BrowserContext] = []

    def watch(page: Page) -> None:
        page.on("console", lambda message: console_errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: console_errors.append(str(error)))

    def make(**options: object) -> BrowserContext:
        context = browser.new_context(**options)  # type: ignore[arg-type]
        context.set_default_timeout(20_000)
        context.on("page", watch)
        contexts.append(context)
        return context

    yield make
    for context in contexts:
        context.close()


@pytest.fixture
def context(open_context: Callable[..., BrowserContext]) -> BrowserContext:
    return open_context()


@pytest.fixture
def page(context: BrowserContext, running_dev: Dev) -> DemoPage:
    return DemoPage.opened(context, running_dev.url)
