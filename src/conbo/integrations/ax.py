"""The bridge to Ax: conbo suggests the trials of an Ax `Client`'s experiment, and learns from their results.

| Ax                              | conbo                                                  |
|---------------------------------|--------------------------------------------------------|
| range parameter                 | Real or Integer, on its linear or log scale            |
| choice parameter                | Categorical                                            |
| fixed parameter                 | no parameter; its value is added to suggestions        |
| parameter constraint            | constraint of the space                                |
| objective "profit", "-loss"     | maximize, minimize                                     |
| completed trial, mean and sem   | completed trial; noise variance sem² if sem is known   |
| failed or abandoned trial       | failed trial, if conbo suggested it; otherwise ignored |
| NaN or infinite mean            | failed trial, if conbo suggested it; otherwise ignored |
| infinite sem                    | failed trial, if conbo suggested it; otherwise ignored |
| arm outside the search space    | ignored                                                |
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from conbo.errors import ConboError, PointError, SettingError
from conbo.notices import LOG
from conbo.setting_rules import refuse_given
from conbo.spaces import Categorical, Integer, Parameter, Point, Real, Space, Value, closest
from conbo.study import Study
from conbo.trials import LARGEST_REWARD, Trial

try:
    from ax.api.client import Client
    from ax.core.parameter import ChoiceParameter, FixedParameter, ParameterType, RangeParameter
    from ax.core.parameter import Parameter as AxParameter
    from ax.core.trial_status import TrialStatus
except ModuleNotFoundError as error:
    needed = "`conbo.integrations.ax` needs ax-platform, which is not installed: pip install 'conbo[ax]'"
    raise ConboError(needed) from error

if TYPE_CHECKING:
    from conbo.policies.policy import Policy

__all__ = ["AxBridge"]

NOTHING_LEARNED = "Nothing is learned from trial %d of Ax, because %s"
ROUNDING = 1e-9  # largest difference of equal rewards, because saved experiments have ten decimals


class AxBridge:
    """Connects an Ax experiment with a conbo study, which suggests the experiment's trials and learns from the results.

    The experiment must already have its parameters and one objective. Trials of the experiment that are already
    completed are added to the study, whoever suggested them. After a restart with a stored study and a saved
    experiment, both go on, and no trial is added twice.

    Parameters
    ----------
    client
        The client of the experiment.
    states
        Names of the parameters that are states. All others are actions.
    settings
        Further settings of `conbo.Study`, such as `state_distribution`, `seed` and `storage`.

    Raises
    ------
    SettingError
        If a state is not a parameter, or the experiment has a feature that conbo does not support, such as several
        objectives.

    Examples
    --------
    >>> bridge = AxBridge(client, states=["demand"])  # doctest: +SKIP
    >>> for index, parameters in bridge.get_next_trials(2).items():  # doctest: +SKIP
    ...     client.complete_trial(index, raw_data={"profit": profit(parameters)})
    """

    def __init__(self, client: Client, states: Sequence[str], **settings: Any) -> None:
        refuse_given(settings, "Ax")
        self.client = client
        experiment = client._experiment
        known = experiment.search_space.parameters
        if unknown := [name for name in states if name not in known]:
            hint = closest(unknown[0], known)
            raise SettingError(f"a state must be a parameter of the experiment, but got {unknown[0]!r}: {hint}")
        fixed = [each for each in known.values() if isinstance(each, FixedParameter)]
        self._fixed: dict[str, Any] = {each.name: each.value for each in fixed}
        parameters = {name: _parameter(each) for name, each in known.items() if name not in self._fixed}
        roles: tuple[dict[str, Parameter], dict[str, Parameter]] = (
            {name: parameters[name] for name in states if name in parameters},
            {name: each for name, each in parameters.items() if name not in states},
        )
        constraints = [
            _text(each.constraint_dict, each.bound) for each in experiment.search_space.parameter_constraints
        ]
        self._metric, minimize = _objective(client)
        direction = "minimize" if minimize else "maximize"
        self.study = Study(Space(*roles, constraints), direction=direction, **settings)  # type: ignore[arg-type]
        self._numbers = self._matches()  # from indices of Ax's trials to numbers of conbo's
        self._useless: set[int] = set()  # indices of completed trials from which the study cannot learn
        self.sync()

    def get_next_trials(self, max_trials: int = 1, state: Point | None = None) -> dict[int, dict[str, Value]]:
        """Suggest new trials and attach them to the experiment, as `client.get_next_trials` does.

        Parameters
        ----------
        max_trials
            Number of trials.
        state
            The state that the environment has set; by default the method chooses it.

        Returns
        -------
        dict
            Parameter values by trial index.

        Raises
        ------
        PointError
            If the state does not belong to the space or has no feasible action.
        """
        self.sync()
        attached: dict[int, dict[str, Value]] = {}
        for trial in self.study.ask(max_trials, state):
            parameters = {**self._fixed, **trial.state, **trial.action}
            index = self.client.attach_trial(parameters)
            self._numbers[index] = trial.number
            attached[index] = parameters
        return attached

    def sync(self) -> None:
        """Tell the study those results and failures of the experiment's trials that the study does not know yet.

        Completed trials, including those that Ax stopped early, are added to the study if it did not suggest them. A
        trial is skipped, with a warning, if it is outside the space, if its mean is NaN or infinite, if its sem is
        infinite, or if it has a sem although earlier trials have none, or the reverse. If the study suggested the
        trial, it is canceled then, but it has failed if its mean is NaN or infinite. Failed trials of Ax are failures
        from which the study learns; abandoned ones are canceled.
        """
        trials, results = {trial.number: trial for trial in self.study.trials}, self._results()
        for index, ax_trial in self.client._experiment.trials.items():
            known = trials.get(self._numbers.get(index, -1))
            if index in self._useless or (known is not None and known.status != "running"):
                continue
            if index in results and ax_trial.status in (TrialStatus.COMPLETED, TrialStatus.EARLY_STOPPED):
                self._tell(index, known, results[index])
            elif known is not None and ax_trial.status == TrialStatus.FAILED:
                self.study.fail(known, ax_trial.status_reason or "failed")
            elif known is not None and ax_trial.status == TrialStatus.ABANDONED:
                self.study.fail(known)

    def policy(self) -> Policy:
        """Learn the best action for every state from the experiment's results so far.

        Returns
        -------
        Policy
            A function from states to actions.

        Raises
        ------
        ConboError
            If no trial is completed yet, unless the study has a `prior`.
        """
        self.sync()
        return self.study.policy()

    def _matches(self) -> dict[int, int]:
        """Numbers of the study's trials by indices of Ax's trials, where a stored study already has trials.

        Two trials match if they have the same parameters, and the study's trial has no other reward than Ax's trial, up
        to the rounding of saved experiments. Each matches once, in their order.
        """
        matches: dict[int, int] = {}
        left, results = list(self.study.trials), self._results()
        for index, ax_trial in self.client._experiment.trials.items():
            values, mean = dict(ax_trial.arms[0].parameters), results.get(index, (math.nan, None))[0]
            same = [trial for trial in left if values == {**self._fixed, **trial.state, **trial.action}]
            distances = [(_distance(trial.reward, mean), trial.number, trial) for trial in same]
            distance, _, trial = min(distances, default=(math.inf, 0, None))
            if trial is not None and distance < math.inf:
                matches[index] = trial.number
                left.remove(trial)
        return matches

    def _tell(self, index: int, known: Trial | None, result: tuple[float, float | None]) -> None:
        mean, variance = result
        failed = "" if abs(mean) <= LARGEST_REWARD else f"the mean of '{self._metric}' is {mean}"
        wrong = failed
        if variance is not None and not math.isfinite(variance):
            wrong = f"the variance of '{self._metric}' is {variance}"
        told = next((trial for trial in self.study.trials if trial.status == "completed"), None)
        if told is not None and (told.noise is None) != (variance is None):
            wrong = f"'{self._metric}' has {'no' if variance is None else 'a'} sem, unlike in earlier trials"
        if known is not None:
            if failed:
                self.study.fail(known, failed)
            elif wrong:
                LOG.warning(NOTHING_LEARNED, index, wrong)
                self.study.fail(known)
            else:
                self.study.tell(known, *result)
            return
        (arm,) = self.client._experiment.trials[index].arms
        values: Mapping[str, Any] = arm.parameters
        space = self.study.space
        state, action = ({name: values[name] for name in names} for names in (space.states, space.actions))
        try:
            space.validate_state(state)
            space.validate_action(action)
        except PointError as error:
            wrong = f"it is outside the space: {error}"
        if wrong:
            self._useless.add(index)
            LOG.warning(NOTHING_LEARNED, index, wrong)
        else:
            self._numbers[index] = self.study.add_trial(state, action, *result).number

    def _results(self) -> dict[int, tuple[float, float | None]]:
        """The measured mean of the objective and the variance of this mean (None if unknown), by trial index."""
        frame = self.client._experiment.lookup_data().df
        rows = frame[frame["metric_name"] == self._metric]
        pairs = zip(rows["trial_index"], rows["mean"], rows["sem"], strict=True)
        return {int(i): (float(mean), None if math.isnan(sem) else float(sem) * float(sem)) for i, mean, sem in pairs}


def _distance(reward: float | None, mean: float) -> float:
    """How far a trial's reward is from Ax's mean (NaN if there is none); infinite if they differ by more than rounding.

    A trial without a reward may get one later, so it is as near as possible, but not as near as an equal reward.
    """
    if reward is None:
        return ROUNDING
    apart = abs(reward - mean)
    return apart if apart <= ROUNDING * max(1.0, abs(mean)) else math.inf


def _objective(client: Client) -> tuple[str, bool]:
    """The name of the objective's metric, and whether it is minimized."""
    config = client._experiment.optimization_config
    if config is None:
        raise SettingError("the experiment must have an objective, but has none: call client.configure_optimization.")
    if not config.objective.is_single_objective or len(config.objective.metric_names) != 1:
        raise SettingError(f"the experiment must have one objective, but has {config.objective.expression!r}.")
    if config.outcome_constraints:
        raise SettingError(f"the experiment must have no outcome constraints, but has {config.outcome_constraints}.")
    return config.objective.metric_names[0], config.objective.minimize


def _parameter(parameter: AxParameter) -> Parameter:
    if isinstance(parameter, RangeParameter):
        kind = Integer if parameter.parameter_type == ParameterType.INT else Real
        return kind(parameter.lower, parameter.upper, parameter.log_scale)  # type: ignore[arg-type]
    if isinstance(parameter, ChoiceParameter) and not parameter.is_hierarchical:
        return Categorical(parameter.values)  # type: ignore[arg-type]
    raise SettingError(f"a parameter must be a range or a choice that no other depends on, but got {parameter!r}.")


def _text(weights: Mapping[str, float], bound: float) -> str:
    """Write the linear constraint Σ weight · parameter ≤ bound as a string that `conbo.Space` accepts."""
    terms = " + ".join(f"{weight!r} * '{name}'" for name, weight in weights.items())
    return f"{terms} <= {bound!r}".replace("+ -", "- ")
