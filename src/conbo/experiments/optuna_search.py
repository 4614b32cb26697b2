"""Searches for the best action of one state with Optuna's Gaussian-process sampler. Needs the extra `optuna`."""

from collections.abc import Sequence
from dataclasses import dataclass

from conbo.errors import ConboError
from conbo.experiments.state_search import Parameters, best_observed
from conbo.spaces import Categorical, Integer, Parameter, Point, Value

try:
    import optuna
    from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
except ModuleNotFoundError as error:
    needed = "this alternative needs optuna, which is not installed: pip install 'conbo[optuna]'"
    raise ConboError(needed) from error


@dataclass(frozen=True)
class OptunaSearch:
    """The search with Optuna for the best action of one state.

    The Optuna study is rebuilt for every suggestion, from the results so far, so that a run can be continued
    after any evaluation.
    """

    actions: Parameters
    exact: bool  # whether rewards have no noise; the sampler is told so

    def suggest(self, tried: Sequence[tuple[Point, float]], seed: int) -> dict[str, Value]:
        """The next action to evaluate, given the actions tried so far with their rewards."""
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        distributions = {name: _distribution(parameter) for name, parameter in self.actions.items()}
        sampler = optuna.samplers.GPSampler(seed=seed, n_startup_trials=1, deterministic_objective=self.exact)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        for action, reward in tried:
            one = optuna.trial.create_trial(params=dict(action), distributions=distributions, value=reward)
            study.add_trial(one)
        return dict(study.ask(distributions).params)

    def best(self, tried: Sequence[tuple[Point, float]]) -> dict[str, Value]:
        """The best observed action, which is Optuna's `study.best_params`."""
        return best_observed(tried)


def _distribution(parameter: Parameter) -> BaseDistribution:
    if isinstance(parameter, Categorical):
        return CategoricalDistribution(parameter.choices)
    if isinstance(parameter, Integer):
        return IntDistribution(parameter.low, parameter.high, log=parameter.log)
    return FloatDistribution(parameter.low, parameter.high, log=parameter.log)
