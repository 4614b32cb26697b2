"""A policy as a plain record that JSON can hold: the space, the hyperparameters and the data of the model.

Where actions are not the model's best, the settings of the rule that finds them in the data are there too.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from conbo.belief import Belief, standardised_noise
from conbo.bound_states import bind
from conbo.errors import RecordError, SettingError
from conbo.models.kernels import CategoryKernel, Columns, Factor, Kernel, MultiTask, ProductKernel, Trend
from conbo.models.noise import VaryingNoise
from conbo.models.posterior import Posterior, condition
from conbo.models.warp import Warp
from conbo.observations import Observations
from conbo.policies import PolicyRecipe
from conbo.policies.gp_argmax import GpArgmax
from conbo.policies.nearest_neighbors import NearestNeighbors
from conbo.policies.policy_fields import check, sealed
from conbo.policies.policy_gradient import PolicyGradient
from conbo.policies.single_action import SingleAction
from conbo.spaces import Space

RECIPES: dict[str, type[Any]] = {
    "model": GpArgmax,
    "nearest-neighbors": NearestNeighbors,
    "policy-gradient": PolicyGradient,
    "single-action": SingleAction,
}


def to_record(belief: Belief, maximize: bool, recipe: PolicyRecipe | None) -> dict[str, Any]:
    """What `from_record` needs to restore the policy."""
    posterior, observations = belief.posterior, belief.observations
    if not isinstance(posterior, Posterior):
        raise SettingError("a policy must have a built-in model to be saved, but this one has a BoTorch model.")
    content = {
        "space": belief.space.to_dict(),
        "direction": "maximize" if maximize else "minimize",
        "policy": None if recipe is None else _recipe_record(belief, recipe),
        "kernel": _kernel_record(posterior.kernel),
        "constant": posterior.constant,
        "noise": _noise_record(posterior.noise),
        "shift": belief.shift,
        "scale": belief.scale,
        "points": observations.points.tolist(),
        "rewards": observations.rewards.tolist(),
        "reward_noise": None if observations.noise is None else observations.noise.tolist(),
    }
    return sealed(content)


def from_record(record: Any) -> tuple[Belief, bool, PolicyRecipe | None]:
    """The belief of a saved policy, whether it maximises, and its recipe; P[s] was not saved and is uniform.

    Raises RecordError, which names the field, if the record is damaged.
    """
    space = check(record)
    shift, scale = record["shift"], record["scale"]
    points, rewards = _tensor(record["points"]), _tensor(record["rewards"])
    known = None if record["reward_noise"] is None else _tensor(record["reward_noise"])
    observations = Observations(points, rewards, pending=points[:0], noise=known)
    known_noise, new_noise = standardised_noise(observations, scale), _noise(record["noise"], space)
    posterior = condition(
        _kernel(record["kernel"], space),
        record["constant"],
        new_noise if known_noise is None else known_noise,
        points,
        (rewards - shift) / scale,
        new_noise,
    )
    belief = Belief(space, bind(None, space), observations, posterior, shift, scale)
    if not bool(torch.isfinite(belief.to_reward(posterior.mean(points))).all()):
        raise RecordError("`kernel` must give a finite estimate of every reward, but does not.")
    return belief, record["direction"] == "maximize", _recipe(record.get("policy"))


def _recipe_record(belief: Belief, recipe: PolicyRecipe) -> dict[str, Any]:
    if isinstance(recipe, SingleAction):
        recipe = recipe.settled(belief)  # P[s], which says where to look for the action, is not saved
    for name, kind in RECIPES.items():
        if isinstance(recipe, kind):
            return {"type": name, **asdict(recipe)}
    raise SettingError(f"a policy must be one of {', '.join(RECIPES)} to be saved, but this is {recipe!r}.")


def _recipe(record: Mapping[str, Any] | None) -> PolicyRecipe | None:
    if record is None:
        return None
    settings = {key: tuple(value) if isinstance(value, list) else value for key, value in record.items()}
    del settings["type"]
    recipe: PolicyRecipe = RECIPES[record["type"]](**settings)
    return recipe


def _kernel_record(kernel: Kernel) -> dict[str, Any]:
    record: dict[str, Any] = {
        "profile": kernel.actions.profile,
        "state_lengthscales": kernel.states.lengthscales.tolist(),
        "action_lengthscales": kernel.actions.lengthscales.tolist(),
    }
    if (warp := kernel.actions.warp) is not None:
        record["warp"] = {"log_a": warp.log_a.tolist(), "log_b": warp.log_b.tolist()}
    if isinstance(kernel, ProductKernel):
        return {"type": "product", **record, "outputscale": kernel.outputscale}
    assert isinstance(kernel, CategoryKernel)  # there are no others
    constant, categories = kernel.constant, kernel.categories
    if isinstance(categories, Trend):
        variances = {"trend": categories.trend, "difference": categories.difference, "constant": constant}
        return {"type": "trend", **record, **variances}
    loadings, own = ([tensor.tolist() for tensor in part] for part in (categories.loadings, categories.own))
    return {"type": "multi-task", **record, "loadings": loadings, "own": own, "constant": constant}


def _kernel(record: Mapping[str, Any], space: Space) -> Kernel:
    profile = record["profile"]
    coded = record["type"] != "product"
    states = Factor(Columns(space.state_categories, coded), _tensor(record["state_lengthscales"]), profile)
    bent = record.get("warp")
    warp = None if bent is None else Warp(_tensor(bent["log_a"]), _tensor(bent["log_b"]))
    actions = Factor(Columns(space.action_categories), _tensor(record["action_lengthscales"]), profile, warp)
    if record["type"] == "product":
        return ProductKernel(states, actions, record["outputscale"])
    if record["type"] == "trend":
        trend = Trend(record["trend"], record["difference"])
        return CategoryKernel(states, actions, trend, record["constant"])
    tasks = MultiTask(tuple(map(_tensor, record["loadings"])), tuple(map(_tensor, record["own"])))
    return CategoryKernel(states, actions, tasks, record["constant"])


def _noise_record(noise: float | VaryingNoise) -> float | dict[str, Any]:
    return noise if isinstance(noise, float) else {"log_level": noise.log_level, "slopes": noise.slopes.tolist()}


def _noise(record: float | Mapping[str, Any], space: Space) -> float | VaryingNoise:
    if not isinstance(record, Mapping):
        return record
    columns = Columns(space.state_categories + space.action_categories)
    return VaryingNoise(columns, record["log_level"], _tensor(record["slopes"]))


def _tensor(values: list[Any]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)
