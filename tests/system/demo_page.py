"""The demonstration page as a person uses it."""

from __future__ import annotations

import re

from playwright.sync_api import BrowserContext, Page, expect

EXPECT_MS = 30_000
# Under a second for the whole answer, so that a test need not wait; slow enough to do something in the middle.
QUICK = "[[sim: tokens=8 delta_ms=50]]"
LONG = "[[sim: tokens=40 delta_ms=150]]"
ENDLESS = "[[sim: tokens=4000 delta_ms=100]]"


class DemoPage:
    """One tab on /demo."""

    def __init__(self, tab: Page) -> None:
        self.tab = tab
        self.status = tab.locator("#status")
        self.answer = tab.locator("#answer")
        self.absence = tab.locator("#absence")
        self.story = tab.locator("#story")
        self.recent = tab.locator("#recent a")
        self.note = tab.locator("#form-note")
        self.create = tab.get_by_role("button", name="Create the job")
        self.cancel = tab.get_by_role("button", name="Cancel the job")

    @classmethod
    def opened(cls, context: BrowserContext, url: str, fragment: str = "") -> DemoPage:
        tab = context.new_page()
        tab.goto(f"{url}/demo{fragment}")
        return cls(tab)

    def fill(self, prompt: str) -> None:
        self.tab.get_by_role("textbox", name="Prompt").fill(prompt)
        self.tab.get_by_label("at once").check()

    def ask(self, prompt: str) -> str:
        """Create a job and return its id."""
        self.fill(prompt)
        self.create.click()
        return self.job_id()

    def job_id(self) -> str:
        self.tab.wait_for_url(re.compile("#job="))
        return self.tab.url.split("#job=")[1]

    def wait_for_status(self, status: str) -> None:
        expect(self.status).to_have_text(status, timeout=EXPECT_MS)

    def wait_for_text(self, characters: int) -> str:
        """The answer as soon as it has so many characters."""
        self.tab.wait_for_function(
            "least => document.getElementById('answer').textContent.length >= least", arg=characters, timeout=EXPECT_MS
        )
        return self.answer.inner_text()

    def overflow(self) -> int:
        """How many pixels of the page one would have to scroll sideways for."""
        return int(self.tab.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))
