"""What one more reward is worth in each state: the protocols and records of knowledge gradients.

If the reward of a candidate turns out to be z standard deviations above its prediction, where z ~ N(0, 1), the
posterior mean at another point becomes mean + slope z, a look-ahead line.  The gain of a state is the expected rise of
its highest posterior mean, which is the knowledge gradient in this state.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

from torch import Tensor

# mean and slope of lines (..., q), similarity of neighboring lines (..., q-1) → gain (...), ∂gain/∂slope (..., q)
Combine: TypeAlias = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class GainRule:
    """How the knowledge gradient in a state is estimated from look-ahead lines mean + slope z.

    A line is the posterior mean of an action after one more reward, if this reward is z standard deviations above its
    prediction. If `nodes` is None, there is one line for every action of a fixed pool. Otherwise `nodes` holds a few
    values of z, and there is one line for each of them: that of the action whose posterior mean is highest at this z.
    """

    nodes: Tensor | None  # (q,), values of z
    combine: Combine
    rough: Callable[[Tensor, Tensor], Tensor]  # mean and slope of any lines (..., lines) → rough estimate of the gain


class LookAheadLines(Protocol):
    """Posterior means of q actions in each of m states, as functions of one more reward at one of k candidates.

    If the new reward at a candidate is z standard deviations above its prediction, a posterior mean is `mean` +
    `slope` z.
    """

    @property
    def mean(self) -> Tensor:
        """Posterior means (k, m, q) of q actions in each of m states, for k candidates, before the new reward."""

    @property
    def slope(self) -> Tensor:
        """Slopes (k, m, q): how strongly posterior means react to a new reward at one of k candidates.

        The means are those of q actions in each of m states. If the new reward is z standard deviations above its
        prediction, a mean rises by slope · z.
        """

    def gradient(self, pull: Tensor) -> Tensor:
        """Return the gradients (k, d) of Σ pull · slope with respect to the k candidates.

        The sum is over q actions in each of m states, and `pull` (k, m, q) are its weights. A slope says how strongly
        the posterior mean of an action reacts to a new reward at the candidate. States, actions and weights are held
        fixed.
        """


class StateGains(Protocol):
    """Values of an acquisition function, such as the knowledge gradient, for k candidates in m states each.

    The class also computes gradients of the values with respect to the candidates.
    """

    @property
    def values(self) -> Tensor:
        """Values (k, m) of the acquisition function for k candidates in m states each."""

    def gradient(self, weights: Tensor) -> Tensor:
        """Return the gradients (k, d) of Σ_i weights[:, i] values[:, i] with respect to the k candidates.

        The sum, with `weights` (k, m), is over the m states.
        """


class StateValue(Protocol):
    """An acquisition function that says what one more reward is worth in each state, such as the knowledge gradient."""

    def rough(self, states: Tensor) -> Callable[[Tensor], Tensor]:
        """Return a fast function from candidates (r, d) to rough estimates of their values (r, m) in states (m, d_s).

        The values are those of the acquisition function, such as knowledge gradients.
        """

    def at(self, states: Tensor) -> Callable[[Tensor, Tensor], StateGains]:
        """Return a function from candidates (k, d) to their values in m states each, with gradients.

        The values are those of the acquisition function, such as knowledge gradients. `states` (r, m, d_s) holds r sets
        of m states. The function is called with the candidates and with indices (k,): the values of candidate i are
        those in the m states of set `indices[i]`.
        """


@runtime_checkable
class KnowsSeeds(Protocol):
    """A `StateValue` that may depend on the seed with which the new reward is simulated.

    A state value says what an evaluation is worth in each state; an example is the knowledge gradient.
    """

    @property
    def seen_seeds(self) -> tuple[int, ...]:
        """The simulator seeds of the observed rewards; empty if the value does not depend on seeds."""

    def for_seeds(self, seeds: Tensor) -> StateValue:
        """Return the value of evaluations whose rewards are simulated with these seeds.

        `seeds` is (1,), one seed for all candidates, or (c,), one seed for each of c candidates.
        """


@runtime_checkable
class AveragesValues(Protocol):
    """A `StateValue` that is the weighted sum of those of several models.

    A state value says what an evaluation is worth in each state.
    """

    @property
    def values(self) -> tuple[StateValue, ...]:
        """The state value of each model."""

    @property
    def weights(self) -> Tensor:
        """Weights (models,) of the models in the sum."""


@dataclass(frozen=True)
class LineGains:
    """Knowledge gradients of k candidates in m states each, estimated from q lines mean + slope z per state.

    A line is the posterior mean of one action if the reward at the candidate is z standard deviations above its
    prediction.
    """

    values: Tensor  # (k, m)
    derivative: Tensor  # (k, m, q), of the gains with respect to the slopes of the lines
    lines: LookAheadLines

    def gradient(self, weights: Tensor) -> Tensor:
        """Return the gradients (k, d) of Σ_i weights[:, i] values[:, i] with respect to the k candidates.

        The sum, with `weights` (k, m), is over the m states. The actions to which the lines belong are held fixed;
        by the envelope theorem, this does not change the gradients.
        """
        return self.lines.gradient(self.derivative * weights[..., None])
