"""The problem of CNN hyperparameters on CIFAR-10: how to train a small network on each of five two-class data sets.

State: the data set, a pair of classes. Action: three dropout rates, the learning rate and both betas of Adam, and the
batch size. Reward: the accuracy on validation images after the last epoch of a training run; its noise comes from
the initial weights, the order of the images and the dropout.

The literature does not state the pairs of classes, the split or the number of epochs. Here, the classes are paired in
the order of their CIFAR-10 labels. The first `train` images of a data set are for training, and the next `validation`
images are for validation. Initial weights are PyTorch's defaults, and pixels are scaled to [-1, 1].
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from conbo.errors import SettingError
from conbo.problems.cifar10_images import PAIRS, TwoClassImages, read_two_class_images
from conbo.problems.problem import MeanReward, Problem
from conbo.problems.simulation import mean_of
from conbo.spaces import Categorical, Integer, Point, Real, Space
from conbo.state_distributions import Uniform

STATE_NAME = "classes"
DATA_SETS = tuple("/".join(pair) for pair in PAIRS)
EPOCHS, TRAIN, VALIDATION = 10, 6000, 1500
LARGEST_SEED = 2**63 - 1
IMAGES_AT_ONCE = 500  # number of images per pass in validation; more would only take memory

FILTERS = (64, 32)  # number of filters of the two convolutions
KERNEL = 2  # side of a filter, in pixels
HIDDEN = 256  # number of units of the hidden dense layer


def cifar_cnn_space() -> Space:
    """Return the space of the problem: five data sets as states, and seven hyperparameters as actions."""
    return Space(
        states={STATE_NAME: Categorical(DATA_SETS)},
        actions={
            "dropout_1": Real(0.0, 0.8),
            "dropout_2": Real(0.0, 0.8),
            "dropout_3": Real(0.0, 0.8),
            "learning_rate": Real(1e-4, 1e-2, log=True),
            "beta_1": Real(0.7, 0.99, log=True),
            "beta_2": Real(0.9, 0.999, log=True),
            "batch_size": Integer(16, 512, log=True),
        },
    )


def network(dropout_1: float, dropout_2: float, dropout_3: float) -> nn.Sequential:
    """Create a network of two convolutions and two dense layers, which returns the logits of both classes."""

    def convolution(channels: int, filters: int, dropout: float) -> list[nn.Module]:
        same_size = nn.ZeroPad2d((0, KERNEL - 1, 0, KERNEL - 1))  # pads on the right and below
        filter_bank = nn.Conv2d(channels, filters, KERNEL, bias=False)
        return [same_size, filter_bank, nn.BatchNorm2d(filters), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(dropout)]

    pixels_left = (32 // 2 // 2) ** 2
    return nn.Sequential(
        *convolution(3, FILTERS[0], dropout_1),
        *convolution(FILTERS[0], FILTERS[1], dropout_2),
        nn.Flatten(),
        nn.Linear(pixels_left * FILTERS[1], HIDDEN),
        nn.ReLU(),
        nn.Dropout(dropout_3),
        nn.Linear(HIDDEN, 2),
    )


@dataclass(frozen=True)
class Split:
    """Images (n, 32, 32, 3) as bytes and labels (n,), for training and for validation."""

    images: Tensor
    labels: Tensor
    validation_images: Tensor
    validation_labels: Tensor

    @staticmethod
    def of(data: TwoClassImages, train: int, validation: int) -> "Split":
        """Take the first `train` images for training and the next `validation` images for validation."""
        images = torch.from_numpy(data.images[: train + validation])
        labels = torch.from_numpy(data.labels[: train + validation])
        return Split(images[:train], labels[:train], images[train:], labels[train:])

    def to(self, device: torch.device) -> "Split":
        """Return the same split on a device."""
        tensors = (self.images, self.labels, self.validation_images, self.validation_labels)
        return Split(*(tensor.to(device) for tensor in tensors))


def scaled(images: Tensor) -> Tensor:
    """Scale images (n, 32, 32, 3) of bytes to numbers in [-1, 1]: (n, 3, 32, 32), with channels last in memory."""
    return (images.to(torch.get_default_dtype()) / 127.5 - 1.0).permute(0, 3, 1, 2)


def train_network(
    split: Split, action: Point, epochs: int, seed: int, device: torch.device, progress: bool = False
) -> list[float]:
    """Train a network, and return its validation accuracy after each epoch.

    The same seed gives the same accuracies on the same machine.
    """
    cuda_devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(cuda_devices), torch.backends.cudnn.flags(enabled=True, deterministic=True):
        torch.manual_seed(seed)
        model = network(*(float(action[f"dropout_{layer}"]) for layer in (1, 2, 3)))
        model.to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # twice as fast on a CPU
        betas = float(action["beta_1"]), float(action["beta_2"])
        optimizer = torch.optim.Adam(model.parameters(), lr=float(action["learning_rate"]), betas=betas)
        local = split.to(device)
        accuracies: list[float] = []
        with tqdm(total=epochs, desc="training", unit="epoch", disable=not progress, leave=False) as bar:
            for _ in range(epochs):
                _train_epoch(model, optimizer, local, int(action["batch_size"]))
                accuracies.append(_accuracy(model, local))
                bar.set_postfix(accuracy=f"{accuracies[-1]:.3f}", refresh=False)
                bar.update()
    return accuracies


def _train_epoch(model: nn.Module, optimizer: torch.optim.Optimizer, split: Split, batch_size: int) -> None:
    model.train()
    order = torch.randperm(len(split.labels)).to(split.labels.device)
    for batch in order.split(batch_size):
        loss = nn.functional.cross_entropy(model(scaled(split.images[batch])), split.labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@torch.no_grad()
def _accuracy(model: nn.Module, split: Split) -> float:
    model.eval()
    logits = torch.cat([model(scaled(images)) for images in split.validation_images.split(IMAGES_AT_ONCE)])
    return float((logits.argmax(dim=1) == split.validation_labels).float().mean())


@dataclass(frozen=True)
class Training:
    """The settings that all training runs of a problem share."""

    epochs: int
    device: torch.device
    progress: bool


def cifar_cnn(
    folder: str | Path,
    epochs: int = EPOCHS,
    train: int = TRAIN,
    validation: int = VALIDATION,
    device: str | None = None,
    progress: bool = True,
) -> Problem:
    """Choose hyperparameters for high validation accuracy of a small network on each of five data sets.

    The state is the data set: images of two classes of CIFAR-10. The reward is the accuracy on validation
    images. The surrogate `cifar_cnn_table` needs neither images nor a GPU.

    Parameters
    ----------
    folder
        Folder with the images of CIFAR-10: `partition_1.npz` to `partition_5.npz`, one for each data set, or the
        original Python archive.
    epochs
        Number of passes over the training images.
    train, validation
        Number of images of each data set for training and for validation.
    device
        Torch's name for the device on which networks are trained; by default a GPU if there is one.
    progress
        Whether to show a progress bar for every training run.

    Returns
    -------
    Problem
        The problem; its optimum is not known.

    Raises
    ------
    SettingError
        If `epochs`, `train` or `validation` is below 1, if images are missing, invalid or too few, or if PyTorch cannot
        use the device.

    Examples
    --------
    >>> problem = conbo.problems.cifar_cnn("images")  # doctest: +SKIP
    """
    for name, value in {"epochs": epochs, "train": train, "validation": validation}.items():
        if value < 1:
            raise SettingError(f"`{name} >= 1` must hold, but got {name}={value}.")
    data_sets = read_two_class_images(folder)
    fewest = min(len(data.labels) for data in data_sets.values())
    if train + validation > fewest:
        rule = f"`train + validation <= {fewest}`, the images of a data set, must hold"
        raise SettingError(f"{rule}, but got train={train}, validation={validation}.")
    splits = {name: Split.of(data, train, validation) for name, data in data_sets.items()}
    training = Training(epochs, _device(device), progress)
    return Problem(
        name="cifar_cnn",
        space=cifar_cnn_space(),
        state_distribution=Uniform(),
        evaluate=partial(_evaluate, splits, training),
        mean_reward=partial(_mean_reward, splits, training),
        description="Hyperparameters of a small network for five pairs of classes of CIFAR-10; validation accuracy.",
    )


def _device(name: str | None) -> torch.device:
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (AssertionError, RuntimeError) as error:
        raise SettingError(f"`device` must be one that PyTorch can use, but got device={name!r}: {error}") from error
    return device


# These are functions of the module and not closures, so that a problem can be pickled for another process.


def _evaluate(
    splits: Mapping[str, Split], training: Training, state: Point, action: Point, generator: np.random.Generator
) -> float:
    space = cifar_cnn_space()
    split = splits[str(space.validate_state(state)[STATE_NAME])]
    seed = int(generator.integers(LARGEST_SEED))
    valid = space.validate_action(action)
    return train_network(split, valid, training.epochs, seed, training.device, training.progress)[-1]


def _mean_reward(
    splits: Mapping[str, Split], training: Training, state: Point, action: Point, replications: int, seed: int
) -> MeanReward:
    generator = np.random.default_rng(seed)
    rewards = [_evaluate(splits, training, state, action, generator) for _ in range(replications)]
    return mean_of(np.array(rewards))
