"""Tune a classifier on four data sets together, so that each learns from the trainings on the others.

python examples/tune_many_datasets.py
"""

import math

import numpy as np
from sklearn import datasets
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

import conbo

EVALUATIONS = 48
FOLDS = 3
FRESH_SPLITS = 5  # for the comparison at the end
MOST_ROWS = 400  # of a data set, so that the example takes seconds

DATA_SETS = {
    "breast cancer": datasets.load_breast_cancer(return_X_y=True),
    "digits": datasets.load_digits(return_X_y=True),
    "iris": datasets.load_iris(return_X_y=True),
    "wine": datasets.load_wine(return_X_y=True),
}
HYPERPARAMETERS = {
    "C": conbo.Real(1, 10_000, log=True),  # the larger, the less regularization
    "gamma": conbo.Real(1e-4, 1, log=True),  # the larger, the more local are the kernel's features
}


def loss(data_set: str, action: dict, seed: int) -> float:
    """Return the cross-entropy on held-out folds, which is noisy, because rows and folds are drawn with the seed."""
    inputs, labels = DATA_SETS[data_set]
    rows = np.random.default_rng(seed).permutation(len(labels))[:MOST_ROWS]
    features = Nystroem(gamma=action["gamma"], n_components=100, random_state=seed)
    model = make_pipeline(StandardScaler(), features, LogisticRegression(C=action["C"], max_iter=1000))
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    return -cross_val_score(model, inputs[rows], labels[rows], cv=folds, scoring="neg_log_loss").mean()


def mean_log_loss(data_sets: list[str], action: dict, seeds: list[int]) -> float:
    """Return the mean of the logarithms of the losses, over data sets and seeds.

    Without logarithms, the huge losses of bad settings would hide the differences between good ones.
    """
    return np.mean([math.log(loss(name, action, seed)) for name in data_sets for seed in seeds])


def main() -> None:
    threadpool_limits(1)  # on matrices as small as these, threads would only wait for each other
    generator = np.random.default_rng(1)

    def draw_seed() -> int:
        return int(generator.integers(2**31))

    space = conbo.Space(states={"data_set": conbo.Categorical(DATA_SETS)}, actions=HYPERPARAMETERS)
    study = conbo.Study(space, direction="minimize", seed=1)
    study.run(
        lambda state, action: mean_log_loss([state["data_set"]], action, [draw_seed()]),
        evaluations=EVALUATIONS,
    )
    policy = study.policy()

    # One setting for all, after as many trainings: here every evaluation trains on every data set
    shared_study = conbo.Study(conbo.Space(actions=HYPERPARAMETERS), direction="minimize", seed=1)
    shared_study.run(
        lambda state, action: mean_log_loss(list(DATA_SETS), action, [draw_seed()]),
        evaluations=EVALUATIONS // len(DATA_SETS),
    )
    shared = shared_study.policy()({})

    fresh_seeds = list(range(FRESH_SPLITS))
    print("data set             C    gamma     loss   with the shared setting")
    for name in DATA_SETS:
        own = policy({"data_set": name})
        own_loss, shared_loss = (math.exp(mean_log_loss([name], action, fresh_seeds)) for action in (own, shared))
        print(f"{name:14s} {own['C']:7.0f}   {own['gamma']:.4f}   {own_loss:.4f}   {shared_loss:.4f}")
    print(f"{'shared':14s} {shared['C']:7.0f}   {shared['gamma']:.4f}")


if __name__ == "__main__":
    main()
