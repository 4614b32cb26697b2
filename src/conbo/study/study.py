"""A study: an objective, evaluated where it teaches most about the best action of every state."""

from collections.abc import Callable
from typing import Any, TypeAlias, overload

from conbo.belief import Model
from conbo.errors import ConboError, SettingError, SpaceError
from conbo.method_table import DEFAULT_METHOD, Method
from conbo.optimizer import DEFAULT_MODEL, Direction, Optimizer, at_least
from conbo.policies.policy import Policy
from conbo.spaces import Point, Space, Value
from conbo.state_distributions import RecipeLike
from conbo.study.progress import Progress
from conbo.trials import Trial

# (state, action) → reward; in a space without states the state is {}
Objective: TypeAlias = Callable[[dict[str, Value], dict[str, Value]], float]

MOST_FAILURES = 10  # in a row, after which a run gives up
COLUMNS = ("number", "reward", "status")  # of the observations, beside the parameters


class Study:
    """Learns the best action for every state; the settings are those of `Optimizer`."""

    def __init__(
        self,
        space: Space,
        direction: Direction = "maximize",
        method: str | Method = DEFAULT_METHOD,
        state_distribution: RecipeLike = None,
        model: Model = DEFAULT_MODEL,
        seed: int = 0,
        initial: int | None = None,
    ) -> None:
        self._optimizer = Optimizer(space, state_distribution, method, model, seed, initial, direction)
        if taken := [name for name in (*space.states, *space.actions) if name in COLUMNS]:
            raise SpaceError(f"a parameter must not be named like a column of the observations: '{taken[0]}'.")

    @property
    def space(self) -> Space:
        """The states and actions."""
        return self._optimizer.space

    @property
    def trials(self) -> tuple[Trial, ...]:
        """All trials with all that is recorded of them."""
        return self._optimizer.trials

    @property
    def observations(self) -> list[dict[str, Any]]:
        """All trials as rows of a table: number, states, actions, reward and status."""
        return [
            {"number": t.number, **t.state, **t.action, "reward": t.reward, "status": t.status} for t in self.trials
        ]

    @overload
    def ask(self, *, state: Point | None = None) -> Trial: ...
    @overload
    def ask(self, n: int, state: Point | None = None) -> list[Trial]: ...
    def ask(self, n: int | None = None, state: Point | None = None) -> Trial | list[Trial]:
        """One new trial, or a list of n; `state` is one that the environment dictates."""
        trials = self._optimizer.ask(1 if n is None else n, state)
        return trials[0] if n is None else trials

    def tell(self, trial: Trial | int, reward: float, noise: float | None = None) -> None:
        """The reward of a trial (or of its number), and the reward's variance where it is known.

        A variance is given for all trials or for none; to repeat what was told does nothing.
        """
        self._optimizer.tell(trial, reward, noise)

    def fail(self, trial: Trial | int, error: str = "") -> None:
        """A trial (or its number) that will not have a reward."""
        self._optimizer.fail(trial, error)

    def policy(self) -> Policy:
        """The best action for every state, by what was told up to now."""
        return self._optimizer.policy()

    def run(self, objective: Objective, evaluations: int = 80, progress: bool = True) -> None:
        """Evaluate `objective(state, action)` until the study has so many completed trials in total.

        In a space without states the state is {}. Where the objective raises, or returns anything but one
        finite number, that trial has failed and the run goes on. Ctrl-C ends the run and keeps all rewards.
        """
        at_least(1, "evaluations", evaluations)
        if not callable(objective):
            raise SettingError(f"`objective` must be a function of state and action, but got {objective!r}.")
        failures = 0
        optimizer = self._optimizer
        with Progress(optimizer.n_completed, evaluations, optimizer.policy_value, progress) as bar:
            try:
                while optimizer.n_completed < evaluations:
                    error = self._evaluate(objective)
                    if error is None:
                        failures = 0
                        bar.advance()
                        continue
                    failures += 1
                    if failures == MOST_FAILURES:
                        raise ConboError(f"the objective failed {failures} times in a row: {error}") from error
            except KeyboardInterrupt:
                bar.note(f"Interrupted: {optimizer.n_completed} of {evaluations} evaluations are kept.")

    def _evaluate(self, objective: Objective) -> Exception | None:
        """Run one trial; the error, if it failed."""
        trial = self.ask()
        try:
            self.tell(trial, objective(dict(trial.state), dict(trial.action)))
        except Exception as error:
            self.fail(trial, f"{type(error).__name__}: {error}")
            return error
        except BaseException:
            self.fail(trial, "interrupted")
            raise
        return None
