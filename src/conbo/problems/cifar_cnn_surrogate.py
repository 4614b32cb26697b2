"""A surrogate of `cifar_cnn` that needs neither images nor a GPU: a regression on a table of training runs.

A training run may collapse, so that the network guesses and its accuracy is one half. The probability of this is a
logistic function of data set and hyperparameters. Otherwise the accuracy's logit, log(accuracy / (1 - accuracy)), is
normally distributed:

- The logit's mean is predicted by a Gaussian process on the table, with the kernel of the ConBO paper's CNN section.
  The process is the sum of a trend that all data sets share, a difference from this trend for each data set, and a
  constant for each data set. Its covariance is

      σ_t² M(x, x'; l) + δ_ss' (σ_d² M(x, x'; l) + σ_c²).

  Here s is the data set and x are the hyperparameters. M is the Matérn correlation with ν = 5/2 and lengthscales l, and
  δ_ss' is 1 if s and s' are the same data set, else 0. The trend has the variance σ_t², the differences have σ_d², and
  the constants have σ_c².

- The logit's variance depends on data set and hyperparameters too, because repeated training runs differ most with
  large learning rates. It is the exponential of a weighted sum of features of both.

All parameters have been fitted to the table by `scripts/fit_cifar_cnn_table.py`. To see what was measured, and how well
the surrogate predicts it, run

    python -m conbo.problems.cifar_cnn_surrogate
"""

import io
from dataclasses import dataclass
from functools import cache, partial
from importlib import resources

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit, logit, roots_hermitenorm

from conbo.problems.cifar_cnn_training import DATA_SETS, STATE_NAME, cifar_cnn_space
from conbo.problems.problem import MeanReward, Problem
from conbo.spaces import Array, Point, Value
from conbo.state_distributions import Uniform

TABLE = "cifar_cnn_table.npz"
FOLDS = 10  # of the cross-validation
GUESSING = 0.5  # accuracy of a collapsed training
COLLAPSED = 0.6  # accuracy up to which a training counts as collapsed
QUADRATURE_NODES = 32  # number of nodes for the mean of an accuracy whose logit is normal
POINTS_AT_ONCE = 500  # number of points per prediction; more would only take memory

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Kernel:
    """The fitted parameters of the surrogate: those of its prior, its noise and its probability of a collapse."""

    lengthscales: Array  # (7,), l, on the unit cube
    trend: float  # variance σ_t² of the trend that all data sets share
    difference: float  # variance σ_d² of each data set's difference from the trend
    offset: float  # variance σ_c² of each data set's constant
    mean: float  # prior mean of the logit
    noise_weights: Array  # (20,), weights of `features` for the logarithm of the noise's variance
    collapse_weights: Array  # (20,), weights of `features` for the logit of the probability to collapse

    def covariance(self, states: Numbers, actions: Array, other_states: Numbers, other_actions: Array) -> Array:
        """Return covariances (n, m) between the accuracy's logits at n points and at m other points, without noise.

        The n points are given by `states` (n,), which are indices of data sets, and `actions` (n, 7) in the unit cube;
        the m other points are given likewise.
        """
        scaled, others = actions / self.lengthscales, other_actions / self.lengthscales
        squares = (scaled**2).sum(1)[:, None] + (others**2).sum(1) - 2 * scaled @ others.T
        distance = np.sqrt(5 * np.maximum(squares, 0.0))
        matern = (1 + distance + distance**2 / 3) * np.exp(-distance)
        same = states[:, None] == other_states
        return np.asarray(matern * (self.trend + self.difference * same) + self.offset * same)

    def noise_variance(self, states: Numbers, actions: Array) -> Array:
        """Return the noise variances (n,) of the accuracy's logit in n training runs.

        The runs have states (n,), which are indices of data sets, and actions (n, 7) in the unit cube.
        """
        return np.asarray(np.exp(features(states, actions) @ self.noise_weights))

    def collapse_chance(self, states: Numbers, actions: Array) -> Array:
        """Return the probabilities (n,) that n training runs collapse, so that their networks only guess.

        The runs have states (n,), which are indices of data sets, and actions (n, 7) in the unit cube.
        """
        return np.asarray(expit(features(states, actions) @ self.collapse_weights))

    def coefficients(self, states: Numbers, actions: Array, accuracies: Array) -> Array:
        """Return the coefficients (n,) of the table's n rows in predictions of the accuracy's logit.

        The logit that the Gaussian process predicts at a point is the prior mean plus a sum over the rows: each row's
        coefficient times the covariance between row and point. The rows are given by states (n,), actions (n, 7) and
        accuracies (n,). The coefficient of a collapsed training run is zero.
        """
        kept = accuracies > COLLAPSED
        states, actions = states[kept], actions[kept]
        covariance = self.covariance(states, actions, states, actions)
        covariance.flat[:: len(covariance) + 1] += self.noise_variance(states, actions)
        coefficients = np.zeros(len(kept))
        coefficients[kept] = cho_solve(cho_factor(covariance, lower=True), logit(accuracies[kept]) - self.mean)
        return coefficients

    def mean_accuracy(self, logit_means: Array, states: Numbers, actions: Array) -> Array:
        """Return the expected accuracies (m,) at m points, given the expected logits (m,) of the accuracies.

        The points' states (m,) and actions (m, 7) determine the noise of the logits and the probability of a collapse.
        """
        nodes, weights = roots_hermitenorm(QUADRATURE_NODES)
        logits = logit_means[:, None] + np.sqrt(self.noise_variance(states, actions))[:, None] * nodes
        chance = self.collapse_chance(states, actions)
        return np.asarray((1 - chance) * (expit(logits) @ weights / weights.sum()) + chance * GUESSING)


def features(states: Numbers, actions: Array) -> Array:
    """Return features (n, 20): a constant, indicators of data sets, actions scaled to [-1, 1], and their squares."""
    centered = 2 * actions - 1
    return np.column_stack([np.ones(len(actions)), np.eye(len(DATA_SETS))[states], centered, centered**2])


@dataclass(frozen=True)
class Surrogate:
    """The surrogate: a table of n measured training runs, and the regression that was fitted to it."""

    kernel: Kernel
    states: Numbers  # (n,), data sets by number
    actions: Array  # (n, 7), on the unit cube
    accuracies: Array  # (n, epochs), on the validation images after each epoch
    seconds: Array  # (n,), the GPU's time for one training
    coefficients: Array  # (n,), see `Kernel.coefficients`
    best_actions: Array  # (data sets, 7), the surrogate's best actions, on the unit cube
    train: int  # number of images for training
    validation: int  # number of images for validation

    @staticmethod
    def load() -> "Surrogate":
        """Read the surrogate from the file in the package."""
        content = (resources.files("conbo.problems") / "data" / TABLE).read_bytes()
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            table = {name: file[name] for name in file.files}
        trend, difference, offset, mean = table["kernel"].tolist()
        return Surrogate(
            Kernel(table["lengthscales"], trend, difference, offset, mean, *table["weights"]),
            states=table["states"].astype(np.int64),
            actions=table["actions"].astype(np.float64),
            accuracies=table["right"] / int(table["validation"]),
            seconds=table["seconds"].astype(np.float64),
            coefficients=table["coefficients"],
            best_actions=table["best_actions"],
            train=int(table["train"]),
            validation=int(table["validation"]),
        )

    @property
    def rewards(self) -> Array:
        """The rewards (n,) of the table: the accuracies after the last epoch."""
        return self.accuracies[:, -1]

    def logit_mean(self, states: Numbers, actions: Array) -> Array:
        """Return the expected logits (m,) of the accuracy in training runs that do not collapse.

        The runs have states (m,), which are indices of data sets, and actions (m, 7) in the unit cube.
        """
        slices = [slice(first, first + POINTS_AT_ONCE) for first in range(0, len(states), POINTS_AT_ONCE)]
        covariances = (self.kernel.covariance(states[s], actions[s], self.states, self.actions) for s in slices)
        return self.kernel.mean + np.concatenate([covariance @ self.coefficients for covariance in covariances])

    def mean(self, states: Numbers, actions: Array) -> Array:
        """Return the expected rewards (m,), given indices of data sets (m,) and actions (m, 7) in the unit cube."""
        return self.kernel.mean_accuracy(self.logit_mean(states, actions), states, actions)


def point_numbers(surrogate: Surrogate) -> Numbers:
    """Return numbers (n,) that identify the points of the table's n rows.

    Rows with the same point, which are repeated training runs, have the same number.
    """
    _, numbers = np.unique(np.column_stack([surrogate.states, surrogate.actions]), axis=0, return_inverse=True)
    return np.asarray(numbers.ravel(), dtype=np.int64)


def cross_validated(surrogate: Surrogate, folds: int = FOLDS) -> Array:
    """Return cross-validated predictions (n,) of the accuracy's logit, one for each of the table's n rows.

    Each row is predicted from the rows of all folds but its own. Repeated training runs at one point are in the same
    fold.
    """
    points = point_numbers(surrogate)
    fold = np.random.default_rng(0).permutation(points.max() + 1)[points] % folds
    predictions = np.empty(len(fold))
    for number in range(folds):
        out, rest = fold == number, fold != number
        states, actions = surrogate.states[rest], surrogate.actions[rest]
        coefficients = surrogate.kernel.coefficients(states, actions, surrogate.rewards[rest])
        cross = surrogate.kernel.covariance(surrogate.states[out], surrogate.actions[out], states, actions)
        predictions[out] = surrogate.kernel.mean + cross @ coefficients
    return predictions


@cache
def load_surrogate() -> Surrogate:
    """Return the surrogate that comes with the package; its file is read only once."""
    return Surrogate.load()


def cifar_cnn_table() -> Problem:
    """Surrogate of `cifar_cnn`: the same space, with rewards from a regression on real trainings.

    Returns
    -------
    Problem
        The problem, with its true expected rewards and best actions.

    Examples
    --------
    >>> conbo.problems.cifar_cnn_table().space.state_names
    ('classes',)
    """
    return surrogate_problem(load_surrogate())


def surrogate_problem(surrogate: Surrogate) -> Problem:
    """Make a problem from a surrogate."""
    return Problem(
        name="cifar_cnn_table",
        space=cifar_cnn_space(),
        state_distribution=Uniform(),
        evaluate=partial(_evaluate, surrogate),
        mean_reward=partial(_mean_reward, surrogate),
        optimal_action=partial(_optimal_action, surrogate),
        optimal_reward=partial(_optimal_reward, surrogate),
        description="Surrogate of cifar_cnn: a regression on trainings measured on a GPU; validation accuracy.",
    )


# These are functions of the module and not closures, so that a problem can be pickled for another process.


def _encoded(state: Point, action: Point) -> tuple[Numbers, Array]:
    space = cifar_cnn_space()
    number = DATA_SETS.index(str(space.validate_state(state)[STATE_NAME]))
    return np.array([number]), space.encode_actions([space.validate_action(action)])


def _evaluate(surrogate: Surrogate, state: Point, action: Point, generator: np.random.Generator) -> float:
    states, actions = _encoded(state, action)
    noise = np.sqrt(surrogate.kernel.noise_variance(states, actions)) * generator.standard_normal()
    if generator.random() < surrogate.kernel.collapse_chance(states, actions)[0]:
        return GUESSING
    return float(expit(surrogate.logit_mean(states, actions) + noise)[0])


def _mean_reward(surrogate: Surrogate, state: Point, action: Point, replications: int, seed: int) -> MeanReward:
    return MeanReward(float(surrogate.mean(*_encoded(state, action))[0]), standard_error=0.0)


def _optimal_action(surrogate: Surrogate, state: Point) -> dict[str, Value]:
    space = cifar_cnn_space()
    number = DATA_SETS.index(str(space.validate_state(state)[STATE_NAME]))
    return space.decode_actions(surrogate.best_actions[[number]])[0]


def _optimal_reward(surrogate: Surrogate, state: Point) -> float:
    return float(surrogate.mean(*_encoded(state, _optimal_action(surrogate, state)))[0])


def describe(surrogate: Surrogate) -> str:
    """Describe, as a string, what was measured and how well the surrogate predicts unseen training runs."""
    rewards, kernel = surrogate.rewards, surrogate.kernel
    kept = rewards > COLLAPSED
    logits = cross_validated(surrogate)
    errors = kernel.mean_accuracy(logits, surrogate.states, surrogate.actions) - rewards
    logit_noise = np.sqrt(kernel.noise_variance(surrogate.states, surrogate.actions))
    standardized = (np.abs(logit(rewards) - logits) / logit_noise)[kept]
    noise = logit_noise * expit(logits) * (1 - expit(logits))
    epochs, fit = surrogate.accuracies.shape[1], 1 - errors[kept].var() / rewards[kept].var()
    lines = [
        f"{len(rewards)} trainings measured on a GPU, {(~kept).sum()} of them collapsed",
        f"each {epochs} epochs, {surrogate.train} images for training and {surrogate.validation} for validation",
        f"error of the surrogate in {FOLDS}-fold cross-validation, without the collapsed trainings:",
        f"    {_sizes(errors[kept])}, R² {fit:.3f}",
        f"with them: {_sizes(errors)}",
        f"standard deviation of the noise of a single training: {_sizes(noise[kept])}",
        f"errors within one of these: {np.mean(standardized < 1):.0%}, within two: {np.mean(standardized < 2):.0%}",
    ]
    return "\n".join(lines)


def _sizes(errors: Array) -> str:
    return f"root mean square {np.sqrt(np.mean(errors**2)):.4f}, median {np.median(np.abs(errors)):.4f}"


if __name__ == "__main__":
    print(describe(load_surrogate()))
