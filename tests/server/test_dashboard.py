"""The dashboard in Chromium: alive, without losing the reader's place, and safe from what clients send."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from conbo.gaussian_process import GaussianProcess
from conbo.server.tokens import TokenFile
from conbo.study import Study
from running_server import SPACE, Running, Start, reward

pytestmark = pytest.mark.browser

expect.set_options(timeout=60_000)  # milliseconds

PHONE, DESKTOP = {"width": 390, "height": 844}, {"width": 1100, "height": 800}
HOSTILE = "<img src=x onerror='window.hacked = 1'>"
SIMPLE = GaussianProcess(main_effects="none", output_warping="none", members=1)


class Reader:
    """A browser whose pages must neither complain nor run what clients have sent."""

    def __init__(self, browser: Browser) -> None:
        self._context = browser.new_context(viewport=DESKTOP, bypass_csp=False)  # type: ignore[arg-type]
        self.trouble: list[str] = []
        self.page = self.new_page()

    def new_page(self) -> Page:
        page = self._context.new_page()
        page.on("console", lambda message: self.trouble.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.trouble.append(str(error)))
        page.set_default_timeout(60_000)
        return page

    def close(self) -> None:
        self._context.close()


@pytest.fixture
def reader(browser: Browser) -> Iterator[Reader]:
    made = Reader(browser)
    yield made
    made.close()
    assert made.trouble == []


def no_violations(page: Page) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    page.evaluate("0")
    found = axe.Axe().run(page).response["violations"]
    assert [(v["id"], v["impact"], v["nodes"][0]["html"]) for v in found] == []


def facts(page: Page, name: str) -> Any:
    return page.locator("#learned .facts div", has_text=name).locator("dd")


def test_a_study_from_its_first_trial_on(
    start: Start, reader: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("conbo.server.live.PAUSE_FACTOR", 0.0)
    storage = str(tmp_path / "studies.db")
    study = Study(SPACE, storage=storage, seed=1, model=SIMPLE, name="a / b & <i>c</i>")
    service, page = start(storage), reader.page
    page.goto(service.url)
    link = page.get_by_role("link", name="a / b & <i>c</i>")
    link.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#report-state")).to_have_text("Nothing learned yet: no trial is completed.")
    running = study.ask(lease=600)
    expect(page.locator("#live .pulse")).to_contain_text("1 running · 1 worker")
    study.fail(running, HOSTILE)
    points = [({"demand": 20 * i}, {"stock": 60}) for i in range(1, 5)]
    rows = [{**state, **action, "reward": reward(state, action), f"outcome:{HOSTILE}": 1.0} for state, action in points]
    study.add_trials(rows)
    expect(facts(page, "evaluations")).to_have_text("4")  # the page was loaded again, by itself
    page.wait_for_load_state()  # at its end, the browser may scroll to where the page was before

    # a reader settles down, by keyboard: charts that are drawn meanwhile may move what a mouse points at
    page.get_by_role("slider", name="demand").fill("150")
    page.locator("#model summary").press("Enter")
    expect(page.locator("#model")).to_have_attribute("open", "")
    for order in ("ascending", "descending"):
        page.get_by_role("button", name="reward").press("Enter")
        expect(page.locator(f"#trial-table [aria-sort={order}]")).to_contain_text("reward")
    page.locator("#all-trials").scroll_into_view_if_needed()
    place = page.evaluate("scrollY")
    mark = page.evaluate("window.mark = Math.random()")
    study.tell(study.ask(), -1.0, outcomes={HOSTILE: 2.0})
    expect(facts(page, "evaluations")).to_have_text("5")
    assert page.evaluate("window.mark") == mark  # the same page
    assert page.evaluate("explorer.state().demand") == pytest.approx(77.5)
    assert page.locator("#model").get_attribute("open") is not None
    assert page.locator("#trial-table [aria-sort=descending]").inner_text().startswith("reward")
    assert page.locator("#trial-table tbody tr").count() == 6
    assert abs(page.evaluate("scrollY") - place) < 60
    wanted = study.policy().predict({"demand": 77.5})
    shown = page.evaluate("explorer.recommend(explorer.state())")
    assert shown["mean"] == pytest.approx(wanted.mean, rel=1e-4)

    assert page.evaluate("window.hacked") is None
    for width, scheme in ((390, "dark"), (1600, "light")):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        page.set_viewport_size({"width": width, "height": 844})
        page.wait_for_function("width => document.documentElement.scrollWidth <= width", arg=width)

    earlier = "{at: Date.now() - 7200000, evaluations: 2, value: '1.5 ± 2'}"
    page.goto(service.url)
    page.evaluate(f"localStorage.setItem('conbo: a / b & <i>c</i>', JSON.stringify({earlier}))")
    page.go_back()
    expect(page.locator("#since")).to_contain_text(
        "Since your last visit, 2 h ago: 3 more evaluations; the policy value"
    )


def late(route: Route) -> None:
    """Loads a script after the first events came."""
    time.sleep(1)
    route.continue_()


def test_signing_in_by_keyboard(start: Start, reader: Reader, tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path / "tokens.json")
    secret = tokens.add("read")
    service, page = start(tokens=tokens), reader.page
    page.goto(f"{service.url}/studies/default")
    page.keyboard.type("wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_have_text("the token is unknown, has expired or was revoked.")
    page.route("**/assets/waiting.js", late)
    page.get_by_label("Token").fill(secret)
    page.keyboard.press("Enter")
    expect(page.locator("#report-state")).to_have_text("Nothing learned yet: no trial is completed.")
    assert page.evaluate("document.cookie") == ""
    assert secret not in page.url
    page.get_by_role("link", name="All studies").click()
    expect(page.get_by_role("link", name="default")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Token")).to_be_visible()
    # the browser itself names the three answers without a valid token
    reader.trouble[:] = [line for line in reader.trouble if "401 (Unauthorized)" not in line]


def test_pages_are_accessible_and_fit_a_phone(browser: Browser, start: Start, tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path / "tokens.json")
    secret = tokens.add("run")
    service = start(tokens=tokens)
    service.post("/v1/studies/default/ask", {"worker": HOSTILE}, token=secret)
    context = browser.new_context(viewport=PHONE, color_scheme="dark", bypass_csp=True)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(service.url)
    no_violations(page)
    page.get_by_label("Token").fill(secret)
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name="default")).to_be_visible()
    no_violations(page)
    page.goto(f"{service.url}/studies/default")
    page.locator("#running summary").click()
    expect(page.locator("#running tbody tr")).to_contain_text(HOSTILE)
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        no_violations(page)
    assert page.evaluate("window.hacked") is None
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    context.close()


def test_a_stream_ends_when_its_token_is_revoked(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import http.client

    monkeypatch.setattr("conbo.server.live.POLL_SECONDS", 0.01)
    tokens = TokenFile(tmp_path / "tokens.json")
    secret = tokens.add("read")
    service: Running = start(tokens=tokens)
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=30)
    connection.request("GET", "/v1/studies/default/events", headers={"authorization": f"Bearer {secret}"})
    response = connection.getresponse()
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.readline() == b"event: progress\n"
    time.sleep(0.05)
    tokens.revoke(secret.split("_")[1])
    assert response.read() is not None  # to the end, which comes
    connection.close()
    assert service.get("/v1/studies/default/events", token=secret).status == 401
