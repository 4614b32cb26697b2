"""The view of a study: a snapshot of its trials and its fitted model, from which all plots are drawn."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from conbo.belief import Belief, ModelLike
from conbo.direction import sign_of
from conbo.errors import SettingError
from conbo.gaussian_process import GaussianProcess
from conbo.models.approximate import MOST_EXACT
from conbo.plots.axes import ParameterAxis, label
from conbo.plots.style import evenly
from conbo.policies import StatePolicy
from conbo.policies.gp_argmax import GpArgmax
from conbo.policies.policy import Policy
from conbo.policies.policy_value import mean_over_states, typical_states
from conbo.search.action_candidates import action_candidates
from conbo.search.path_peaks import path_peaks
from conbo.spaces import Array, Parameter, Point, Space, Value, closest
from conbo.study import Study
from conbo.study_summary import StudySummary, summarize
from conbo.threads import threads_for
from conbo.trials import Trial
from conbo.validation import Validation
from conbo.value_text import number_in_steps, step_between

DRAWS, FEATURES = 48, 512  # number of functions drawn from the posterior, and of random Fourier features of each
CANDIDATES = 128  # number of actions among which the maximum of a drawn function is searched for
CLIMB = 3  # number of steps of local search from the best of these actions
MOST_DESCRIBED = 1000  # largest number of observations whose hover labels show the whole point


@dataclass(frozen=True, eq=False)
class View:
    """The trials of a study at one moment, and the policy that was learned from them."""

    policy: Policy
    trials: tuple[Trial, ...]
    title: str = "Study"
    settings: Mapping[str, str] = field(default_factory=dict)  # settings of the study that are shown
    model: ModelLike = field(default_factory=GaussianProcess)  # the model that was fitted
    validations: tuple[Validation, ...] = ()  # validations by fresh evaluations
    _drawn: dict[bytes, Tensor] = field(default_factory=dict)  # cache of `best_of_draws`, by the bytes of its states

    @property
    def belief(self) -> Belief:
        """The belief (space, P[s], observations and fitted model) that the policy is based on."""
        return self.policy.belief

    @property
    def space(self) -> Space:
        """The space of the study, with its state and action parameters."""
        return self.belief.space

    @property
    def sign(self) -> int:
        """1 if rewards are maximized, -1 if they are minimized."""
        return sign_of(self.policy.maximize)

    @property
    def points(self) -> Tensor:
        """Observed points (n, d) in the unit cube, each a state followed by an action."""
        return self.belief.observations.points

    @property
    def rewards(self) -> Array:
        """Observed rewards (n,) as the user gave them, not negated even if they are minimized."""
        return self.belief.observations.rewards.numpy() * self.sign

    @cached_property
    def _rule(self) -> StatePolicy:
        return (self.policy.recipe or GpArgmax()).build(self.belief, torch.Generator().manual_seed(0))

    def actions(self, states: Tensor) -> Tensor:
        """The policy's actions (m, d_x) in states (m, d_s), both in the unit cube."""
        with threads_for(len(self.points)), torch.no_grad():
            return self.belief.feasible_actions(states, self._rule(states))

    def with_action(self, states: Tensor) -> Tensor:
        """Those of the states (m, d_s) in which an action is feasible."""
        feasible = self.space.feasible_set
        return states if feasible is None else states[torch.from_numpy(feasible.has_action(states.numpy()))]

    def mean(self, points: Tensor) -> Array:
        """The expected rewards (m,) at points (m, d), in the user's units; not negated even if they are minimized."""
        with threads_for(len(self.points)), torch.no_grad():
            mean = self.belief.to_reward(self.belief.predictive.mean(points)) * self.sign
        return mean.numpy()

    def predict(self, points: Tensor) -> tuple[Array, Array]:
        """The expected rewards (m,) at points (m, d) of the unit cube, and the standard deviations of the estimates."""
        with threads_for(len(self.points)), torch.no_grad():
            std = self.belief.scale * self.belief.predictive.variance(points).sqrt()
        return self.mean(points), std.numpy()

    def probability(self, points: Tensor) -> Array | None:
        """Probabilities (m,) that points (m, d) satisfy all learned constraints; None if there are no constraints."""
        with threads_for(len(self.points)), torch.no_grad():
            kept = self.belief.probability(points)
        return None if kept is None else kept.numpy()

    @cached_property
    def value(self) -> tuple[float, float]:
        """The policy's expected reward over P[s] under the model, and the standard deviation of that estimate."""
        states, _ = self.typical_states
        return self.value_of(self.belief, torch.cat([states, self.actions(states)], -1))

    def value_of(self, belief: Belief, points: Tensor) -> tuple[float, float]:
        """The expected reward over P[s] of a policy under `belief`, and the standard deviation of that estimate.

        `points` (m, d) are the states in the attribute `typical_states`, each with the policy's action in this state.
        """
        mean, std = mean_over_states(belief, points, self.typical_states[1])
        return mean * self.sign, std

    @cached_property
    def summary(self) -> StudySummary:
        """The summary of what was learned, as in `Study.summary`."""
        return summarize(self.belief, self.actions, self.policy.maximize)

    def best_of_draws(self, states: Tensor) -> Tensor | None:
        """The best actions (m, draws, d_x) of several functions drawn from the posterior, in m states (m, d_s).

        The result is None if functions cannot be drawn from the model. It is also None if the policy does not simply
        take the action with the best posterior mean, because it has another recipe or must satisfy learned constraints.
        """
        if self.policy.recipe is not None or self.belief.constraints is not None:
            return None
        belief, key = self.belief, states.numpy().tobytes()
        if key not in self._drawn:
            generator = torch.Generator().manual_seed(0)
            pool = torch.cat([action_candidates(belief, CANDIDATES, generator), self.actions(states)])
            with threads_for(len(self.points)), torch.no_grad():
                paths = belief.posterior.draw_paths(DRAWS, generator, FEATURES)
                if paths is None:
                    return None
                self._drawn[key] = path_peaks(belief, paths, pool, states, CLIMB)
        return self._drawn[key]

    def center(self, at: Point | None = None) -> Tensor:
        """The middle of P[s] in the unit cube (d_s,), but with the values in `at` for the parameters named there."""
        d_s = self.space.n_state_dims
        middle = self.belief.states.from_uniform(torch.full((1, d_s), 0.5, dtype=torch.float64))[0]
        for name, value in (at or {}).items():
            parameter = self.parameter(name, "states")
            valid = [parameter.validate(name, value)]
            middle[self.space.state_names.index(name)] = float(parameter.encode(valid)[0])
        return middle

    @cached_property
    def typical_states(self) -> tuple[Tensor, Tensor]:
        """States (m, d_s) and their weights (m,): all states if there are few, else a quasi-random sample of P[s]."""
        return typical_states(self.belief)

    def parameter(self, name: str, role: str) -> Parameter:
        """The parameter of this name; `role` is "states" or "actions"."""
        parameters: Mapping[str, Parameter] = getattr(self.space, role)
        if name not in parameters:
            raise SettingError(f"unknown {role[:-1]} '{name}': {closest(str(name), parameters)}")
        return parameters[name]

    def check_states(self, state: str | None, at: Point | None) -> None:
        """Raise SettingError unless `state`, if it is given, and all names in `at` are names of state parameters."""
        for name in (*([] if state is None else [state]), *(at or {})):
            self.parameter(name, "states")

    @cached_property
    def leave_one_out(self) -> tuple[Array, Array]:
        """Leave-one-out predictions of the n rewards, in the user's units: means (n,) and standard deviations (n,).

        Each reward is predicted from all others, with the hyperparameters that were fitted to all rewards. The standard
        deviation includes the noise of the reward. Raises SettingError if the model has no leave-one-out predictions,
        or if there are no rewards.
        """
        if not len(self.points):
            raise SettingError("leave-one-out predictions need a completed trial, but this study has none.")
        left_out = self.belief.posterior.leave_one_out()
        if left_out is None:
            most = f"and, with output warping or a `reward_range`, at most {MOST_EXACT:,} rewards"
            rule = f"leave-one-out predictions need a built-in model {most}"
            raise SettingError(f"{rule}, but this study has another model or more rewards.")
        above, std = (part.numpy() * self.belief.scale for part in left_out)
        return self.rewards - above * self.sign, std

    def axis(self, name: str) -> ParameterAxis:
        """The axis of a plot for the state or action parameter with this name."""
        role = "state" if name in self.space.states else "action"
        return ParameterAxis(role, name, self.parameter(name, f"{role}s"))

    def decode(self, points: Tensor) -> list[dict[str, Value]]:
        """Convert points (m, d) of the unit cube to dicts from names to values, states and actions together."""
        rows, d_s = points.numpy(), self.space.n_state_dims
        states, actions = self.space.decode_states(rows[:, :d_s]), self.space.decode_actions(rows[:, d_s:])
        return [{**state, **action} for state, action in zip(states, actions, strict=True)]

    def described(self, points: Tensor) -> list[str]:
        """The hover labels of points (m, d) of the unit cube, with one line for each state and action."""
        axes = [self.axis(name) for name in (*self.space.states, *self.space.actions)]
        return [
            "<br>".join(f"{label(axis.name)} {axis.text(values[axis.name])}" for axis in axes)
            for values in self.decode(points)
        ]

    @cached_property
    def texts(self) -> list[str]:
        """The hover label of every observation: its reward and, unless there are too many observations, its point."""
        step = step_between(self.rewards.tolist()) or 1.0
        rewards = [f"reward {number_in_steps(reward, step)}" for reward in self.rewards.tolist()]
        if len(rewards) > MOST_DESCRIBED:
            return rewards
        return [f"{point}<br>{reward}" for point, reward in zip(self.described(self.points), rewards, strict=True)]

    @cached_property
    def drawn(self) -> NDArray[np.intp]:
        """Indices of the observations that are drawn as dots: all or, if there are very many, evenly spaced ones."""
        return evenly(len(self.points))

    @cached_property
    def given_away(self) -> dict[str, float]:
        """For each parameter, the reward that the policy would lose if it got this parameter wrong, averaged over P[s].

        To get a state parameter wrong is to act as if it had another value, drawn from P[s]. To get an action parameter
        wrong is to choose its value uniformly at random. Rewards are the model's expectations, and negative losses are
        replaced by zero.
        """
        states, weights = self.typical_states
        generator = torch.Generator().manual_seed(0)
        best = self.actions(states)
        value = self.mean(torch.cat([states, best], -1))
        loss: dict[str, float] = {}
        other = states[torch.multinomial(weights, len(states), replacement=True, generator=generator)]
        for column, name in enumerate(self.space.state_names):
            mistaken = states.clone()
            mistaken[:, column] = other[:, column]
            got = self.mean(torch.cat([states, self.actions(mistaken)], -1))
            loss[name] = self._mean_loss(value - got, weights)
        chance = torch.rand(len(states), best.shape[1], generator=generator, dtype=torch.float64)
        chance = self.belief.snap_actions(chance)
        for column, name in enumerate(self.space.action_names):
            careless = best.clone()
            careless[:, column] = chance[:, column]
            loss[name] = self._mean_loss(value - self.mean(torch.cat([states, careless], -1)), weights)
        return loss

    def _mean_loss(self, lost: Array, weights: Tensor) -> float:
        return max(0.0, float(np.dot(weights.numpy(), lost)) * self.sign)

    def most_important(self, role: str, name: str | None = None) -> str:
        """The name of the state or action parameter that matters most for the reward; see `given_away`.

        `role` is "states" or "actions". If a `name` is given, it is checked and returned instead.
        """
        if name is not None:
            self.parameter(name, role)
            return name
        return max(getattr(self.space, role), key=self.given_away.__getitem__)


Studied: TypeAlias = Study | View


def view_of(study: Studied) -> View:
    """Make the view of a study as it is now; an argument that is already a view is returned unchanged."""
    if isinstance(study, View):
        return study
    if not isinstance(study, Study):
        raise SettingError(f"`study` must be a Study, but got {study!r}.")
    settings = {"method": study.method, "direction": study.direction, "seed": str(study.seed)}
    title = study.name if study.name != "default" else "Study"
    validations = tuple(study.validations())
    return View(study.policy(), study.trials, title, settings, study.model, validations)
