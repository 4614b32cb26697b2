"""The page in Chromium: the explorer says what the policy says, and nothing goes wrong."""

import math
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from conbo.gaussian_process import GaussianProcess
from conbo.models.exact import ExactPosterior
from conbo.plots.view import View, view_of
from conbo.reports.html import page
from conbo.spaces import Categorical, Integer, Real, Space
from conbo.study import Study
from learned_studies import STUDIES, Named, learned, mixed, one_state, view

PHONE = {"width": 390, "height": 844}
DESKTOP = {"width": 1280, "height": 900}
TOLERANCE = 1e-6  # of rewards, in their standard deviations
BETTER = 0.05  # by so much the page's search may find a better action than the policy's


def bent() -> Study:
    """The logarithms of 101 - purity and of count matter, which the space does not say: the model bends both."""
    space = Space(
        states={"load": Real(0, 1), "weather": Categorical(["sun", "rain"])},
        actions={"purity": Real(50, 100), "mode": Categorical(["fast", "slow", "off"]), "count": Integer(1, 40)},
    )

    def reward(state: Named, action: Named) -> float:
        load, suits = float(state["load"]), (action["mode"] == "fast") == (state["weather"] == "sun")
        purity = math.log((101 - float(action["purity"])) / 5) + load
        count = math.log(float(action["count"]) / 3) - load
        return suits - purity**2 - count**2

    return learned(space, reward, 60, model=GaussianProcess())


def bent_one_action() -> Study:
    space = Space(states={"load": Real(0, 1)}, actions={"power": Real(0, 1)})

    def reward(state: Named, action: Named) -> float:
        return float((math.log(float(action["power"]) + 0.01) + 1 + 3 * float(state["load"])) ** 2)

    return learned(space, reward, 30, direction="minimize", model=GaussianProcess())


BENT = {"bent": bent, "bent one action": bent_one_action}

# models and policies that reach the page in other ways
VARIANTS = {
    "smooth": lambda: one_state(model=GaussianProcess("squared-exponential")),
    "trend": lambda: mixed(model=GaussianProcess(states="trend")),
    "multi-task": lambda: mixed(model=GaussianProcess(states="multi-task")),
    "knn": lambda: one_state(method="knn"),
    **BENT,
}

Open = Callable[..., Page]


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Pages by the name of their study, each written once."""
    folder = tmp_path_factory.mktemp("pages")

    def write(kind: str) -> Path:
        path = folder / f"{kind}.html"
        if not path.exists():
            path.write_text(page(seen(kind)), encoding="utf-8")
        return path

    return write


@cache
def seen(kind: str) -> View:
    return view_of(VARIANTS[kind]()) if kind in VARIANTS else view(kind)


@pytest.fixture
def opened(browser: Browser, written: Callable[[str], Path]) -> Iterator[Open]:
    """Opens a page that must neither complain nor ask for anything."""
    trouble: list[str] = []
    contexts = []

    def open_page(kind: str, **options: object) -> Page:
        context = browser.new_context(**{"viewport": DESKTOP, **options})  # type: ignore[arg-type]
        contexts.append(context)
        opened = context.new_page()
        path = written(kind)
        opened.on("console", lambda message: trouble.append(f"{message.type}: {message.text}"))
        opened.on("pageerror", lambda error: trouble.append(str(error)))
        opened.on("request", lambda request: None if request.url == path.as_uri() else trouble.append(request.url))
        opened.goto(path.as_uri())
        opened.evaluate("Promise.all([explorer.ready, plotly]).then(() => null)")
        return opened

    yield open_page
    for context in contexts:
        context.close()
    assert not trouble


def see_all(charts: Locator) -> None:
    """Scrolls to each chart and waits until it is drawn (a faster reader may pass one before the browser noticed)."""
    for chart in charts.all():
        chart.scroll_into_view_if_needed()
        chart.locator(".main-svg").first.wait_for(state="attached")


@pytest.mark.parametrize("kind", [*STUDIES, "smooth", "trend", "multi-task", *BENT])
def test_the_explorer_is_the_policy(opened: Open, kind: str) -> None:
    look = seen(kind)
    unit = np.random.default_rng(0).random((20, look.space.n_state_dims))
    states = look.space.decode_states(look.space.snap_states(unit))
    answers = opened(kind).evaluate("states => states.map(explorer.recommend)", states)
    scale = look.belief.scale
    own = look.policy.predict_actions(states, [answer["action"] for answer in answers])
    for answer, same, best in zip(answers, own, look.policy.predict_many(states), strict=True):
        assert answer["mean"] == pytest.approx(same.mean, abs=TOLERANCE * scale)
        assert answer["std"] == pytest.approx(same.std, abs=TOLERANCE * scale)
        better = (answer["mean"] - best.mean) * look.sign / scale
        assert -TOLERANCE <= better <= BETTER


@pytest.mark.parametrize("kind", BENT)
def test_actions_are_really_bent(kind: str) -> None:
    posterior = seen(kind).belief.posterior
    assert isinstance(posterior, ExactPosterior)
    assert posterior.kernel.actions.warp is not None


@pytest.mark.parametrize("kind", ["one_state", *BENT])
def test_the_curve_is_the_models(opened: Open, kind: str) -> None:
    page, look = opened(kind), seen(kind)
    first, *others = look.space.action_names
    state = page.evaluate("explorer.state()")
    best = page.evaluate("explorer.recommend(explorer.state()).action")
    page.wait_for_function("() => document.querySelector('#explorer-chart').data?.[0].x.length")  # the band comes last
    band, curve, _ = page.evaluate("document.querySelector('#explorer-chart').data")
    actions = [{first: x, **{name: best[name] for name in others}} for x in curve["x"]]
    wanted = look.policy.predict_actions([state] * len(actions), actions)
    assert curve["y"] == pytest.approx([one.mean for one in wanted], abs=TOLERANCE * look.belief.scale)
    assert max(abs(np.diff(curve["y"]))) < 0.2 * np.ptp(curve["y"])  # cliffs have places enough
    upper, lower = np.array(band["y"]).reshape(2, -1)
    half = (upper - lower[::-1]) / 4
    # between some places it is interpolated where a solve is slow, but never at the ends
    assert half[[0, -1]] == pytest.approx([wanted[0].std, wanted[-1].std], abs=TOLERANCE * look.belief.scale)


def test_moving_a_slider_changes_the_recommendation(opened: Open) -> None:
    page = opened("one_state")
    slider = page.get_by_role("slider", name="demand")
    shown = []
    for place in (20, 100, 180):
        slider.fill(str(place))
        page.wait_for_function("() => new Promise(done => requestAnimationFrame(() => done(true)))")
        state = page.evaluate("explorer.state()")
        assert state["demand"] == pytest.approx(10 + 0.45 * place)
        prediction = view("one_state").policy.predict(state)
        action = page.locator("#explorer-action .value").inner_text()
        assert float(action) == pytest.approx(float(prediction.action["stock"]), rel=1e-3)
        mean, spread = page.locator("#explorer-reward").inner_text().split(" ± ")
        assert float(mean) == pytest.approx(prediction.mean, rel=1e-3)
        assert float(spread) == pytest.approx(2 * prediction.std, rel=0.05)
        shown.append(action)
        rows = page.locator("#explorer-nearest tbody tr").all_inner_texts()
        observed = sorted((abs(float(t.state["demand"]) - state["demand"]), t.number) for t in view("one_state").trials)
        assert int(rows[0].split("\t")[0]) in [number for _, number in observed[:5]]
    assert len(set(shown)) == 3


def test_numbers_and_choices_can_be_typed_and_selected(opened: Open) -> None:
    page = opened("mixed")
    page.get_by_role("spinbutton", name="load, as a number").fill("37")
    page.get_by_label("weather", exact=True).select_option("rain")
    page.get_by_role("spinbutton", name="dull, as a number").fill("2")
    assert page.evaluate("explorer.state()") == {"load": pytest.approx(37), "weather": "rain", "dull": 2}
    page.get_by_role("spinbutton", name="load, as a number").fill("-3")  # out of range: the last valid one stays
    assert page.evaluate("explorer.state().load") == pytest.approx(37)
    page.get_by_role("slider", name="dull").press("ArrowRight")
    assert page.evaluate("explorer.state().dull") == 3  # one key, one integer
    page.get_by_label("Expected reward along").select_option("mode")
    page.wait_for_function("() => document.querySelector('#explorer-chart').layout.xaxis.ticktext?.[0] === 'fast'")


def test_a_policy_that_is_not_the_models_travels_as_a_table(opened: Open) -> None:
    page = opened("knn")
    assert "this is the nearest" in page.locator("#explorer-note").inner_text()
    assert not page.locator("#explorer-curve").is_visible()
    answer = page.evaluate("explorer.recommend({demand: 50})")
    near = [seen("knn").policy({"demand": d})["stock"] for d in np.linspace(49.9, 50.1, 21).tolist()]
    assert any(answer["action"]["stock"] == pytest.approx(stock) for stock in near)


@pytest.mark.parametrize("kind", STUDIES)
def test_all_charts_are_drawn(opened: Open, kind: str) -> None:
    page = opened(kind)
    see_all(page.locator("[data-figure]:visible"))
    for chart in page.locator(".js-plotly-plot").all():
        assert chart.evaluate("c => c.querySelectorAll('.legend').length") == 0  # the page has its own


def test_a_selector_shows_the_plots_along_another_state(opened: Open) -> None:
    page = opened("mixed")
    select = page.get_by_label("Policy map along the state")
    names = select.locator("option").all_inner_texts()
    assert sorted(names) == ["dull", "load", "weather"]
    select.select_option("load")
    shown = page.locator("#policy_map > div:visible .chart")
    assert shown.count() == 4
    see_all(shown)
    assert shown.first.evaluate("c => c.layout.xaxis.title.text") == "state load"
    legend = page.locator("#policy_map-legend li")
    names = legend.locator("span:last-child").all_inner_texts()
    assert sorted(names) == ["best action of 80 % of drawn functions", "policy"]
    # numbers are drawn as lines, the choice of mode as dots: whichever chart came first, both are explained
    forms = legend.nth(names.index("policy")).locator(".sample").evaluate_all("all => all.map(one => one.className)")
    assert sorted(forms) == ["sample dot", "sample line"]


def test_the_table_is_sorted_and_paged(opened: Open) -> None:
    page = opened("mixed")
    rewards = sorted(t.reward for t in view("mixed").trials if t.reward is not None)
    see_all(page.locator("[data-figure]:visible"))  # nothing moves under the pointer any more
    head = page.get_by_role("columnheader", name="reward").last
    head.get_by_role("button").click()
    expect(head).to_have_attribute("aria-sort", "ascending")
    column = page.locator("#trial-table thead th").all_inner_texts().index("reward")
    first = page.locator("#trial-table tbody tr").first.locator("td")
    assert float(first.nth(column).inner_text()) == pytest.approx(rewards[0], rel=1e-3)
    head.get_by_role("button").click()
    assert float(first.nth(column).inner_text()) == pytest.approx(rewards[-1], rel=1e-3)
    assert page.locator("#trial-page").inner_text() == "1 to 20 of 60"
    page.get_by_role("button", name="After").click()
    page.get_by_role("button", name="After").click()
    assert page.locator("#trial-page").inner_text() == "41 to 60 of 60"
    assert page.get_by_role("button", name="After").is_disabled()
    assert "ValueError: no <b>convergence</b>" in page.locator("#trial-table tbody").inner_text()  # failures come last


@pytest.mark.parametrize("kind", ["mixed", "no_state"])
def test_a_phone_need_not_scroll_sideways(opened: Open, kind: str) -> None:
    page = opened(kind, viewport=PHONE, is_mobile=True, has_touch=True)
    see_all(page.locator("[data-figure]:visible"))
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    for chart in page.locator(".chart:visible").all():
        box = chart.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= PHONE["width"]


def test_dark_pages_are_dark(opened: Open) -> None:
    luminance = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).reduce((a, b) => a + +b, 0)"
    page = opened("one_state", color_scheme="dark")
    assert page.evaluate(luminance) < 150
    chart = "document.querySelector('#explorer-chart')"
    page.wait_for_function(f"() => {chart}.layout?.font.color === '#e7e9f3'")
    page.emulate_media(color_scheme="light")
    page.wait_for_function(f"() => {chart}.layout.font.color === '#22223b'")
    assert page.evaluate(luminance) > 600


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_accessibility(opened: Open, scheme: str, size: dict[str, int]) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    page = opened("mixed", color_scheme=scheme, viewport=size, bypass_csp=True)
    see_all(page.locator("[data-figure]:visible"))
    found = axe.Axe().run(page).response["violations"]
    assert [(v["id"], v["impact"], v["nodes"][0]["html"]) for v in found] == []
