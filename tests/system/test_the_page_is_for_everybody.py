"""The demonstration page on a phone, without a mouse, in the dark, and by the rules of accessibility."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import BrowserContext, expect

from tests.system.demo_page import LONG, QUICK, DemoPage
from tests.system.dev import Dev

PHONE = {"width": 360, "height": 740}
# A word without a place to break it, as a person's input or a model's answer may have it.
UNBREAKABLE = "x" * 300


def test_nothing_has_to_be_scrolled_sideways_on_a_phone(
    open_context: Callable[..., BrowserContext], running_dev: Dev
) -> None:
    page = DemoPage.opened(open_context(viewport=PHONE, is_mobile=True, has_touch=True), running_dev.url)
    assert page.overflow() == 0
    page.ask(f"{UNBREAKABLE} {LONG}")
    page.wait_for_text(50)
    assert page.overflow() == 0
    expect(page.tab.locator("#job")).to_be_in_viewport()
    page.wait_for_status("succeeded")
    assert page.overflow() == 0


def test_the_whole_way_can_be_gone_by_keyboard(page: DemoPage, running_dev: Dev) -> None:
    keyboard = page.tab.keyboard
    reach(page, "prompt")
    keyboard.press("Control+A")
    keyboard.type(f"Typed {LONG}")
    reach(page, "pace-slow")
    keyboard.press("ArrowUp")  # the last of the three
    assert page.tab.get_by_label("at once").is_checked()
    reach(page, "create")
    keyboard.press("Enter")
    page.wait_for_text(10)
    assert focused(page) == "job", "after the creation the job is where one reads on"
    reach(page, "cancel")
    assert page.cancel.evaluate("node => getComputedStyle(node).outlineStyle") == "solid", "the focus is visible"
    keyboard.press("Enter")
    page.wait_for_status("cancelled")

    reach(page, "prompt")
    keyboard.type(f" again {QUICK}")
    keyboard.press("Control+Enter")
    page.wait_for_status("succeeded")
    before = page.tab.url
    reach(page, page.recent.nth(1))
    keyboard.press("Enter")
    page.wait_for_status("cancelled")
    assert page.tab.url != before


def reach(page: DemoPage, wanted: object) -> None:
    """Press Tab until the element (its id, or a locator) has the focus."""
    for _ in range(40):
        page.tab.keyboard.press("Tab")
        if focused(page) == wanted if isinstance(wanted, str) else wanted.evaluate("n => n === document.activeElement"):  # type: ignore[attr-defined]
            return
    raise AssertionError(f"Tab does not lead to {wanted}")


def focused(page: DemoPage) -> str:
    return str(page.tab.evaluate("document.activeElement.id"))


@pytest.mark.parametrize("color_scheme", ["light", "dark"])
def test_axe_finds_nothing(open_context: Callable[..., BrowserContext], running_dev: Dev, color_scheme: str) -> None:
    """Labels, roles, names, contrast (AA) and what else axe-core knows, before, in and after a job."""
    page = DemoPage.opened(open_context(color_scheme=color_scheme), running_dev.url)
    violations = axe(page)
    page.ask(f"Look closely {LONG}")
    page.wait_for_text(10)
    page.tab.reload()
    page.wait_for_text(10)
    violations += axe(page)
    page.wait_for_status("succeeded")
    violations += axe(page)
    assert violations == []


def axe(page: DemoPage) -> list[str]:
    found = Axe().run(page.tab).response["violations"]
    return [f"{each['id']}: {node['html']}" for each in found for node in each["nodes"]]


def test_what_happens_is_said_aloud_and_politely(page: DemoPage) -> None:
    page.ask(f"Say it {QUICK}")
    page.wait_for_status("succeeded")
    announcer = page.tab.get_by_role("status")
    expect(announcer).to_have_text("The job is succeeded.")
    assert announcer.get_attribute("aria-live") == "polite"


def test_those_who_want_no_motion_get_none(open_context: Callable[..., BrowserContext], running_dev: Dev) -> None:
    for motion, moving in (("reduce", "none"), ("no-preference", "blink")):
        page = DemoPage.opened(open_context(reduced_motion=motion), running_dev.url)
        page.ask(f"Hold still {LONG}")
        page.wait_for_text(10)
        style = "getComputedStyle(document.getElementById('answer'), '::after').animationName"
        assert page.tab.evaluate(style) == moving
