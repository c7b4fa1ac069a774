"""The console in a real Chromium: live parts, keys, the theme, a phone, and the pictures of
docs/operation/console.md, which KSTORE_SCREENSHOTS=yes takes again.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect

from kstore.clients import AdminClient, Consumer, NewTopic, Producer, TopicPartition
from kstore.testing import Cluster
from tests.console.chromium import chromium

PATIENCE_MS = 90_000
pytestmark = pytest.mark.slow
expect.set_options(timeout=PATIENCE_MS)

DOCS = Path(__file__).parents[2] / "docs" / "operation" / "console"
WIDE, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
MAX_PICTURE_BYTES = 150_000
PAGES = (
    "/", "/ui/topics", "/ui/topics/orders", "/ui/topics/orders/records",
    "/ui/topics/orders/produce", "/ui/topics/orders/history", "/ui/configs/topic/orders",
    "/ui/groups", "/ui/groups/billing",
    "/ui/groups/billing/reset?way=earliest", "/ui/transactions", "/ui/acls", "/ui/users",
    "/ui/configs", "/ui/configs/broker/1?edit=log.retention.ms", "/ui/quotas", "/ui/history",
)  # fmt: skip


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two brokers with topics, records, and a group that lags."""
    with Cluster(tmp_path_factory.mktemp("browser"), 2) as running:
        with AdminClient(running.bootstrap_servers) as admin:
            admin.create_topics([
                NewTopic("orders", 3, 2), NewTopic("payments", 2, 2), NewTopic("live", 1, 1)
            ])  # fmt: skip
        _orders(running, 300)
        _read(running)
        yield running


def _orders(cluster: Cluster, count: int) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(count):
            row = {"order": number, "amount": number * 37 % 500, "items": ["A-7", "B-3"]}
            producer.send("orders", json.dumps(row).encode(), b"customer-%d" % (number % 7))


def _read(cluster: Cluster) -> None:
    with Consumer(
        "orders", bootstrap_servers=cluster.bootstrap_servers, group_id="billing",
        auto_offset_reset="earliest", enable_auto_commit=False,
    ) as consumer:  # fmt: skip
        while not consumer.poll(1000):
            pass
        consumer.commit({TopicPartition("orders", index): 20 for index in range(3)})


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One Chromium for this file."""
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def url(cluster: Cluster) -> str:
    """The console, at the second broker."""
    return cluster.http_urls[2]


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens pages; fails for what a page logs, for an error, and for a request to elsewhere."""
    problems: list[str] = []
    opened: list[Page] = []

    def logged(message: ConsoleMessage) -> None:
        problems.append(f"{message.type}: {message.text}")

    def open_one(url: str, theme: str = "light", size: dict[str, int] = WIDE) -> Page:
        page = browser.new_page(viewport=size, color_scheme=theme)  # type: ignore[arg-type]
        own = re.match(r"https?://[^/]+", url)
        assert own is not None

        def asked(request: Request) -> None:
            if not request.url.startswith((own[0], "data:")):
                problems.append(f"asks {request.url}")

        page.set_default_timeout(PATIENCE_MS)
        page.on("console", logged)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", asked)
        page.goto(url)
        opened.append(page)
        return page

    yield open_one
    for page in opened:
        page.close()
    assert problems == []


def test_no_page_is_wider_than_a_phone_or_logs_a_problem(
    open_page: Callable[..., Page], url: str
) -> None:
    page = open_page(f"{url}/", "dark", PHONE)
    for path in PAGES:
        answer = page.goto(url + path)
        assert answer is not None
        assert answer.status == 200, path
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], path
        unnamed = page.evaluate(
            "[...document.querySelectorAll('input:not([type=hidden]), select, textarea')]"
            ".filter(e => !e.labels.length && !e.ariaLabel).length"
        )
        assert unnamed == 0, f"{path}: a field without a label"


def test_plots_and_tables_are_refreshed_by_themselves(
    open_page: Callable[..., Page], url: str, cluster: Cluster
) -> None:
    page = open_page(f"{url}/ui/topics/orders")
    page.wait_for_selector("#plots svg polyline", state="attached")
    before = page.inner_text("#partitions")
    _orders(cluster, 30)
    page.wait_for_function(
        "before => document.getElementById('partitions').innerText !== before", arg=before
    )
    expect(page.locator("#plots svg").first).to_have_attribute("aria-label", re.compile("records"))


def test_new_records_appear_in_the_live_tail(
    open_page: Callable[..., Page], url: str, cluster: Cluster
) -> None:
    page = open_page(f"{url}/ui/topics/live/records")
    page.click("#tail")
    expect(page.locator("#tail-state")).to_contain_text("live")
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send("live", b"<b>hello</b>", b"k")
    row = page.locator("#rows tr.fresh")
    expect(row).to_contain_text("<b>hello</b>")
    page.click("#tail")
    expect(page.locator("#tail-state")).to_contain_text("stopped")


def test_keys_lead_everywhere_and_the_theme_is_kept(
    open_page: Callable[..., Page], url: str
) -> None:
    page = open_page(f"{url}/")
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    page.keyboard.press("g")
    page.keyboard.press("t")
    page.wait_for_url("**/ui/topics")
    page.keyboard.press("/")
    expect(page.locator("[data-search]")).to_be_focused()
    page.keyboard.type("orders")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=orders*")
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.keyboard.press("d")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert light != dark
    page.goto(f"{url}/ui/groups")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#keys")).to_be_hidden()


def test_forms_work_from_the_first_field_to_the_notice(
    open_page: Callable[..., Page], url: str
) -> None:
    page = open_page(f"{url}/ui/topics")
    page.click("#create summary")
    page.get_by_label("Name", exact=True).last.fill("by-hand")
    page.get_by_label("Partitions", exact=True).fill("2")
    page.click("#create button")
    expect(page.get_by_role("status").first).to_contain_text("Topic by-hand was created")
    page.click("text=Produce a record")
    page.get_by_label("Key", exact=True).fill("k-1")
    page.get_by_label("Value", exact=True).fill("written by hand")
    page.get_by_role("button", name="Produce").click()
    expect(page.get_by_role("status").first).to_contain_text("The record was written to by-hand")
    expect(page.locator("#rows")).to_contain_text("written by hand")
    page.goto(f"{url}/ui/groups/billing/reset")
    page.get_by_label("Move").select_option("offset")
    page.get_by_label("Value").fill("10")
    page.click("text=Dry run")
    expect(page.locator("#moves tbody tr")).to_have_count(3)
    page.get_by_role("button", name="Reset 3 offsets").click()
    expect(page.get_by_role("status").first).to_contain_text("3 offsets of billing were reset")


def test_no_frame_of_another_page_shows_it(open_page: Callable[..., Page], browser: Browser,
                                           url: str) -> None:  # fmt: skip
    page = browser.new_page()
    page.set_content(f'<iframe src="{url}/" width="800" height="600"></iframe>')
    frame = page.frames[-1]
    frame.wait_for_load_state()
    assert "Brokers" not in frame.content()
    page.close()


@pytest.mark.skipif(
    os.environ.get("KSTORE_SCREENSHOTS") != "yes", reason="KSTORE_SCREENSHOTS=yes makes pictures"
)
def test_the_pictures_of_the_documentation(
    open_page: Callable[..., Page], url: str, cluster: Cluster
) -> None:
    DOCS.mkdir(parents=True, exist_ok=True)
    stop = threading.Event()

    def load() -> None:
        number = 0
        while not stop.wait(0.5):
            number += 1
            _orders(cluster, 40 + 30 * (number % 5))

    def read() -> None:
        with Consumer(
            "orders", bootstrap_servers=cluster.bootstrap_servers, group_id="billing",
            client_id="billing-7", auto_offset_reset="earliest", auto_commit_interval_ms=2000,
        ) as consumer:  # fmt: skip
            while not stop.wait(0.9):
                consumer.poll(0, max_records=130)

    loading, reading = threading.Thread(target=load), threading.Thread(target=read)
    loading.start()
    try:
        reading.start()
        open_page(f"{url}/").wait_for_timeout(75_000)
        for name, path, theme, size in (
            ("brokers", "/", "light", WIDE),
            ("topic", "/ui/topics/orders", "light", WIDE),
            ("records", "/ui/topics/orders/records?count=12", "dark", WIDE),
            ("group", "/ui/groups/billing", "light", WIDE),
            ("reset", "/ui/groups/billing/reset?way=earliest", "light", WIDE),
            ("configs", "/ui/configs/topic/orders?q=retention&edit=retention.ms", "dark", WIDE),
            ("phone", "/ui/topics/orders", "dark", PHONE),
        ):
            picture = DOCS / f"{name}.png"
            page = open_page(url + path, theme, size)
            height = page.evaluate("document.querySelector('main').lastElementChild"
                                   ".getBoundingClientRect().bottom + 24")  # fmt: skip
            clip = {"x": 0, "y": 0, "width": size["width"], "height": height}
            page.screenshot(path=picture, full_page=True, clip=clip)  # type: ignore[arg-type]
            assert picture.stat().st_size < MAX_PICTURE_BYTES
    finally:
        stop.set()
        loading.join()
        reading.join()
