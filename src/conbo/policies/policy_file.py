"""Converts a policy to a record of plain values, which JSON can hold, and back.

The record holds the space, the observations, and the hyperparameters of the models, from which the posterior is
computed again. If the policy was given a recipe, the record also holds the recipe's settings. `policy_file_checks.py`
checks a record when it is written and when it is read.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor

from conbo.belief import Belief, standardized
from conbo.bound_states import InfeasibleStatesWarning, bind
from conbo.errors import RecordError, SettingError
from conbo.learned_constraints import LearnedConstraint, LearnedConstraints
from conbo.models.approximate import condition_by_size
from conbo.models.category_kernels import CategoryKernel, MultiTask, Trend
from conbo.models.censored import condition_censored
from conbo.models.columns import Columns
from conbo.models.exact import ExactPosterior
from conbo.models.heteroscedastic_noise import HeteroscedasticNoise
from conbo.models.kernels import Factor, Kernel, ProductKernel
from conbo.models.main_effects import MainEffectsKernel, effect_columns
from conbo.models.mixture import Mixture
from conbo.models.one_study import OneStudy, of_both
from conbo.models.output_maps import read_output
from conbo.models.posterior import Posterior
from conbo.models.profiles import Profile, profile_of
from conbo.models.relative import RelativePosterior
from conbo.models.seed_effects import SeedEffect, condition_with_seeds
from conbo.models.shear import Shear
from conbo.models.transformed import TransformedPosterior
from conbo.models.warp import read_warp
from conbo.observations import Observations, Seeds
from conbo.policies import PolicyRecipe
from conbo.policies.gp_argmax import GpArgmax
from conbo.policies.nearest_neighbors import NearestNeighbors
from conbo.policies.on_steps import OnSteps
from conbo.policies.policy_file_checks import MAIN_EFFECTS, check, members, sealed
from conbo.policies.policy_gradient import PolicyGradient
from conbo.policies.single_action import SingleAction
from conbo.prior_belief import with_study
from conbo.spaces import Feasible, Space

KernelReader: TypeAlias = Callable[[Mapping[str, Any], Space], Kernel]

RECIPES: dict[str, type[Any]] = {
    "model": GpArgmax,
    "nearest-neighbors": NearestNeighbors,
    "policy-gradient": PolicyGradient,
    "single-action": SingleAction,
    "on-steps": OnSteps,
}


def to_record(belief: Belief, maximize: bool, recipe: PolicyRecipe | None) -> dict[str, Any]:
    """Return a policy as a dict that JSON can hold, from which `from_record` restores it.

    Raises SettingError if the model or the recipe cannot be saved.
    """
    observations, model = belief.observations, belief.posterior.record()
    if model is None:
        raise SettingError(
            f"a policy must have a built-in model to be saved, but this one rests on {belief.posterior}."
        )
    prior = model.pop("prior", None)
    content = {
        "space": belief.space.to_dict(),
        "direction": "maximize" if maximize else "minimize",
        "policy": None if recipe is None else _recipe_record(belief, recipe),
        "members": _members_record(model),
        "shift": belief.shift,
        "scale": belief.scale,
        "points": observations.points.tolist(),
        "rewards": observations.rewards.tolist(),
        "reward_noise": None if observations.noise is None else observations.noise.tolist(),
    }
    if prior is not None:
        content["prior"] = prior
    if belief.average is not None and (predictive := belief.predictive.record()) is not None:
        content["predictive"] = _members_record(predictive)
    if observations.seeds is not None:
        content["seeds"] = {"values": observations.seeds.values.tolist(), "total": observations.seeds.total}
    if observations.measured:  # from which a study learns whose prior this policy is
        content["measured"] = {name: _measured_record(values) for name, values in observations.measured.items()}
    if belief.constraints is not None:
        content["constraints"] = _constraints_record(belief.constraints)
    return sealed(content, belief.space.feasible)


def from_record(
    record: Any, kernel: KernelReader | None = None, feasible: Feasible | None = None
) -> tuple[Belief, bool, PolicyRecipe | None]:
    """Restore a policy: return its belief, whether rewards are maximized, and its recipe.

    `kernel` restores a user's own kernel from its record, and `feasible` is the function that the space's record names.
    P[s] is not saved; in the restored belief, it is uniform. Raises RecordError if the record is damaged; the message
    names the field.
    """
    space = check(record, kernel is not None, feasible)
    shift, scale = record["shift"], record["scale"]
    rewards = _tensor(record["rewards"])
    points = _tensor(record["points"]).reshape(len(rewards), space.n_state_dims + space.n_action_dims)
    known = None if record["reward_noise"] is None else _tensor(record["reward_noise"])
    measured = {name: _measured(one, len(rewards)) for name, one in record.get("measured", {}).items()}
    observations = Observations(points, rewards, points[:0], known, measured, seeds=_seeds(record.get("seeds")))
    seen = standardized(observations, shift, scale)
    reader, prior = kernel or read_kernel, record.get("prior")
    posterior = _with_prior(prior, members(record), space, seen, reader)
    predictive = record.get("predictive")
    average = None if predictive is None else partial(_with_prior, prior, predictive, space, seen, reader)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InfeasibleStatesWarning)
        states = bind(None, space)
    belief = Belief(space, states, observations, posterior, shift, scale, average=average)
    if "constraints" in record:
        belief = replace(belief, constraints=_constraints(record["constraints"], space))
    estimates = torch.cat([posterior.mean(points), belief.predictive.mean(points)])
    if not bool(torch.isfinite(belief.to_reward(estimates)).all()):
        raise RecordError("every `kernel` must give a finite estimate of every reward, but one does not.")
    return belief, record["direction"] == "maximize", _recipe(record.get("policy"))


def _with_prior(
    prior: Mapping[str, Any] | None,
    listed: Sequence[Mapping[str, Any]],
    space: Space,
    seen: Observations,
    reader: KernelReader,
) -> Posterior:
    """Restore the posterior from the records of its models (`listed`) and the standardized observations (`seen`).

    `prior` is the record of an earlier study's observations. If it is not None, the models were fitted jointly to that
    study and to the policy's own study. `reader` restores the models' kernels.
    """
    if prior is None:
        return _mixed(listed, space, seen, reader)
    points, noise = _tensor(prior["points"]), None if prior["noise"] is None else _tensor(prior["noise"])
    earlier, both = Observations(points, _tensor(prior["rewards"]), points[:0], noise), with_study(space)
    return OneStudy(_mixed(listed, both, of_both(earlier, seen), reader), both, len(seen), earlier)


def _mixed(listed: Sequence[Mapping[str, Any]], space: Space, seen: Observations, reader: KernelReader) -> Posterior:
    posteriors = tuple(_posterior(member, space, seen, reader) for member in listed)
    return posteriors[0] if len(posteriors) == 1 else Mixture(posteriors, _tensor([one["weight"] for one in listed]))


def _members_record(model: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the records of the models of a posterior, each with its weight; a single model has weight one."""
    listed: list[Mapping[str, Any]] = model.get("members", [{"weight": 1.0, **model}])
    return listed


def _posterior(
    record: Mapping[str, Any], space: Space, seen: Observations, reader: KernelReader
) -> ExactPosterior | TransformedPosterior | RelativePosterior:
    """Restore the posterior of one model from its record and from `seen`, the observations with standardized rewards.

    `reader` restores the kernel.
    """
    output = read_output(record["output"]) if "output" in record else None
    rewards, variances = (seen.rewards, seen.noise) if output is None else output.values(seen.rewards, seen.noise)
    kernel, new_noise = _read_kernel(record["kernel"], space, reader), _noise(record["noise"], space)
    known = new_noise if variances is None else variances
    if "seed_effect" in record and seen.seeds is not None:
        assert not isinstance(known, HeteroscedasticNoise)  # checked before
        effect, told = _seed_effect(record["seed_effect"], space), (seen.points, rewards, seen.seeds.values)
        return condition_with_seeds(kernel, float(record["constant"]), known, effect, *told, record["noise"])
    if "floor" in record and output is not None:
        constant, floor = float(record["constant"]), float(record["floor"])
        clipped = condition_censored(kernel, constant, new_noise, seen.points, seen.rewards, floor)
        return TransformedPosterior(clipped, output)
    shear = Shear(_tensor(record["shear"])) if "shear" in record else None
    points = seen.points if shear is None else shear(seen.points)
    process, _ = condition_by_size(kernel, float(record["constant"]), known, points, rewards, new_noise)
    posterior = process if output is None else TransformedPosterior(process, output)
    return posterior if shear is None else RelativePosterior(posterior, shear)


def _constraints_record(learned: LearnedConstraints) -> dict[str, Any]:
    success = None if learned.success is None else _constraint_record(learned.success)
    outcomes = [_constraint_record(one) for one in learned.outcomes]
    return {"confidence": learned.confidence, "outcomes": outcomes, "success": success}


def _constraint_record(one: LearnedConstraint) -> dict[str, Any]:
    points, slacks = one.observations.points.tolist(), one.observations.rewards.tolist()
    model = one.posterior.record()
    assert model is not None  # built-in models can always be conditioned
    more = {"prior": model.pop("prior")} if "prior" in model else {}
    if one.average is not None and (averaged := one.averaged.posterior.record()) is not None:
        more["predictive"] = _members_record(averaged)
    return {"name": one.name, "threshold": one.threshold, "points": points, "slacks": slacks, "model": model, **more}


def _constraints(record: Mapping[str, Any], space: Space) -> LearnedConstraints:
    outcomes = tuple(_constraint(one, space) for one in record["outcomes"])
    success = None if record["success"] is None else _constraint(record["success"], space)
    return LearnedConstraints(outcomes, record["confidence"], success)


def _constraint(record: Mapping[str, Any], space: Space) -> LearnedConstraint:
    slacks = _tensor(record["slacks"])
    points = _tensor(record["points"]).reshape(len(slacks), space.n_state_dims + space.n_action_dims)
    seen = Observations(points, slacks, pending=points[:0])
    prior, predictive = record.get("prior"), record.get("predictive")
    posterior = _with_prior(prior, [record["model"]], space, seen, read_kernel)
    average = None if predictive is None else partial(_with_prior, prior, predictive, space, seen, read_kernel)
    return LearnedConstraint(record["name"], posterior, record["threshold"], seen, average)


def _recipe_record(belief: Belief, recipe: PolicyRecipe) -> dict[str, Any]:
    if isinstance(recipe, SingleAction):
        recipe = recipe.settled(belief)  # fixes the action now, because P[s], which it depends on, is not saved
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


def _read_kernel(record: Mapping[str, Any], space: Space, reader: KernelReader) -> Kernel:
    """Restore a kernel from its record with the function `reader`.

    If the record has main effects (a term of the state alone and a term of the action alone), add them to the kernel.
    """
    if record.get("type") != MAIN_EFFECTS:
        return reader(record, space)
    interaction, lengthscales = reader(record["interaction"], space), _tensor(record["effect_lengthscales"])
    categories = interaction.states.columns.categories
    columns = Columns(tuple(categories[column] for column in effect_columns(interaction.states.columns)))
    if len(columns.categories) != len(lengthscales):
        rule = f"`effect_lengthscales` must be {len(columns.categories)} numbers, as the kernel has it"
        raise RecordError(f"{rule}, but are {len(lengthscales)}.")
    effect = Factor(columns, lengthscales, interaction.actions.profile)
    return MainEffectsKernel(interaction, effect, record["action_variance"], record["state_variance"])


def read_kernel(record: Mapping[str, Any], space: Space, profile: Profile | None = None) -> Kernel:
    """Restore a built-in kernel from its record in a saved policy.

    Parameters
    ----------
    record
        What the kernel's method `record` returned.
    space
        States and actions.
    profile
        The kernel's profile, if it is one of your own; built-in profiles are found by the name in the record.

    Returns
    -------
    Kernel
        The kernel.

    Raises
    ------
    SettingError
        If the profile is unknown.

    Examples
    --------
    >>> from functools import partial
    >>> from conbo.models.profiles import profile_of
    >>> from conbo.policies.policy_file import read_kernel
    >>> policy.save("policy.json")
    >>> reader = partial(read_kernel, profile=profile_of("matern52"))
    >>> same = conbo.load_policy("policy.json", kernel=reader)
    """
    profile = profile or profile_of(record["profile"])
    if record["type"] == "product":
        return _product(record, space, profile)
    states, actions = _factors(record, space, profile, coded=True)
    if record["type"] == "trend":
        trend = Trend(record["trend"], record["difference"])
        return CategoryKernel(states, actions, trend, record["constant"])
    tasks = MultiTask(tuple(map(_tensor, record["loadings"])), tuple(map(_tensor, record["own"])))
    return CategoryKernel(states, actions, tasks, record["constant"])


def _product(record: Mapping[str, Any], space: Space, profile: Profile) -> ProductKernel:
    return ProductKernel(*_factors(record, space, profile), record["outputscale"])


def _factors(record: Mapping[str, Any], space: Space, profile: Profile, coded: bool = False) -> tuple[Factor, Factor]:
    """Restore the factors of a kernel from its record: one factor for the states, and one for the actions.

    Both have the correlation function `profile`. With `coded`, the factor of states keeps categories as integer codes,
    because the kernel has tables of their covariances.
    """
    states = Factor(Columns(space.state_categories, coded), _tensor(record["state_lengthscales"]), profile)
    warp = read_warp(record.get("warp"))
    return states, Factor(Columns(space.action_categories), _tensor(record["action_lengthscales"]), profile, warp)


def _noise(record: float | Mapping[str, Any], space: Space) -> float | HeteroscedasticNoise:
    if not isinstance(record, Mapping):
        return float(record)
    columns = Columns(space.state_categories + space.action_categories)
    return HeteroscedasticNoise(columns, record["log_level"], _tensor(record["slopes"]))


def _measured_record(values: Tensor) -> dict[str, Any]:
    """The record of an outcome, which is NaN in the trials that were not told it."""
    known = values.isfinite()
    return {"rows": known.nonzero()[:, 0].tolist(), "values": values[known].tolist()}


def _measured(record: Mapping[str, Any], n: int) -> Tensor:
    """The outcome (n,) of a record, with NaN in the trials that were not told it."""
    values = torch.full((n,), torch.nan, dtype=torch.float64)
    values[torch.tensor(record["rows"], dtype=torch.long)] = _tensor(record["values"])
    return values


def _seeds(record: Mapping[str, Any] | None) -> Seeds | None:
    return None if record is None else Seeds(torch.tensor(record["values"], dtype=torch.long), record["total"])


def _seed_effect(record: Mapping[str, Any], space: Space) -> SeedEffect:
    function = record["function"]
    kernel = None if function is None else _product(function, space, profile_of(function["profile"]))
    return SeedEffect(record["constant"], kernel, record["between"])


def _tensor(values: list[Any]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)
