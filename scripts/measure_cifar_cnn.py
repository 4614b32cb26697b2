"""Train the CIFAR-10 network with thousands of hyperparameters on one GPU, for the table behind `cifar_cnn_table`.

    python scripts/measure_cifar_cnn.py FOLDER measured.npz --minutes 8

FOLDER holds the images, as for `conbo.problems.cifar_cnn`. The networks of a group are trained in parallel, with one
batch size. A round of groups has quasi-random hyperparameters, then neighbors of the best hyperparameters so far, where
optimizers will spend their time. Some points of both kinds are trained several times, to measure the noise. Rounds are
repeated until the time is over. The file is rewritten after every group, so that no result is lost.
"""

import argparse
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from conbo.problems.cifar10_images import read_two_class_images
from conbo.problems.cifar_cnn_ensemble import Ensemble, Kernels, StackedImages, initial_weights
from conbo.problems.cifar_cnn_training import DATA_SETS, EPOCHS, TRAIN, VALIDATION, Split, cifar_cnn_space
from conbo.quasi_random import sobol

Floats = NDArray[np.float64]

SPACE = cifar_cnn_space()
BATCH_SIZE = SPACE.action_names.index("batch_size")
SIDE_BY_SIDE = 60  # number of networks in a group
REPEATS = 4  # number of trainings of a repeated point
BROAD_GROUPS, GOOD_GROUPS = 8, 4  # numbers of groups in a round; a group of repeats follows each kind
GOOD_SHARE = 0.15  # fraction of a data set's points that count as good
NEIGHBORHOOD = 0.1  # standard deviation of the steps from good points, on the unit cube
SECONDS_BETWEEN_SAMPLES = 0.2  # interval at which the GPU's utilization is sampled


@dataclass(frozen=True)
class Points:
    """Points to train at: indices (n,) of data sets, which are the states, and actions (n, 7) in the unit cube."""

    states: NDArray[np.int64]
    actions: Floats

    def __getitem__(self, rows: NDArray[np.int64] | slice) -> "Points":
        return Points(self.states[rows], self.actions[rows])


@dataclass
class Table:
    """The measured trainings: for each column, a list with one array for each group."""

    columns: dict[str, list[NDArray]] = field(default_factory=dict)

    def add(self, **rows: NDArray) -> None:
        for name, values in rows.items():
            self.columns.setdefault(name, []).append(values)

    def column(self, name: str) -> NDArray:
        return np.concatenate(self.columns[name])

    def __len__(self) -> int:
        return sum(map(len, self.columns.get("state", [])))

    def save(self, path: Path, **facts: float | str) -> None:
        """Write the table and further `facts` to a file.

        The file is written under another name and then renamed, so that the previous file survives an interruption.
        """
        part = path.with_name("part_" + path.name)
        np.savez_compressed(part, **{name: self.column(name) for name in self.columns}, **facts)
        part.replace(path)


def groups_of(points: Points, repeats: int, generator: np.random.Generator) -> Iterator[Points]:
    """Divide points into groups of similar batch size, in random order; each point is repeated `repeats` times.

    All points of a group get the same batch size, chosen at random among theirs.
    """
    order = np.argsort(points.actions[:, BATCH_SIZE])
    chunks = order.reshape(-1, SIDE_BY_SIDE // repeats)
    for chunk in generator.permutation(chunks):
        group = points[np.repeat(chunk, repeats)]
        group.actions[:, BATCH_SIZE] = generator.choice(group.actions[:, BATCH_SIZE])
        yield group


def broad_points(uniform: Floats) -> Points:
    """Convert rows (n, 8) of the unit cube to points; the first column determines the data set."""
    return Points((uniform[:, 0] * len(DATA_SETS)).astype(np.int64), uniform[:, 1:])


def good_points(table: Table, count: int, generator: np.random.Generator) -> Points:
    """Return `count` points, spread equally over the data sets, each near one of the data set's best points so far."""
    state, action, accuracy = table.column("state"), table.column("unit_action"), table.column("accuracy")[:, -1]
    states = np.arange(count) % len(DATA_SETS)
    actions = np.empty((count, SPACE.n_action_dims))
    for number in range(len(DATA_SETS)):
        rows = np.flatnonzero(state == number)
        best = rows[np.argsort(-accuracy[rows])[: max(1, int(GOOD_SHARE * len(rows)))]]
        mine = states == number
        steps = NEIGHBORHOOD * generator.standard_normal((mine.sum(), SPACE.n_action_dims))
        actions[mine] = _reflected(action[generator.choice(best, mine.sum())] + steps)
    return Points(states, actions)


def _reflected(actions: Floats) -> Floats:
    """Reflect actions that are outside of the unit cube at its faces."""
    return 1.0 - np.abs(1.0 - np.abs(actions))


def plan(table: Table, seed: int) -> Iterator[tuple[str, Points]]:
    """Yield groups of points to train, without end, each with its kind, such as "broad" or "good repeated"."""
    generator = np.random.default_rng(seed)
    some = SIDE_BY_SIDE // REPEATS
    size = BROAD_GROUPS * SIDE_BY_SIDE + some
    for number in range(1_000_000):
        uniform = sobol(size, 1 + SPACE.n_action_dims, seed + number).numpy()
        yield from (("broad", g) for g in groups_of(broad_points(uniform[some:]), 1, generator))
        yield from (("broad repeated", g) for g in groups_of(broad_points(uniform[:some]), REPEATS, generator))
        good = good_points(table, GOOD_GROUPS * SIDE_BY_SIDE + some, generator)
        yield from (("good", g) for g in groups_of(good[slice(some, None)], 1, generator))
        yield from (("good repeated", g) for g in groups_of(good[slice(some)], REPEATS, generator))


class GpuLoad:
    """Records in a file how busy the GPU is, as nvidia-smi reports it; without a GPU, records nothing."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w")
        period = str(int(1000 * SECONDS_BETWEEN_SAMPLES))
        query = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-lms", period]
        self._process = subprocess.Popen(query, stdout=self._file) if torch.cuda.is_available() else None

    def samples(self) -> Floats:
        text = Path(self._file.name).read_text().split()
        return np.array([float(word) for word in text[:-1]] or [np.nan]) / 100

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
        self._file.close()


def train_group(
    data: StackedImages, group: Points, epochs: int, seed: int, kernels: Kernels
) -> tuple[NDArray[np.float32], float]:
    """Train one network for each point of a group; return validation accuracies (n, epochs) and the seconds taken."""
    torch.manual_seed(seed)
    began = time.perf_counter()
    actions = SPACE.decode_actions(group.actions)
    weights = initial_weights(len(actions), data.labels.device)
    ensemble = Ensemble.of(data, [DATA_SETS[number] for number in group.states], actions, weights, kernels)
    accuracies = []
    for _ in range(epochs):
        ensemble.train_epoch(ensemble.random_order(), int(actions[0]["batch_size"]))
        accuracies.append(ensemble.accuracies())
    return torch.stack(accuracies, dim=1).cpu().numpy(), time.perf_counter() - began


def read_images(folder: Path, train: int, validation: int) -> StackedImages:
    """Read the images to the GPU, as bfloat16; without a GPU, to the CPU, as float32.

    `train` and `validation` are the numbers of images of each data set.
    """
    splits = [Split.of(images, train, validation) for images in read_two_class_images(folder).values()]
    gpu = torch.cuda.is_available()
    return StackedImages.of(splits, torch.device("cuda" if gpu else "cpu"), torch.bfloat16 if gpu else torch.float32)


def measure(arguments: argparse.Namespace) -> None:
    began, limit = time.perf_counter(), 60 * arguments.minutes
    torch.set_float32_matmul_precision("high")
    load = GpuLoad(arguments.output.with_suffix(".load"))
    data = read_images(arguments.folder, arguments.train, arguments.validation)
    kernels = Kernels.compiled() if torch.cuda.is_available() else Kernels()
    table, longest = Table(), 0.0
    print(f"{time.perf_counter() - began:.1f} s to read the images", flush=True)
    for number, (kind, group) in enumerate(plan(table, arguments.seed)):
        if len(table) >= arguments.trainings or time.perf_counter() - began + longest > limit:
            break
        accuracy, seconds = train_group(data, group, arguments.epochs, arguments.seed + number, kernels)
        longest = max(longest, seconds) if number > 0 else 0.0  # the first one includes compilation
        actions = SPACE.decode_actions(group.actions)
        table.add(
            state=group.states.astype(np.uint8),
            unit_action=group.actions,
            action=np.array([list(action.values()) for action in actions], dtype=np.float64),
            seed=np.full(len(accuracy), arguments.seed + number, dtype=np.int64),
            accuracy=accuracy,
            seconds=np.full(len(accuracy), seconds / len(accuracy), dtype=np.float32),
            kind=np.full(len(accuracy), kind),
        )
        elapsed = time.perf_counter() - began
        settings = {name: getattr(arguments, name) for name in ("epochs", "train", "validation")}
        table.save(arguments.output, **settings, elapsed=elapsed, gpu_busy=float(load.samples().mean()))
        last = accuracy[:, -1]
        print(
            f"{elapsed:6.1f} s, {len(table):5d} done: {kind:14s} {actions[0]['batch_size']:3d} images a batch, "
            f"{seconds:5.1f} s, best {last.max():.3f}, median {np.median(last):.3f}",
            flush=True,
        )
    load.stop()
    samples = load.samples()
    minutes = (time.perf_counter() - began) / 60
    print(f"{len(table)} trainings in {minutes:.2f} minutes: {len(table) / minutes:.0f} a minute")
    print(f"GPU busy {samples.mean():.1%} of the time, by {len(samples)} samples of nvidia-smi")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--trainings", type=int, default=10_000, help="stop when there are as many")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--train", type=int, default=TRAIN, help="images for training, of each data set")
    parser.add_argument("--validation", type=int, default=VALIDATION, help="images for validation, likewise")
    parser.add_argument("--seed", type=int, default=0)
    measure(parser.parse_args())
