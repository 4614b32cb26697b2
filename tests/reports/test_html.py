"""The page as text: complete, safe whatever names and errors contain, and of bounded size."""

import json
import math
import re
from base64 import b64decode
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch

import conbo
from conbo.belief import fit_belief
from conbo.bound_states import bind
from conbo.gaussian_process import GaussianProcess
from conbo.models import page_record
from conbo.models.exact import ExactPosterior, condition
from conbo.observations import Observations
from conbo.plots.view import View
from conbo.policies.policy import Policy
from conbo.quasi_random import sobol
from conbo.reports.explorer import explorer_record
from conbo.reports.html import SCRIPTS, page
from conbo.spaces import Real, Space
from conbo.trials import Outcomes, Trial
from learned_studies import one_action, one_state, view

LARGEST = 8_000_000  # bytes


class Elements(HTMLParser):
    """All elements with their attributes, and the text of scripts by their id."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: dict[str | None, str] = {}
        self._inside: str | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = dict(attrs).get("id") if tag == "script" else None

    def handle_endtag(self, tag: str) -> None:
        self._inside = None

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.scripts[self._inside] = data


@pytest.fixture(scope="module")
def mixed_page() -> str:
    return page(view("mixed"))


def test_nothing_is_loaded_from_elsewhere(mixed_page: str) -> None:
    for tag, attributes in Elements(mixed_page).elements:
        assert tag not in ("link", "iframe", "img", "object", "base")
        assert "src" not in attributes
        assert (attributes.get("href") or "#").startswith("#")
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy"\s+content="([^"]*)"', mixed_page)
    assert policy.startswith("default-src 'none'")
    assert mixed_page.count("plotly.js v") == 1  # embedded once


def test_names_and_errors_cannot_break_the_page() -> None:
    nasty = "</script><script>alert(1)</script><!-- \"'&"
    space = Space(states={nasty: Real(0, 1)}, actions={"<i>x": Real(0, 1)})
    study = conbo.Study(space, method="uniform", name=nasty)
    for trial in study.ask(8):
        if trial.number:
            study.tell(trial, float(trial.action["<i>x"]), outcomes={nasty: 4.2} if trial.number == 3 else None)
        else:
            study.fail(trial, nasty)
    with pytest.warns(UserWarning, match="The policy is the same for every state"):
        text = page(conbo.plots.view.view_of(study))
    scripts = [attributes for tag, attributes in Elements(text).elements if tag == "script"]
    data = [attributes for attributes in scripts if "id" in attributes]
    assert all(attributes["type"] in ("application/json", "text/plain") for attributes in data)
    assert len(scripts) - len(data) == len(SCRIPTS)  # the page's own
    assert not [tag for tag, _ in Elements(text).elements if tag == "i"]
    trials = json.loads(Elements(text).scripts["trials"])
    assert trials["columns"] == ["number", nasty, "<i>x", "reward", f"outcome:{nasty}", "status", "error"]
    rewards = [row[3] for row in trials["rows"] if row[3] is not None]
    # digits of a parameter follow from its range, and those of other numbers from their values
    spread = 1e-4 * (max(rewards) - min(rewards))
    assert trials["steps"] == pytest.approx([7e-4, 1e-4, 1e-4, spread, None, None, None])
    assert trials["rows"][0][-1] == nasty
    assert [row[4] for row in trials["rows"]] == [4.2 if i == 3 else None for i in range(8)]
    assert "alert(1)" in text  # as text


def test_every_panel_has_its_figures(mixed_page: str) -> None:
    parsed = Elements(mixed_page)
    shown = [attributes["data-figure"] for _, attributes in parsed.elements if "data-figure" in attributes]
    assert len(shown) == len(set(shown))
    # this study has no limits, of which there would be a picture
    assert {str(key).rsplit("-", 2)[0] for key in shown} == set(conbo.plots.__all__) - {"save", "feasibility"}
    for key in shown:
        figure = json.loads(parsed.scripts[key])
        assert figure["data"]
    # a figure for each state and action, and for each parameter
    assert sum(str(key).startswith("policy_map") for key in shown) == 3 * 4
    assert sum(str(key).startswith("slices") for key in shown) == 7


def test_what_is_said_at_the_top(tmp_path: Path) -> None:
    study = one_state()
    conbo.report(study, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<title>Study · conbo</title>" in text
    assert "<span>method <b>uniform</b></span>" in text
    assert "<span>direction <b>maximize</b></span>" in text
    assert "<dt>evaluations</dt><dd>30</dd>" in text
    assert "<dt>failed</dt>" not in text
    value = re.findall(r"<dt>policy value</dt><dd>(\S+) ± \S+</dd>", text)
    assert float(value[0]) == pytest.approx(study.policy_value(), rel=0.01)
    assert " ".join(study.summary().sentences).replace(" ± ", "\u00a0±\u00a0") in text
    assert "± is 1.96 standard deviations of the mean, without noise" in text


def test_a_policy_that_cannot_depend_on_the_state_is_warned_about(mixed_page: str) -> None:
    space = Space(states={"s": Real(0, 1)}, actions={"x": Real(0, 1)})
    study = conbo.Study(space, method="uniform")
    for trial in study.ask(5):
        study.tell(trial, 1.0)
    with pytest.warns(UserWarning, match="The policy is the same for every state"):
        text = page(conbo.plots.view.view_of(study))
    assert "The policy is the same for every state" in text
    assert "The policy is the same for every state" not in mixed_page


def test_a_model_of_botorch_has_a_page_without_calibration() -> None:
    from botorch.models import SingleTaskGP

    study = one_action(model=lambda x, y, noise: SingleTaskGP(x, y, noise, outcome_transform=None))
    text = page(conbo.plots.view.view_of(study))
    assert "leave-one-out predictions need a built-in model" in text
    assert "table" in json.loads(Elements(text).scripts["explorer-record"])


def test_a_study_that_knows_only_its_prior_has_a_page(tmp_path: Path) -> None:
    prior = one_action()
    study = conbo.Study(prior.space, prior=prior)
    conbo.report(study, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "leave-one-out predictions need a completed trial" in text
    assert all(f'id="{panel}"' in text for panel in ("calibration", "predicted_reward", "policy_value"))


def test_the_gains_of_too_many_combinations_are_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "one for each combination of the most important parameters: too many."
    assert said not in page(view("wards"))
    monkeypatch.setattr("conbo.plots.gain.MOST_DRAWN", 10)
    assert said in page(view("wards"))


def test_too_many_combinations_of_categories_travel_as_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "model" in explorer_record(view("wards"))
    monkeypatch.setattr(page_record, "MOST_COMBINATIONS", 3)
    table = explorer_record(view("wards"))["table"]
    means = np.frombuffer(b64decode(table["means"]))
    wanted = view("wards").policy.predict_many([{"ward": ward} for ward in "ABCD"])
    assert means == pytest.approx([prediction.mean for prediction in wanted])


@pytest.mark.soak
def test_two_thousand_evaluations_and_eight_actions_stay_small() -> None:
    assert len(page(large(2000)).encode()) < LARGEST


def large(n: int) -> View:
    """A view of n trials without the cost of fitting a model to them."""
    space = Space(
        states={f"s{i}": Real(0, 1) for i in range(2)},
        actions={f"a rather long name {i}": Real(0, 1) for i in range(8)},
    )
    points = sobol(n, 10, seed=0)
    rewards = -(points[:, 2:] - points[:, :1]).square().sum(-1) + torch.sin(5 * points[:, 1])
    states = bind(None, space)
    first = Observations(points[:60], rewards[:60], points[:0])
    belief = fit_belief(space, states, first, GaussianProcess(output_warping="none", members=1))
    posterior = belief.posterior
    assert isinstance(posterior, ExactPosterior)
    standardized = (rewards - belief.shift) / belief.scale
    known = condition(posterior.kernel, posterior.constant, 1e-2, points, standardized)
    belief = replace(belief, observations=Observations(points, rewards, points[:0]), posterior=known)
    decoded = zip(
        space.decode_states(np.asarray(points[:, :2])), space.decode_actions(np.asarray(points[:, 2:])), strict=True
    )
    trials = [Trial(i, s, x).told(Outcomes(float(rewards[i]))) for i, (s, x) in enumerate(decoded)]
    return View(Policy(belief), tuple(trials))


def test_the_page_says_what_was_measured(mixed_page: str) -> None:
    study = one_state()
    assert "Measured by fresh evaluations" not in mixed_page
    found = study.validate(lambda state, action: float(state["demand"]) + float(action["stock"]), 8)
    failing = study.compare({"stock": 20.0}, lambda state, action: 1.0 if action["stock"] != 20 else math.nan, 8)
    assert failing.validation is not None
    text = page(replace(view("one_state"), validations=tuple(study.validations())))
    assert "Measured by fresh evaluations" in text
    assert all(sentence in text for sentence in (*found.sentences, *failing.validation.sentences))
    assert 'id="validation-0-1-1"' in text  # the figure
    assert "Beside the best single action, after 30 evaluations" in text
