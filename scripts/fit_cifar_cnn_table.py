"""Turn measured trainings into the table and the regression of `cifar_cnn_table`, and compare other regressions.

    python scripts/fit_cifar_cnn_table.py measured.npz

`measured.npz` comes from `scripts/measure_cifar_cnn.py`. The result goes into the package's data folder. The comparison
needs scikit-learn; all errors are cross-validated, on trainings at points that were not used for the regression.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, log_expit, logit
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import GroupKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures

from conbo.problems.cifar_cnn_surrogate import (
    COLLAPSED,
    FOLDS,
    TABLE,
    Kernel,
    Surrogate,
    cross_validated,
    describe,
    features,
    point_numbers,
)
from conbo.problems.cifar_cnn_training import DATA_SETS, cifar_cnn_space
from conbo.quasi_random import sobol

Floats = NDArray[np.float64]

DATA = Path(__file__).parents[1] / "src/conbo/problems/data"
SPACE = cifar_cnn_space()
MOST_ROWS_TO_FIT = 1500  # largest number of rows to which the kernel is fitted
ITERATIONS = 100
LEAST_NOISE = 1e-4  # variance of a logit, so that no step of the search ends at a singular matrix
PRIOR_SD = 2.0  # prior standard deviation of the log lengthscales and of the weights
STARTS, SCREENED = 20, 2**14  # numbers of local searches and of screened actions for a data set's best action


def fit_kernel(states: NDArray[np.int64], actions: Floats, logits: Floats) -> Kernel:
    """Fit the kernel of the logits of accuracies; return its maximum a posteriori estimate, with weak priors."""
    dims, mean = actions.shape[1], float(logits.mean())
    state, action, target = torch.from_numpy(states), torch.from_numpy(actions), torch.from_numpy(logits - mean)
    noise_features = torch.from_numpy(features(states, actions))
    same = (state[:, None] == state).double()

    def loss(values: Floats) -> tuple[float, Floats]:
        parameters = torch.tensor(values, requires_grad=True)
        logs, noise_weights = parameters[: dims + 3], parameters[dims + 3 :]
        trend, difference, offset = logs[dims:].exp()
        distance = (5 * _squares(action / logs[:dims].exp()) + 1e-12).sqrt()  # the root has no gradient at zero
        matern = (1 + distance + distance**2 / 3) * (-distance).exp()
        noise = (noise_features @ noise_weights).exp() + LEAST_NOISE
        covariance = matern * (trend + difference * same) + offset * same + noise.diag()
        factor = torch.linalg.cholesky(covariance)
        half = torch.linalg.solve_triangular(factor, target[:, None], upper=False)
        prior = (logs[:dims].square().sum() + noise_weights[1:].square().sum()) / (2 * PRIOR_SD**2)
        value = 0.5 * half.square().sum() + factor.diagonal().log().sum() + prior
        value.backward()
        return value.item(), parameters.grad.numpy()

    start = np.concatenate(
        [np.zeros(dims), np.log([0.2, 0.05, 0.2]), [np.log(0.02)], np.zeros(noise_features.shape[1] - 1)]
    )
    bounds = (
        [(np.log(0.1), np.log(20.0))] * dims
        + [(np.log(1e-4), np.log(20.0))] * 3
        + [(-10.0, 4.0)] * noise_features.shape[1]
    )
    found = minimize(loss, start, jac=True, bounds=bounds, method="L-BFGS-B", options={"maxiter": ITERATIONS}).x
    lengthscales, (trend, difference, offset), noise_weights = np.split(found, [dims, dims + 3])
    variances = np.exp([trend, difference, offset]).tolist()
    return Kernel(np.exp(lengthscales), *variances, mean, noise_weights, collapse_weights=np.zeros_like(noise_weights))


def fit_collapse(states: NDArray[np.int64], actions: Floats, collapsed: NDArray[np.bool_]) -> Floats:
    """Fit the probability that a training collapses by logistic regression; return the maximum a posteriori weights."""
    rows, signs = features(states, actions), np.where(collapsed, 1.0, -1.0)

    def loss(weights: Floats) -> float:
        return -float(log_expit(signs * (rows @ weights)).sum()) + float((weights[1:] ** 2).sum()) / (2 * PRIOR_SD**2)

    return minimize(loss, np.zeros(rows.shape[1])).x


def _squares(points: torch.Tensor) -> torch.Tensor:
    sums = points.square().sum(1)
    return (sums[:, None] + sums - 2 * points @ points.T).clamp_min(0.0)


def some_rows(points: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rows to which the kernel is fitted: repeated trainings, which show the noise, and random others.

    There are at most MOST_ROWS_TO_FIT of them. `points` are the numbers of the rows' points; a number that occurs
    several times marks repeated trainings.
    """
    repeated = np.bincount(points)[points] > 1
    others = np.random.default_rng(0).permutation(np.flatnonzero(~repeated))
    return np.concatenate([np.flatnonzero(repeated), others])[:MOST_ROWS_TO_FIT]


def check_noise(surrogate: Surrogate) -> None:
    """Print the fitted noise beside the noise that is estimated from repeated trainings alone."""
    points, rewards = point_numbers(surrogate), surrogate.rewards
    count = np.bincount(points)
    repeated = np.flatnonzero(count > 1)
    rows = [np.flatnonzero(points == number) for number in repeated]
    rows = [some for some in rows if rewards[some].min() > COLLAPSED]
    variances = surrogate.kernel.noise_variance(surrogate.states, surrogate.actions)
    logit_variances = np.array([logit(rewards[some]).var(ddof=1) for some in rows])
    fitted = np.array([variances[some[0]] for some in rows])
    deviations = np.array([rewards[some].std(ddof=1) for some in rows])
    quartiles = np.quantile(deviations, [0.25, 0.5, 0.75]).round(4)
    print(
        f"{len(rows)} repeated points, none collapsed: standard deviations of their accuracies, quartiles {quartiles}"
    )
    print(f"    variance of the logits over the fitted one, mean {np.mean(logit_variances / fitted):.2f}")
    order = np.argsort(fitted)
    for third in np.array_split(order, 3):
        pair = np.sqrt(logit_variances[third].mean()), np.sqrt(fitted[third].mean())
        print("    standard deviation of the logits, measured {:.3f} and fitted {:.3f}".format(*pair))


def best_actions(surrogate: Surrogate) -> Floats:
    """Return the action with the highest mean accuracy for each data set.

    Many actions are screened, local searches start from the best of them, and their ends are rounded to valid values.
    """
    best = []
    for number in range(len(DATA_SETS)):

        def means(actions: Floats, number: int = number) -> Floats:
            return surrogate.mean(np.full(len(actions), number), actions)

        def minus_mean(action: Floats) -> float:
            return -float(means(action[None])[0])

        many = np.vstack([sobol(SCREENED, SPACE.n_action_dims, number).numpy(), surrogate.actions])
        starts = many[np.argsort(-means(many))[:STARTS]]
        box = [(0.0, 1.0)] * SPACE.n_action_dims
        ends = [minimize(minus_mean, start, bounds=box, method="L-BFGS-B").x for start in starts]
        valid = SPACE.snap_actions(np.clip(ends, 0.0, 1.0))
        best.append(valid[means(valid).argmax()])
        text = ", ".join(f"{name} {value:.3g}" for name, value in SPACE.decode_actions(best[-1][None])[0].items())
        print(f"best for {DATA_SETS[number]}: {means(valid).max():.4f} at {text}")
    return np.array(best)


def root_mean_square(values: Floats) -> float:
    return float(np.sqrt(np.mean(values**2)))


def compare(surrogate: Surrogate) -> None:
    """Print cross-validated errors of several regressions, over all rows and over the better half of each data set."""
    rewards, points = surrogate.rewards, point_numbers(surrogate)
    inputs = np.column_stack([np.eye(len(DATA_SETS))[surrogate.states], surrogate.actions])
    rivals = {
        "ridge, cubic": make_pipeline(PolynomialFeatures(3), RidgeCV(np.logspace(-4, 3, 15))),
        "extremely random trees": ExtraTreesRegressor(500, min_samples_leaf=2, random_state=0),
        "gradient boosting": HistGradientBoostingRegressor(max_iter=400, learning_rate=0.05, random_state=0),
    }
    logits = cross_validated(surrogate)
    process = surrogate.kernel.mean_accuracy(logits, surrogate.states, surrogate.actions)
    predictions = {"Gaussian process": process}
    for name, rival in rivals.items():
        logits = cross_val_predict(rival, inputs, logit(rewards), groups=points, cv=GroupKFold(FOLDS))
        predictions[name] = expit(logits)
    medians = np.array([np.median(rewards[surrogate.states == number]) for number in range(len(DATA_SETS))])
    good = rewards > medians[surrogate.states]
    for name, prediction in predictions.items():
        error = prediction - rewards
        all_rows, median, better = root_mean_square(error), np.median(np.abs(error)), root_mean_square(error[good])
        most = root_mean_square(error[rewards > COLLAPSED])
        print(f"{name:24s} {all_rows:.4f}, not collapsed {most:.4f}, median {median:.4f}, better half {better:.4f}")


def build(measured: Path, target: Path) -> None:
    with np.load(measured) as file:
        table = {name: file[name] for name in file.files}
    validation = int(table["validation"])
    right = np.rint(table["accuracy"] * validation).astype(np.uint16)
    states = table["state"].astype(np.int64)
    actions = SPACE.snap_actions(table["unit_action"]).astype(np.float32).astype(np.float64)  # as the file has them
    rewards = right[:, -1] / validation
    _, points = np.unique(np.column_stack([states, actions]), axis=0, return_inverse=True)
    some = some_rows(points.ravel())
    some = some[rewards[some] > COLLAPSED]
    kernel = fit_kernel(states[some], actions[some], logit(rewards[some]))
    kernel = replace(kernel, collapse_weights=fit_collapse(states, actions, rewards <= COLLAPSED))
    coefficients = kernel.coefficients(states, actions, rewards)
    surrogate = Surrogate(
        kernel, states, actions, right / validation, table["seconds"], coefficients, np.empty((0, 7)),
        int(table["train"]), validation,
    )  # fmt: skip
    np.savez_compressed(
        target,
        states=states.astype(np.uint8),
        actions=actions.astype(np.float32),
        right=right,
        seeds=table["seed"].astype(np.uint16),  # of the groups of trainings side by side
        seconds=table["seconds"].astype(np.float16),
        coefficients=coefficients,
        lengthscales=kernel.lengthscales,
        kernel=np.array([kernel.trend, kernel.difference, kernel.offset, kernel.mean]),
        weights=np.array([kernel.noise_weights, kernel.collapse_weights]),
        best_actions=best_actions(surrogate),
        train=table["train"],
        validation=table["validation"],
    )
    print(f"lengthscales {kernel.lengthscales.round(2)}, standard deviations: trend {kernel.trend**0.5:.3f},", end=" ")
    print(f"difference {kernel.difference**0.5:.3f}, offset {kernel.offset**0.5:.3f}")
    print(f"{len(right)} rows, {target.stat().st_size / 1e6:.2f} MB")
    check_noise(surrogate)
    compare(surrogate)
    print(describe(surrogate))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measured", type=Path)
    parser.add_argument("--target", type=Path, default=DATA / TABLE)
    arguments = parser.parse_args()
    build(arguments.measured, arguments.target)
