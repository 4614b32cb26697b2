"""The page's own model in plain Node: for every kind of model, it computes what the library computes."""

import json
import shutil
import subprocess
from dataclasses import replace
from importlib.resources import files
from math import inf
from typing import Any

import numpy as np
import pytest
import torch

from conbo.models.censored import condition_censored
from conbo.models.columns import Columns
from conbo.models.exact import ExactPosterior, condition
from conbo.models.heteroscedastic_noise import HeteroscedasticNoise
from conbo.models.kernels import Factor, Kernel
from conbo.models.main_effects import MainEffectsKernel, effect_columns
from conbo.models.mixture import Mixture
from conbo.models.output_maps import Limits, LowTail, OutputMap
from conbo.models.posterior import Posterior
from conbo.models.relative import RelativePosterior
from conbo.models.seed_effects import SeedEffect, condition_with_seeds
from conbo.models.shear import Shear
from conbo.models.transformed import TransformedPosterior
from conbo.plots.view import View
from conbo.policies.policy import Policy
from conbo.reports.explorer import explorer_record
from conbo.spaces import Categorical, Real, Space
from missing_tools import skip_without
from random_beliefs import belief_on, heteroscedastic_noise, points_in, product_kernel, tensor, trend_kernel, warped

SCRIPTS = ("profiles.js", "process.js", "output_maps.js", "mixture.js")
SPACE = Space(
    states={"s": Real(0, 1), "k": Categorical(["a", "b", "c"])},
    actions={"x": Real(0, 1), "c": Categorical(["p", "q"]), "y": Real(0, 1)},
)
POINTS = points_in(SPACE, 30)
# with a tail of awful values
REWARDS = torch.sin(5 * POINTS[:, 0] + 3 * POINTS[:, 2]) + POINTS[:, 1] - 4 * (POINTS[:, 4] - 0.4).exp().pow(2)
STATES, ACTIONS = points_in(SPACE, 5, seed=5)[:, :2], points_in(SPACE, 6, seed=6)[:, 2:]

# for each state: the best action, and at all actions the mean, its deviation and that of the difference to the first
PROGRAM = """
const { record, states, actions } = JSON.parse(require("fs").readFileSync(0, "utf8"));
record.integers = record.integers.map(() => null);
const model = createModel(record), said = record.predictive ? createModel({ ...record, ...record.predictive }) : model;
model.prepare().then(said.prepare).then(() => console.log(JSON.stringify(states.map((state) => {
  const where = Float64Array.from(state), action = model.best(where), { at, std, differenceStd } = said.about(where);
  const rows = actions.map((there) => [at(there), std(there), differenceStd(there, actions[0])]);
  return { action: [...action], rows };
}))));
"""


def process(kernel: Kernel, noise: float | HeteroscedasticNoise = 1e-2, output: OutputMap | None = None) -> Posterior:
    rewards = REWARDS if output is None else output.values(REWARDS, None)[0]
    known = condition(kernel, 0.1, noise, POINTS, rewards)
    return known if output is None else TransformedPosterior(known, output)


def with_seeds(effect: SeedEffect, kernel: Kernel) -> Posterior:
    return condition_with_seeds(kernel, 0.1, 1e-2, effect, POINTS, REWARDS, 2**62 + torch.arange(len(POINTS)) % 7)


def with_main_effects(kernel: Kernel) -> MainEffectsKernel:
    columns = kernel.states.columns
    chosen = Columns(tuple(columns.categories[column] for column in effect_columns(columns)))
    lengthscales = tensor([0.7, 1.5][: len(chosen.categories)])
    return MainEffectsKernel(kernel, Factor(chosen, lengthscales, kernel.actions.profile), 0.6, 0.4)


def relative(kernel: Kernel, weights: list[list[float]], output: OutputMap | None = None) -> RelativePosterior:
    shear, rewards = Shear(tensor(weights)), REWARDS if output is None else output.values(REWARDS, None)[0]
    known = condition(kernel, 0.1, 1e-2, shear(POINTS), rewards)
    return RelativePosterior(known if output is None else TransformedPosterior(known, output), shear)


def mixture(*members: Posterior) -> Mixture:
    weights = tensor(range(len(members), 0, -1))
    return Mixture(members, weights / weights.sum())


PRODUCT, TREND = product_kernel(SPACE, 0.6, (0.4, 0.8, 0.6)), trend_kernel(SPACE, (0.5, 0.9, 0.7), states=0.5)
SMOOTH = product_kernel(SPACE, 0.5, 0.5, profile="squared-exponential")
TAIL = LowTail(pivot=float(REWARDS.max()), width=0.5, shift=-0.6, scale=0.7)
POWER = LowTail(pivot=float(REWARDS.max()), width=0.2, shift=-0.6, scale=0.7, power=0.4)
NOISE = heteroscedastic_noise(SPACE)

W = [[0.8, 0.0], [0.0, 0.0], [-0.4, 0.0]]

POSTERIORS: dict[str, Posterior] = {
    "one process": process(PRODUCT),
    "main effects": process(with_main_effects(PRODUCT)),
    "main effects beside a table": process(with_main_effects(TREND)),
    "low tail, warped, varying noise": process(warped(with_main_effects(TREND)), NOISE, TAIL),
    "a power of the tail": process(PRODUCT, 0.1, POWER),
    "limits": process(PRODUCT, output=Limits(-inf, 1.2)),
    "clipped": TransformedPosterior(
        condition_censored(PRODUCT, 0.1, 1e-2, POINTS, REWARDS.clamp_min(-4.0), -4.0), Limits(-4.0, inf)
    ),
    "limits and a low tail": process(PRODUCT, output=Limits(-0.5, 1.2, TAIL)),
    "relative": relative(with_main_effects(TREND), W),
    "relative, low tail": relative(PRODUCT, W, TAIL),
    "relative beside warped": mixture(process(warped(PRODUCT)), relative(SMOOTH, W), relative(PRODUCT, W, TAIL)),
    "seeds": with_seeds(SeedEffect(0.3, product_kernel(SPACE, 0.7, 0.9, 0.2)), PRODUCT),
    "listed seeds": with_seeds(SeedEffect(0.3, SMOOTH, -1 / 6), with_main_effects(SMOOTH)),
    "a constant of every seed, or none": mixture(with_seeds(SeedEffect(0.3, None), TREND), process(PRODUCT, 0.3)),
    "mixture of warps": mixture(process(warped(PRODUCT)), process(SMOOTH), process(warped(TREND, seed=3))),
    "mixture of all": mixture(
        process(with_main_effects(TREND)), process(warped(SMOOTH), NOISE, TAIL), process(PRODUCT, 0.1, Limits(-2, 1.0))
    ),
}


def on_the_page(view: View) -> list[dict[str, Any]]:
    """What the page says about all states and actions."""
    node = shutil.which("node") or skip_without("Node.js", "apt-get install nodejs")
    record = explorer_record(view)["model"]
    content = {"record": record, "states": STATES.tolist(), "actions": ACTIONS.tolist()}
    scripts = [files("conbo.reports").joinpath(name).read_text(encoding="utf-8") for name in SCRIPTS]
    program = "\n".join([*scripts, PROGRAM])
    done = subprocess.run([node, "-e", program], input=json.dumps(content), capture_output=True, text=True, check=True)
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    return answers


@pytest.mark.parametrize("name", POSTERIORS)
def test_the_page_computes_what_the_library_computes(name: str) -> None:
    posterior = POSTERIORS[name]
    view = View(Policy(belief_on(SPACE, posterior, POINTS, REWARDS)), ())
    answers = on_the_page(view)
    assert len(answers) == len(STATES)
    for state, answer in zip(STATES, answers, strict=True):
        points = torch.cat([state.expand(len(ACTIONS), -1), ACTIONS], -1)
        covariance = posterior.covariance(points, points)
        variance = covariance.diagonal() + covariance[0, 0] - 2 * covariance[0]
        wanted = [posterior.mean(points), posterior.variance(points).sqrt(), variance.clamp_min(0).sqrt()]
        np.testing.assert_allclose(answer["rows"], torch.stack(wanted, -1), rtol=1e-6, atol=1e-6)
        best = view.actions(state[None])[0]
        found, known = posterior.mean(
            torch.cat([state.expand(2, -1), torch.stack([tensor(answer["action"]), best])], -1)
        )
        assert found > known - 1e-5, name


def test_predictions_of_the_page_come_from_the_average_over_hyperparameters() -> None:
    average = POSTERIORS["mixture of all"]
    belief = replace(belief_on(SPACE, POSTERIORS["one process"], POINTS, REWARDS), average=lambda: average)
    view = View(Policy(belief), ())
    for state, answer in zip(STATES, on_the_page(view), strict=True):
        points = torch.cat([state.expand(len(ACTIONS), -1), ACTIONS], -1)
        wanted = torch.stack([average.mean(points), average.variance(points).sqrt()], -1)
        np.testing.assert_allclose([row[:2] for row in answer["rows"]], wanted, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(answer["action"], view.actions(state[None])[0], atol=1e-3)


def test_a_single_process_travels_as_before() -> None:
    one, several = (POSTERIORS[name].page_record(SPACE) for name in ("one process", "mixture of all"))
    assert one is not None
    assert several is not None
    assert "members" not in one
    assert set(several) == {"members", "weights"}
    assert isinstance(POSTERIORS["one process"], ExactPosterior)
