"""The protocols of a model before it is fitted: `Model`, and `FitsInSteps` for models that reuse earlier fits."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from conbo.models.fit_memory import FitMemory
from conbo.models.posterior import Posterior
from conbo.observations import Observations
from conbo.spaces import Space


class Model(Protocol):
    """The type of a model: anything that can be fitted to rewards, such as `GaussianProcess`.

    Examples
    --------
    >>> model: conbo.Model = conbo.GaussianProcess()
    """

    def fit(self, space: Space, observations: Observations) -> Posterior:
        """Fit the model.

        Parameters
        ----------
        space
            The space of states and actions.
        observations
            Points in the unit cube and standardized rewards.

        Returns
        -------
        Posterior
            The fitted model, as the rest of conbo uses it.
        """


@runtime_checkable
class FitsInSteps(Protocol):
    """A model that can keep its hyperparameters while new rewards come in, and fits them again only now and then."""

    def fitted_rewards(self, n: int) -> int:
        """Return a number m of rewards: the first m of n are used to fit hyperparameters and to standardize rewards."""

    def begins_with(self, n: int) -> int:
        """Return a number m of rewards: the fit to n rewards starts from the fit to the first m of them.

        If m = n, the fit starts from scratch.
        """

    def fit_and_average(
        self,
        space: Space,
        observations: Observations,
        memory: FitMemory | None = None,
        before: Observations | None = None,
    ) -> tuple[Posterior, Callable[[], Posterior] | None]:
        """Return the posterior, and a function that returns its average over hyperparameters.

        The function is None if there is no such average. A `memory` of earlier fits saves time and does not change the
        result. If this fit starts from a fit to the first m observations, `before` holds these m observations,
        standardized by their own mean and standard deviation.
        """
