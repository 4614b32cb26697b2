"""The page in Chromium: the explorer says what the policy says, and nothing goes wrong."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from playwright.sync_api import Browser, Locator, Page, ViewportSize, expect

from conbo.gaussian_process import GaussianProcess
from conbo.models.exact import ExactPosterior
from conbo.models.mixture import Mixture
from conbo.models.relative import RelativePosterior
from conbo.plots.view import View, view_of
from conbo.policies.policy import Policy
from conbo.reports.html import page
from conbo.rounding import with_margin
from conbo.spaces import Categorical, Integer, Real, Space
from conbo.study import Study
from learned_studies import STUDIES, Named, learned, one_state, view

pytestmark = pytest.mark.browser

PHONE: ViewportSize = {"width": 390, "height": 844}
DESKTOP: ViewportSize = {"width": 1280, "height": 900}
TOLERANCE = 1e-6  # of rewards, in their standard deviations
BETTER = 0.05  # by so much the page's search may find a better action than the policy's


ONE_MODEL = GaussianProcess(relative_actions="none", main_effects="none", output_warping="none", members=1)


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

    return learned(space, reward, 60, model=ONE_MODEL)


def bent_one_action() -> Study:
    space = Space(states={"load": Real(0, 1)}, actions={"power": Real(0, 1)})

    def reward(state: Named, action: Named) -> float:
        return float((math.log(float(action["power"]) + 0.01) + 1 + 3 * float(state["load"])) ** 2)

    return learned(space, reward, 30, direction="minimize", model=ONE_MODEL)


BENT = {"bent": bent, "bent one action": bent_one_action}


def long_names() -> Study:
    suppliers = Categorical(
        ["Gebrüder Oberhuber Nachfolger GmbH & Co. KG, Salzburg", "Acme", "Consolidated", "Supercalif"]
    )
    space = Space(
        states={"demand": Real(10, 100)}, actions={"stock": Real(0, 150), "supplier": suppliers, "price": Real(2, 12)}
    )
    return learned(space, lambda s, x: float(s["demand"]) * float(x["price"]) - float(x["stock"]), 12)


# models and policies that reach the page in other ways
VARIANTS = {
    "relative actions": lambda: one_state(model=GaussianProcess()),
    "several models": lambda: one_state(model=GaussianProcess(relative_actions="none")),
    "knn": lambda: one_state(method="knn"),
    "long names": long_names,
    **BENT,
}

Open = Callable[..., Page]
Scheme = Literal["light", "dark"]


@cache
def seen(kind: str) -> View:
    return view_of(VARIANTS[kind]()) if kind in VARIANTS else view(kind)


@cache
def written(kind: str) -> str:
    return page(seen(kind))


class Tabs:
    """Tabs of the browser by their options, in which one page after the other is loaded.

    All pages have the same address: where Chromium has compiled the chart library before, it does not do so again.
    """

    def __init__(self, browser: Browser, path: Path) -> None:
        self._browser, self._path = browser, path
        self._tabs: dict[tuple[bool, bool], Page] = {}
        self.trouble: list[str] = []

    def load(self, kind: str, viewport: ViewportSize, color_scheme: Scheme, touch: bool, bypass_csp: bool) -> Page:
        if (touch, bypass_csp) not in self._tabs:
            self._tabs[touch, bypass_csp] = self._new(touch, bypass_csp)
        tab = self._tabs[touch, bypass_csp]
        tab.set_viewport_size(viewport)
        tab.emulate_media(color_scheme=color_scheme)
        self._path.write_text(written(kind), encoding="utf-8")
        tab.goto(self._path.as_uri())
        return tab

    def leave(self) -> None:
        for tab in self._tabs.values():
            tab.goto("about:blank")

    def close(self) -> None:
        for tab in self._tabs.values():
            tab.context.close()

    def _new(self, touch: bool, bypass_csp: bool) -> Page:
        tab = self._browser.new_context(is_mobile=touch, has_touch=touch, bypass_csp=bypass_csp).new_page()
        tab.on("console", lambda message: self.trouble.append(f"{message.type}: {message.text}"))
        tab.on("pageerror", lambda error: self.trouble.append(str(error)))
        tab.on("request", lambda request: self._note(request.url))
        return tab

    def _note(self, address: str) -> None:
        if address not in (self._path.as_uri(), "about:blank"):
            self.trouble.append(address)


@pytest.fixture(scope="session")
def tabs(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tabs]:
    made = Tabs(browser, tmp_path_factory.mktemp("pages") / "report.html")
    yield made
    made.close()


@pytest.fixture
def opened(tabs: Tabs) -> Iterator[Open]:
    """Opens a page that must neither complain nor ask for anything."""

    def open_page(
        kind: str,
        *,
        viewport: ViewportSize = DESKTOP,
        color_scheme: Scheme = "light",
        touch: bool = False,
        bypass_csp: bool = False,
    ) -> Page:
        opened = tabs.load(kind, viewport, color_scheme, touch, bypass_csp)
        opened.evaluate("Promise.all([explorer.ready, plotly]).then(() => null)")
        return opened

    tabs.trouble.clear()
    yield open_page
    tabs.leave()
    assert not tabs.trouble


def see_all(page: Page) -> None:
    """Unfolds all sections, scrolls to each chart and waits until it is drawn, as a fast reader would not."""
    page.evaluate("document.querySelectorAll('details').forEach(section => { section.open = true; })")
    see(page.locator("[data-figure]:visible"))


def see(charts: Locator) -> None:
    for chart in charts.all():
        chart.scroll_into_view_if_needed()
        chart.locator(".main-svg").first.wait_for(state="attached")


# all kernels: test_page_model.py
@pytest.mark.parametrize("kind", [*STUDIES, "relative actions", "several models", "bent"])
def test_the_explorer_is_the_policy(opened: Open, kind: str) -> None:
    look = seen(kind)
    unit = np.random.default_rng(0).random((20, look.space.n_state_dims))
    states = look.space.decode_states(look.space.snap_states(unit))
    answers = opened(kind).evaluate("states => states.map(explorer.recommend)", states)
    scale = look.belief.scale
    actions = [answer["action"] for answer in answers]
    for answer, same in zip(answers, look.policy.predict_actions(states, actions), strict=True):
        assert answer["mean"] == pytest.approx(same.mean, abs=TOLERANCE * scale)
        assert answer["std"] == pytest.approx(same.std, abs=TOLERANCE * scale)
    searched = Policy(replace(look.belief, average=None), look.policy.maximize)  # the best action is best by its mean
    for own, best in zip(searched.predict_actions(states, actions), searched.predict_many(states), strict=True):
        assert -TOLERANCE <= (own.mean - best.mean) * look.sign / scale <= BETTER


@pytest.mark.parametrize("kind", BENT)
def test_actions_are_really_bent(kind: str) -> None:
    posterior = seen(kind).belief.posterior
    assert isinstance(posterior, ExactPosterior)
    assert posterior.kernel.actions.warp is not None


def test_the_best_action_of_one_state_follows_it() -> None:
    assert isinstance(seen("relative actions").belief.posterior, RelativePosterior)


def test_several_models_are_a_mixture(opened: Open) -> None:
    posterior = seen("several models").belief.posterior
    assert isinstance(posterior, Mixture)
    members = opened("several models").evaluate("JSON.parse(data('explorer-record')).model.members.length")
    assert members == len(posterior.members) > 1


@pytest.mark.parametrize("kind", ["one_state", "relative actions", "several models", *BENT])
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
    half = (upper - lower[::-1]) / 2 / 1.96
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
        action = page.get_by_role("spinbutton", name="stock, as a number").input_value()
        assert float(action) == pytest.approx(float(prediction.action["stock"]), rel=1e-3)
        assert page.locator("#explorer-reward").inner_text() == with_margin(prediction.mean, prediction.std)
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
    load = page.get_by_role("spinbutton", name="load, as a number")
    load.fill("-3")  # out of range: the last valid one stays, and the page says so
    assert page.evaluate("explorer.state().load") == pytest.approx(37)
    complaint = page.locator("#state-0-complaint")
    assert complaint.inner_text() == "From 1 to 1000; the answer is for 37."
    assert load.get_attribute("aria-invalid") == "true"
    load.blur()
    assert (load.input_value(), complaint.inner_text(), load.get_attribute("aria-invalid")) == ("37", "", None)
    page.get_by_role("slider", name="dull").press("ArrowRight")
    assert page.evaluate("explorer.state().dull") == 3  # one key, one integer
    page.get_by_label("Expected reward along").select_option("mode")
    page.wait_for_function("() => document.querySelector('#explorer-chart').layout.xaxis.ticktext?.[0] === 'fast'")


def next_frame(page: Page) -> None:
    page.wait_for_function("() => new Promise(done => requestAnimationFrame(() => done(true)))")


def test_an_action_can_be_moved_and_the_page_says_what_that_costs(opened: Open) -> None:
    page, look = opened("one_state"), view("one_state")
    stock = page.get_by_role("slider", name="stock")
    stock.fill("180")
    next_frame(page)
    state = page.evaluate("explorer.state()")
    (moved,) = look.policy.predict_actions([state], [{"stock": 135.0}])
    best = look.policy.predict(state)
    assert page.locator("#explorer-reward").inner_text() == with_margin(moved.mean, moved.std)
    points = [{**state, **best.action}, {**state, "stock": 135.0}]
    both = torch.from_numpy(np.hstack([look.space.encode_states(points), look.space.encode_actions(points)]))
    covariance = look.belief.predictive.covariance(both, both)
    std = float(covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]) ** 0.5 * look.belief.scale
    cost = page.locator("#explorer-cost").inner_text()
    assert cost.startswith(f"Costs {with_margin(best.mean - moved.mean, std)} against the ")
    assert page.locator("#explorer-action .recommended").inner_text().startswith("recommended: ")
    page.get_by_role("slider", name="demand").fill("20")  # the reader's action stays
    next_frame(page)
    assert page.get_by_role("spinbutton", name="stock, as a number").input_value() == "135"
    page.get_by_role("button", name="Back to the recommendation").click()
    next_frame(page)
    wanted = look.policy.predict(page.evaluate("explorer.state()"))
    assert page.locator("#explorer-reward").inner_text() == with_margin(wanted.mean, wanted.std)
    assert page.locator("#explorer-cost").inner_text() == ""


def test_a_long_choice_leaves_the_other_names_whole(opened: Open) -> None:
    page = opened("long names")
    for size in ({"width": 390, "height": 844}, {"width": 1100, "height": 800}):
        page.set_viewport_size(size)
        for name in ("stock", "price"):
            box = page.locator("#explorer-action label", has_text=name).bounding_box()
            assert box is not None
            assert box["height"] < 40  # one line
        page.wait_for_function("width => document.documentElement.scrollWidth <= width", arg=size["width"])
        see(page.locator("#explorer-chart"))
        chart, table = (
            page.locator(place).bounding_box() for place in ("#explorer-chart .main-svg >> nth=0", ".nearest")
        )
        assert chart is not None
        assert table is not None
        assert chart["y"] + chart["height"] <= table["y"]  # also after the window has changed
    see_all(page)
    slices = page.locator("#slices .chart").filter(has_text="supplier")
    shown = slices.locator(".xtick text:visible").all_text_contents()
    assert [name[:4] for name in shown] == ["Gebr", "Acme", "Cons", "Supe"]  # none is turned and hidden
    axes = """width => {
        const layout = { height: 300, xaxis: { title: { text: 'state a_very_long_name_indeed' } }, yaxis: {} };
        layout.xaxis.ticktext = ['Gebrüder<br>Oberhuber…', 'A &amp; B', 'Consolidated'];
        layout.xaxis.showgrid = false;
        layout.yaxis.ticktext = ['0.0001', '0.001'];
        fitLabels(layout, width);
        return [layout.xaxis.title.text, ...layout.xaxis.ticktext, ...layout.yaxis.ticktext];
    }"""
    numbers = ["0.0001", "0.001"]
    choices = ["Gebrüd…<br>Oberhu…", "A &#38; B", "Consol…"]
    assert page.evaluate(axes, 300) == ["state a_very_long_name_indeed", *choices, *numbers]
    turned = ["Gebrüder…", "A &#38; B", "Consolidated"]
    assert page.evaluate(axes, 150) == ["state a_very…", *turned, *numbers]


def test_a_choice_has_a_list_and_no_track(opened: Open) -> None:
    page = opened("mixed")
    assert page.locator("#explorer-action input[type=range]").count() == 3
    page.get_by_label("mode", exact=True).select_option("$off$")
    next_frame(page)
    assert "Costs " in page.locator("#explorer-cost").inner_text()
    assert page.get_by_label("Expected reward along").input_value() == "2"  # the curve is that of what moves


@pytest.mark.parametrize("kind", ["mixed", "no_state"])
def test_a_pdf_has_every_plot(opened: Open, kind: str) -> None:
    page = opened(kind, color_scheme="dark")
    # what a print finds when it begins: the event comes first, and nothing is waited for
    page.evaluate("""addEventListener('beforeprint', () => {
        const charts = [...document.querySelectorAll('[data-figure]')];
        const drawn = charts.filter(chart => chart.querySelector('.main-svg'));
        const right = Math.max(...drawn.map(chart => chart.querySelector('.main-svg').getBoundingClientRect().right));
        const inks = drawn.map(chart => chart._fullLayout.font.color);
        window.atPrint = { drawn: drawn.length, charts: charts.length, right, inks };
    })""")
    text = page.pdf(format="A4")
    found = page.evaluate("window.atPrint")
    assert found["drawn"] == found["charts"] > 10
    assert found["right"] <= 703  # of a page of A4 within its margins, in pixels
    assert set(found["inks"]) == {"#22223b"}  # dark ink on paper, whatever the screen has
    assert text.startswith(b"%PDF")
    assert not page.evaluate("document.documentElement.classList.contains('paper')")
    assert page.locator("details[open]").count() == 0


def test_the_first_page_of_a_pdf_has_sentences_numbers_and_the_policy_map(opened: Open) -> None:
    page = opened("mixed")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.set_viewport_size({"width": 703, "height": 1031})  # A4 within its margins
    boxes = [page.locator(place).first.bounding_box() for place in (".learned", ".facts", "#policy_map .side-by-side")]
    assert all(box is not None and box["y"] + box["height"] <= 1031 for box in boxes)
    assert page.evaluate("scrollY") == 0


def test_a_policy_that_is_not_the_models_travels_as_a_table(opened: Open) -> None:
    page = opened("knn")
    assert "this is the nearest" in page.locator("#explorer-note").inner_text()
    assert not page.locator("#explorer-curve").is_visible()
    answer = page.evaluate("explorer.recommend({demand: 50})")
    near = [seen("knn").policy({"demand": d})["stock"] for d in np.linspace(49.9, 50.1, 21).tolist()]
    assert any(answer["action"]["stock"] == pytest.approx(stock) for stock in near)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert not page.locator("#explorer-curve").is_visible()  # on paper neither


@pytest.mark.parametrize("kind", ["one_state", "wards", "one_action"])  # others: below, on a phone
def test_all_charts_are_drawn(opened: Open, kind: str) -> None:
    page = opened(kind)
    see_all(page)
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
    see(shown)
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
    head = page.get_by_role("columnheader", name="reward").last
    button, following = head.get_by_role("button"), page.get_by_role("button", name="Next")
    button.press("Enter")  # not the mouse, under which charts that are drawn meanwhile may move the page
    expect(head).to_have_attribute("aria-sort", "ascending")
    column = page.locator("#trial-table thead th").all_inner_texts().index("reward")
    first = page.locator("#trial-table tbody tr").first.locator("td")
    assert float(first.nth(column).inner_text()) == pytest.approx(rewards[0], rel=1e-3)
    button.press("Enter")
    assert float(first.nth(column).inner_text()) == pytest.approx(rewards[-1], rel=1e-3)
    assert page.locator("#trial-page").inner_text() == "1 to 20 of 60"
    following.press("Enter")
    following.press("Enter")
    assert page.locator("#trial-page").inner_text() == "41 to 60 of 60"
    assert following.is_disabled()
    assert "ValueError: no <b>convergence</b>" in page.locator("#trial-table tbody").inner_text()  # failures come last


def no_violations(page: Page) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    found = axe.Axe().run(page).response["violations"]
    assert [(v["id"], v["impact"], v["nodes"][0]["html"]) for v in found] == []


def test_a_page_is_accessible(opened: Open) -> None:
    page = opened("mixed", bypass_csp=True)
    see_all(page)
    no_violations(page)


@pytest.mark.parametrize("kind", ["mixed", "no_state"])
def test_a_phone_need_not_scroll_sideways(opened: Open, kind: str) -> None:
    page = opened(kind, viewport=PHONE, color_scheme="dark", touch=True, bypass_csp=True)
    see_all(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    for chart in page.locator(".chart:visible").all():
        box = chart.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= PHONE["width"]
    no_violations(page)


def test_dark_pages_are_dark(opened: Open) -> None:
    luminance = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).reduce((a, b) => a + +b, 0)"
    page = opened("one_state", color_scheme="dark")
    assert page.evaluate(luminance) < 150
    chart = "document.querySelector('#explorer-chart')"
    page.wait_for_function(f"() => {chart}.layout?.font.color === '#e7e9f3'")
    page.emulate_media(color_scheme="light")
    page.wait_for_function(f"() => {chart}.layout.font.color === '#22223b'")
    assert page.evaluate(luminance) > 600
