"""A real browser for the tests that need one: the distribution's Chromium, driven by Playwright."""

import os
import shutil

import pytest

_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def browser():
    """Headless Chromium; without one the tests are skipped, unless GLOCAL_REQUIRE_BROWSER is set."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        if os.environ.get("GLOCAL_REQUIRE_BROWSER"):
            pytest.fail("GLOCAL_REQUIRE_BROWSER is set, but there is no chromium")
        pytest.skip("no chromium on this machine")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=_ARGUMENTS)
        yield running
        running.close()


@pytest.fixture
def open_page(browser):
    """Open a file in a fresh page; whatever it says on the console, throws or asks from the network fails the test."""
    complaints: list[str] = []
    contexts = []

    def go(path, **options):
        context = browser.new_context(offline=True, viewport={"width": 1280, "height": 900} | options.pop("viewport", {}), **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        page.on(
            "request",
            lambda request: complaints.append(f"request: {request.url}") if not request.url.startswith(("file:", "data:")) else None,
        )
        page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
        page.goto(path.absolute().as_uri())
        if options.get("java_script_enabled", True):
            page.wait_for_selector("[data-ready=true]", state="attached", timeout=20_000)
        return page

    yield go
    for context in contexts:
        context.close()
    assert complaints == []
