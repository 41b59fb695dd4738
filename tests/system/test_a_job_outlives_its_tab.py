"""What the demonstration page shows is so: the job is neither the tab's nor the connection's."""

from __future__ import annotations

import time
from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import BrowserContext, Route, expect

from tests.system.demo_page import ENDLESS, EXPECT_MS, LONG, QUICK, DemoPage
from tests.system.dev import Dev, wait_for


def held_against_the_job(page: DemoPage, running_dev: Dev, job_id: str) -> None:
    """The page shows the job's result, and the provider was asked for it exactly once."""
    page.wait_for_status("succeeded")
    job = running_dev.job(job_id)
    expect(page.answer).to_have_text(job["result"]["text"], timeout=EXPECT_MS)
    assert len(running_dev.calls_of(job_id)) == 1


def test_an_answer_arrives_piece_by_piece(page: DemoPage, running_dev: Dev) -> None:
    job_id = page.ask(f"Piece by piece {LONG}")
    early = page.wait_for_text(10)
    page.wait_for_status("running")
    held_against_the_job(page, running_dev, job_id)
    text = page.answer.inner_text()
    assert text.startswith(early) and len(text) > 2 * len(early)
    expect(page.story).to_contain_text("pieces of the answer")
    expect(page.story).to_contain_text("Succeeded")
    expect(page.tab.locator("#stream")).to_contain_text("closed")


def test_a_reload_in_mid_answer_goes_on_where_it_was(page: DemoPage, running_dev: Dev) -> None:
    job_id = page.ask(f"Reload me {LONG}")
    early = page.wait_for_text(10)
    page.tab.reload()
    later = page.wait_for_text(len(early))
    assert later.startswith(early)
    expect(page.absence).to_contain_text("This tab was reloaded and away for")
    expect(page.absence).to_contain_text("the job went on")
    held_against_the_job(page, running_dev, job_id)


def test_a_closed_tab_stops_nothing_and_coming_back_shows_the_job(
    context: BrowserContext, page: DemoPage, running_dev: Dev
) -> None:
    job_id = page.ask(f"Close me {LONG}")
    early = page.wait_for_text(10)
    page.tab.close()
    wait_for(lambda: running_dev.job(job_id)["status"] == "succeeded", "success")
    back = DemoPage.opened(context, running_dev.url)
    assert back.job_id() == job_id
    expect(back.absence).to_contain_text("This tab was closed for")
    expect(back.absence).to_contain_text("came meanwhile")
    expect(back.story).to_contain_text("This tab was closed")
    held_against_the_job(back, running_dev, job_id)
    assert back.answer.inner_text().startswith(early)
    expect(back.recent.first).to_contain_text("Close me")


def test_another_browser_sees_the_job_by_its_address(
    open_context: Callable[..., BrowserContext], page: DemoPage, running_dev: Dev
) -> None:
    job_id = page.ask(f"Share me {LONG}")
    page.wait_for_text(10)
    other = DemoPage.opened(open_context(), running_dev.url, f"#job={job_id}")
    held_against_the_job(page, running_dev, job_id)
    held_against_the_job(other, running_dev, job_id)


def test_killed_web_processes_interrupt_the_text_and_not_the_job(
    page: DemoPage, running_dev: Dev, console_errors: list[str]
) -> None:
    streams: list[str] = []
    page.tab.on("request", lambda request: streams.append(request.url) if "/events?" in request.url else None)
    job_id = page.ask(f"Kill the web {LONG}")
    page.wait_for_text(10)
    running_dev.kill_web_processes()
    held_against_the_job(page, running_dev, job_id)
    (first, *later) = [int(parse_qs(urlsplit(url).query)["starting_after"][0]) for url in streams]
    assert first == 0 and later[-1] > 0, "what was seen is not asked for again"
    expect(page.story).to_contain_text("Succeeded")
    assert_no_event_is_missing(page)
    console_errors.clear()  # the browser writes one for each connection that broke


def test_a_server_that_is_full_is_asked_again_when_it_says(
    page: DemoPage, running_dev: Dev, console_errors: list[str]
) -> None:
    refused: list[float] = []

    def refuse_twice(route: Route) -> None:
        if len(refused) < 4:  # each time the page asks once more, to hear why
            refused.append(time.monotonic())
            route.fulfill(status=503, headers={"Retry-After": "2"}, body="{}")
        else:
            route.continue_()

    page.tab.route("**/events?*", refuse_twice)
    job_id = page.ask(f"Too many {QUICK}")
    expect(page.tab.locator("#stream")).to_contain_text("will come back")
    held_against_the_job(page, running_dev, job_id)
    expect(page.story).to_contain_text("Succeeded", timeout=EXPECT_MS)
    assert refused[2] - refused[0] >= 2.0
    assert_no_event_is_missing(page)
    assert all("503" in error for error in console_errors)
    console_errors.clear()


def test_a_tab_in_the_background_holds_no_connection(page: DemoPage, running_dev: Dev) -> None:
    job_id = page.ask(f"Look away {LONG}")
    page.wait_for_text(10)
    set_hidden(page, True)
    seen = page.answer.inner_text()
    wait_for(lambda: running_dev.job(job_id)["status"] == "succeeded", "success", lambda: page.tab.wait_for_timeout(50))
    assert page.answer.inner_text() == seen and page.status.inner_text() == "running"
    set_hidden(page, False)
    expect(page.absence).to_contain_text("This tab was in the background for")
    held_against_the_job(page, running_dev, job_id)
    assert_no_event_is_missing(page)


def set_hidden(page: DemoPage, hidden: bool) -> None:
    """As the browser does when another tab comes to the front, which a headless one does not."""
    page.tab.evaluate(
        """hidden => {
            Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
            document.dispatchEvent(new Event("visibilitychange"));
        }""",
        hidden,
    )


def assert_no_event_is_missing(page: DemoPage) -> None:
    """The story tells of each number once, from the first to the last."""
    expect(page.tab.locator("#stream")).to_contain_text("closed", timeout=EXPECT_MS)
    told: list[int] = []
    for seqs in page.story.locator(".seq").all_inner_texts():
        first, _, last = seqs.partition("\N{EN DASH}")
        told += range(int(first), int(last or first) + 1)
    assert told == list(range(1, len(told) + 1))
    assert page.tab.locator("#events").inner_text() == str(len(told))


def test_a_cancel_ends_the_job_and_the_call(page: DemoPage, running_dev: Dev) -> None:
    job_id = page.ask(f"Cancel me {ENDLESS}")
    page.wait_for_text(10)
    page.cancel.click()
    page.wait_for_status("cancelled")
    expect(page.cancel).to_be_hidden()
    assert running_dev.job(job_id)["status"] == "cancelled"
    wait_for(lambda: running_dev.calls_of(job_id)[0]["peer_closed_at"] is not None, "the end of the call")


def test_a_reload_before_the_answer_to_the_post_makes_no_second_job(page: DemoPage, running_dev: Dev) -> None:
    """The first POST is answered, but the page never gets to know."""
    posts: list[str] = []

    def swallow(route: Route) -> None:
        if route.request.method != "POST":
            route.fallback()
            return
        posts.append(route.request.headers["idempotency-key"])
        if len(posts) == 1:
            route.fetch()  # it reaches the server; the answer is kept from the page
        else:
            route.continue_()

    before = len(running_dev.jobs())
    page.tab.route("**/api/ai/jobs", swallow)
    page.fill(f"Only once {QUICK}")
    page.create.click()
    wait_for(lambda: len(running_dev.jobs()) == before + 1, "the job", lambda: page.tab.wait_for_timeout(50))
    page.tab.reload()
    job_id = page.job_id()
    held_against_the_job(page, running_dev, job_id)
    assert len(running_dev.jobs()) == before + 1
    assert len(posts) == 2 and posts[0] == posts[1]


def test_an_answer_that_breaks_off_starts_over(page: DemoPage, running_dev: Dev) -> None:
    job_id = page.ask("Break off [[sim: tokens=30 delta_ms=60 times=1 cut_after=15 marker=system-cut]]")
    page.wait_for_status("succeeded")
    job = running_dev.job(job_id)
    expect(page.answer).to_have_text(job["result"]["text"], timeout=EXPECT_MS)
    expect(page.story).to_contain_text("its answer starts over")
    expect(page.tab.locator("#attempts")).to_contain_text("2 (unknown, succeeded)")
    assert len(running_dev.calls_of(job_id)) == 2
