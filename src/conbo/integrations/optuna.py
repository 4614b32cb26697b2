"""The bridge to Optuna: a sampler that learns the best action of every state, and functions for Optuna's studies.

Trial k of the Optuna study is trial k of a conbo optimizer. So suggestions depend only on the seed, the trial's number
and the rewards, and a study can be continued in another process as if it had never stopped. Suggestions are stored in
the trial's system attributes, where all workers see which points are pending. The functions work with a study of
any sampler: `policy` learns a policy from it, and `from_optuna` makes a conbo study from it.
"""

from __future__ import annotations

import math
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from conbo.direction import Direction
from conbo.errors import ConboError, PointError, RewardError, SettingError, StudyError
from conbo.method_list import DEFAULT_METHOD, Method, listed
from conbo.optimizer import Optimizer
from conbo.outcome_constraints import DEFAULT_CONFIDENCE, AtMost, LearnedSettings, checked_confidence
from conbo.setting_rules import at_least, refuse_given
from conbo.spaces import Space, Value
from conbo.state_distributions import MarginalRecipe, Product, Uniform
from conbo.state_marginals import marginal
from conbo.study import Study
from conbo.study.trial_rows import MEASURED
from conbo.trials import Trial

try:
    import optuna
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler
    from optuna.study import StudyDirection
    from optuna.trial import FrozenTrial, TrialState
except ModuleNotFoundError as error:
    needed = "`conbo.integrations.optuna` needs optuna, which is not installed: pip install 'conbo[optuna]'"
    raise ConboError(needed) from error

from conbo.integrations.optuna_space import (
    common_distributions,
    on_steps,
    parameter_of,
    params_of,
    point_of,
    space_of,
    steps_of,
    warn_of_strings,
)
from conbo.integrations.optuna_trials import CONSTRAINTS, SUGGESTED, constraints_of, trials_of

if TYPE_CHECKING:
    from conbo.belief import ModelLike
    from conbo.policies.policy import Policy

__all__ = ["ConboSampler", "from_optuna", "policy"]

StatesLike = Mapping[str, MarginalRecipe] | Iterable[str]


@dataclass(frozen=True)
class _Roles:
    """The parameters that are states, with the marginals of P[s] (no Optuna distributions), and known limits."""

    states: dict[str, MarginalRecipe]
    constraints: tuple[str, ...] = ()

    def space(self, distributions: dict[str, BaseDistribution]) -> Space | None:
        """The space of parameters with these Optuna distributions.

        The result is None if there are no distributions, or if no action has more than one value.
        """
        return space_of(distributions, tuple(self.states), self.constraints) if distributions else None

    def recipe(self, space: Space) -> Product:
        """The distribution P[s] of the states: the product of their marginal distributions."""
        return Product({name: recipe for name, recipe in self.states.items() if name in space.states})


class ConboSampler(BaseSampler):
    """An Optuna sampler that chooses states and actions to learn the best action of every state.

    Until a trial is completed, points are random, because only completed trials show which parameters there are. Pruned
    and failed trials have no reward. If a trial was enqueued with fixed values of all states, the sampler chooses the
    action for this state.

    Parameters
    ----------
    states
        Names of the parameters that are states, or a mapping from these names to the distributions of the states, such
        as ``{"demand": conbo.Triangular(60)}``. All other parameters are actions.
    constraints
        Known limits on actions, as in `conbo.Space`. The random trials at the beginning ignore them.
    constraints_func
        A function for limits on outcomes, as in Optuna's own samplers. It is called with every completed or pruned
        trial, and returns values that are at most zero if the trial satisfies the limits. Values that an objective sets
        by `trial.set_constraint` (Optuna 5) are used even without this function. The policy satisfies the limits with a
        probability of at least `confidence`.
    confidence
        As in `conbo.Study`.
    method, model, initial
        As in `conbo.Study`.
    seed
        Seed of all suggestions; by default a random one.

    Raises
    ------
    SettingError
        If `states` is not a collection of names, `seed` is negative, or `constraints_func` is given but the method
        cannot satisfy limits on outcomes.
    SpaceError
        When a trial begins: if trials have different parameters (a conditional space), or a state is not one of them.

    Examples
    --------
    >>> from conbo.integrations.optuna import ConboSampler
    >>> ConboSampler(states=["demand"], seed=0).states
    {'demand': Uniform()}
    """

    def __init__(
        self,
        states: StatesLike,
        *,
        constraints: Sequence[str] = (),
        constraints_func: Callable[[FrozenTrial], Sequence[float]] | None = None,
        confidence: float = DEFAULT_CONFIDENCE,
        method: str | Method = DEFAULT_METHOD,
        model: ModelLike | None = None,
        seed: int | None = None,
        initial: int | None = None,
    ) -> None:
        self._roles = _Roles(_states(states), tuple(constraints))
        self._constraints_func = constraints_func
        if constraints_func is not None:
            known = method if isinstance(method, Method) else listed(method)
            name = method.name if isinstance(method, Method) else method
            LearnedSettings({"constraint_0": AtMost(0.0)}).check_method(name, known.keeps_constraints)
        confidence = checked_confidence(confidence)
        self._settings = {"method": method, "model": model, "initial": initial, "confidence": confidence}
        self._seed = secrets.randbits(32) if seed is None else at_least(0, "seed", seed)
        self._optimizer: Optimizer | None = None
        self._lock = threading.RLock()  # held during a suggestion, so that the next thread sees it as pending

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_optimizer": None, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.RLock())

    @property
    def states(self) -> dict[str, MarginalRecipe]:
        """The distributions of the states, by name."""
        return dict(self._roles.states)

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """The distributions of the parameters of completed trials, without parameters that have only one value.

        The result is empty before the first trial is completed, or if no action has more than one value.
        """
        self._raise_error_if_multi_objective(study)
        distributions = common_distributions(study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)))
        space = self._roles.space(distributions)
        return {} if space is None else {name: distributions[name] for name in (*space.states, *space.actions)}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The values of state and action parameters that conbo suggests for a trial."""
        self._raise_error_if_multi_objective(study)
        if not search_space:
            return {}
        with self._lock:
            distributions = common_distributions(study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)))
            optimizer = self._up_to_date(study, trial.number, distributions)
            fixed = trial.system_attrs.get("fixed_params", {})
            given = _given_state(optimizer.space, fixed, distributions)
            suggested = optimizer.suggest(state=given).trials[0]
            params = on_steps(optimizer.space, suggested.state, suggested.action, distributions)
            for name, value in params.items():
                study._storage.set_trial_system_attr(trial._trial_id, f"{SUGGESTED}{name}", fixed.get(name, value))
        return {name: value for name, value in params.items() if name in search_space}

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """A random value for a parameter that `sample_relative` has no usable value for.

        The parameter may be in no completed trial yet, or its range may have changed. A state parameter is drawn from
        its state distribution, an action parameter uniformly.
        """
        self._raise_error_if_multi_objective(study)
        generator = np.random.default_rng([self._seed, trial.number, *param_name.encode()])
        parameter = parameter_of(param_distribution)
        distribution = marginal(param_name, parameter, self._roles.states.get(param_name, Uniform()))
        (value,) = parameter.decode(distribution.quantile(generator.random(1)))
        return params_of({param_name: value}, {param_name: param_distribution})[param_name]

    def after_trial(
        self, study: optuna.Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        """Store the values of `constraints_func` in a completed or pruned trial, as Optuna's own samplers do."""
        if self._constraints_func is None or state not in (TrialState.COMPLETE, TrialState.PRUNED):
            return
        found = self._constraints_func(trial)
        if any(math.isnan(value) for value in found):
            raise RewardError(f"`constraints_func` must return no NaN, but got {found!r} for trial {trial.number}.")
        study._storage.set_trial_system_attr(trial._trial_id, CONSTRAINTS, [float(value) for value in found])

    def _up_to_date(self, study: optuna.Study, number: int, distributions: dict[str, BaseDistribution]) -> Optimizer:
        """An optimizer that knows the trials on which the suggestion of trial `number` depends.

        These are all trials with lower numbers. Once the initial design is evaluated, trials with higher numbers, which
        other workers have begun in the meantime, are included too, unless they have failed.
        """
        found = study.get_trials(deepcopy=False)
        optimizer = _optimizer(study, found, distributions, self._roles, self._seed, self._settings)
        if self._optimizer is not None and _alike(self._optimizer, optimizer):
            optimizer = self._optimizer  # reuse the previous optimizer, because it has cached its fits
        trials = trials_of(found, optimizer.space, distributions)
        optimizer.restore(trials[:number])
        later = [trial for trial in trials[number + 1 :] if trial.status != "failed"]
        if later and optimizer.n_completed >= optimizer.initial:
            optimizer.adopt(replace(trial, number=k) for k, trial in enumerate(later, start=number))
        self._optimizer = optimizer
        return optimizer


def policy(study: optuna.Study, states: StatesLike | None = None) -> Policy:
    """Learn the best action for every state from the completed trials of an Optuna study.

    Parameters
    ----------
    study
        The study; its trials may come from any sampler.
    states
        As in `ConboSampler`; by default the states of the study's sampler, if it is a `ConboSampler`.

    Returns
    -------
    Policy
        A function from states to actions.

    Raises
    ------
    SettingError
        If `states` is not given and the sampler of the study is not a `ConboSampler`.
    SpaceError
        If the trials do not have the same parameters, or a state is not one of them.
    ConboError
        If no trial is completed yet, or no action has more than one value.

    Examples
    --------
    >>> from conbo.integrations.optuna import policy
    >>> policy(optuna_study, states=["demand"])({"demand": 60})
    {'stock': ...}
    """
    roles, settings = _known_roles(study, states)
    distributions = common_distributions(study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)))
    if not distributions:
        raise ConboError("a policy needs at least one completed trial, but there is none.")
    warn_of_strings(distributions)
    found = study.get_trials(deepcopy=False)
    optimizer = _optimizer(study, found, distributions, roles, 0, settings)
    optimizer.restore(trials_of(found, optimizer.space, distributions))
    learned, steps = optimizer.policy(), steps_of(distributions, optimizer.space.actions)
    if not steps or learned.recipe is not None:
        return learned
    from conbo.policies.on_steps import OnSteps
    from conbo.policies.policy import Policy

    return Policy(learned.belief, learned.maximize, OnSteps(*zip(*steps, strict=True)))


def from_optuna(study: optuna.Study, states: StatesLike | None = None, **settings: Any) -> Study:
    """Make a conbo study from the completed trials of an Optuna study.

    Parameters
    ----------
    study, states
        As in `policy`.
    settings
        Further settings of `conbo.Study`, such as `storage` and `seed`.

    Returns
    -------
    Study
        A new study with the completed trials.

    Raises
    ------
    SettingError
        If `states` is not given and the sampler of the study is not a `ConboSampler`, if the study has several
        objectives, or if the settings include `space` or `direction`, which are Optuna's.
    SpaceError
        If the trials do not have the same parameters, or a state is not one of them.
    StudyError
        If the `storage` has a study of this name with other settings or with trials.
    ConboError
        If no trial is completed yet, or no action has more than one value.

    Examples
    --------
    >>> from conbo.integrations.optuna import from_optuna
    >>> len(from_optuna(optuna_study, states=["demand"]).trials)
    4
    """
    refuse_given(settings, "Optuna")
    roles, of_sampler = _known_roles(study, states)
    distributions = common_distributions(study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)))
    space = roles.space(distributions)
    if space is None:
        raise ConboError("a study needs at least one completed trial with an action, but there is none.")
    warn_of_strings(distributions)
    found = study.get_trials(deepcopy=False)
    own = {"state_distribution": roles.recipe(space), "outcome_constraints": constraints_of(found)}
    made = Study(space, direction=_direction(study), **{**own, **of_sampler, **settings})
    if made.trials:
        raise StudyError(
            f"the study '{made.name}' must be new, but has trials already: "
            "choose another `name`, or open it with `conbo.open_study`."
        )
    trials = [trial for trial in trials_of(found, space, distributions) if trial.status == "completed"]
    made.add_trials([{**trial.state, **trial.action, "reward": trial.reward, **_columns(trial)} for trial in trials])
    return made


def _states(states: StatesLike) -> dict[str, MarginalRecipe]:
    if isinstance(states, str) or not isinstance(states, Iterable):
        raise SettingError(f"`states` must be names of parameters, or a mapping from these, but got {states!r}.")
    named = states if isinstance(states, Mapping) else dict.fromkeys(states, Uniform())
    return dict(Product(named).marginals)


def _known_roles(study: optuna.Study, states: StatesLike | None) -> tuple[_Roles, dict[str, Any]]:
    """Return the roles of the parameters, and the settings of the study's sampler ({} if it is not a `ConboSampler`).

    The roles say which parameters are states: `states` or, if that is None, the states of the sampler.
    """
    sampler = study.sampler
    if isinstance(sampler, ConboSampler):
        roles = sampler._roles if states is None else replace(sampler._roles, states=_states(states))
        return roles, dict(sampler._settings)
    if states is None:
        kind = type(sampler).__name__
        raise SettingError(f"`states` must be given unless the study's sampler is a ConboSampler, but got {kind}.")
    return _Roles(_states(states)), {}


def _optimizer(
    study: optuna.Study,
    found: Sequence[FrozenTrial],
    distributions: dict[str, BaseDistribution],
    roles: _Roles,
    seed: int,
    settings: Mapping[str, Any],
) -> Optimizer:
    space = roles.space(distributions)
    if space is None:
        raise ConboError("there must be an action with more than one value, but there is none.")
    return Optimizer(
        space,
        direction=_direction(study),
        state_distribution=roles.recipe(space),
        seed=seed,
        outcome_constraints=constraints_of(found),
        **settings,
    )


def _direction(study: optuna.Study) -> Direction:
    if len(study.directions) > 1:
        raise SettingError(f"the study must have one objective, but has {len(study.directions)}.")
    return "maximize" if study.direction == StudyDirection.MAXIMIZE else "minimize"


def _alike(a: Optimizer, b: Optimizer) -> bool:
    return (a.space, a.maximize, a.initial, a.learned) == (b.space, b.maximize, b.initial, b.learned)


def _given_state(
    space: Space, fixed: Mapping[str, Any], distributions: dict[str, BaseDistribution]
) -> dict[str, Value] | None:
    """The state of a trial that was enqueued with valid values of all states (in `fixed`); None for other trials."""
    if not space.states or not fixed.keys() >= space.states.keys():
        return None
    with suppress(PointError, ValueError):  # Optuna accepts fixed values out of range with a warning
        return space.validate_state(point_of(fixed, distributions, space.states))
    return None


def _columns(trial: Trial) -> dict[str, float]:
    """The measured outcomes of a trial by column name, as `Study.add_trials` reads them."""
    return {f"{MEASURED}{name}": value for name, value in trial.measured.items()}
