"""Trains many CIFAR-10 networks at the same time, because a single one would leave a GPU idle most of the time.

Networks are trained as in `cifar_cnn_training.py`. All networks of an ensemble have the same batch size; each has its
own weights, data set, order of images and other hyperparameters. The first axis of a tensor is the network, the second
is the image. A convolution is computed as a matrix product of an image's patches with the filters.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from conbo.problems.cifar_cnn_training import DATA_SETS, FILTERS, HIDDEN, IMAGES_AT_ONCE, KERNEL, Split, scaled
from conbo.spaces import Point

PATCH = 16  # the 12 numbers of a patch, padded with zeros because matrix units prefer multiples of 8
MOMENTUM, VARIANCE_FLOOR = 0.1, 1e-5  # momentum and least variance of batch normalization, as in PyTorch
STEP_FLOOR = 1e-8  # epsilon of Adam, as in PyTorch

Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class StackedImages:
    """The images of all data sets on one device, each cut into the patches that the first convolution sees."""

    patches: Tensor  # (data sets · images, pixels, PATCH)
    labels: Tensor  # (data sets · images,)
    per_data_set: int  # number of images per data set
    train: int  # number of training images per data set, which come first; the others are for validation

    @staticmethod
    def of(splits: Sequence[Split], device: torch.device, dtype: torch.dtype) -> "StackedImages":
        """Stack the images of all splits: for each split, the training images and then the validation images."""
        images = torch.cat([torch.cat([split.images, split.validation_images]) for split in splits])
        labels = torch.cat([torch.cat([split.labels, split.validation_labels]) for split in splits])
        patches = [first_patches(some.to(device)).to(dtype) for some in images.split(IMAGES_AT_ONCE)]
        return StackedImages(
            torch.cat(patches), labels.to(device), len(images) // len(splits), train=len(splits[0].labels)
        )


def first_patches(images: Tensor) -> Tensor:
    """Convert n images (n, 32, 32, 3) of bytes to the patches (n, pixels, PATCH) that the first convolution sees.

    There is a patch of PATCH numbers for each pixel of an image.
    """
    patches = _patches(scaled(images).permute(0, 2, 3, 1)[None])[0]
    return torch.nn.functional.pad(patches, (0, PATCH - patches.shape[-1]))


def _patches(images: Tensor) -> Tensor:
    """Cut n images (networks, n, side, side, channels) into patches (networks, n, pixels, KERNEL² · channels)."""
    side = images.shape[2]
    padded = torch.nn.functional.pad(images, (0, 0, 0, KERNEL - 1, 0, KERNEL - 1))
    corners = [padded[:, :, i : i + side, j : j + side] for i in range(KERNEL) for j in range(KERNEL)]
    return torch.cat(corners, dim=-1).flatten(2, 3)


def initial_weights(networks: int, device: torch.device, dtype: torch.dtype | None = None) -> Tensors:
    """Draw initial weights as PyTorch does; return a dict of tensors (networks, ...).

    The weights of a unit with n inputs are uniform between ±1 / √n. Batch normalization begins with gain 1 and shift 0.
    """
    inputs_1, inputs_2 = KERNEL**2 * 3, KERNEL**2 * FILTERS[0]
    flat = FILTERS[1] * (32 // 4) ** 2

    def uniform(*shape: int, inputs: int) -> Tensor:
        return (2 * torch.rand(networks, *shape, device=device, dtype=dtype) - 1) / math.sqrt(inputs)

    weights = {
        "filters_1": uniform(PATCH, FILTERS[0], inputs=inputs_1),
        "filters_2": uniform(inputs_2, FILTERS[1], inputs=inputs_2),
        "dense_1": uniform(flat, HIDDEN, inputs=flat),
        "shift_3": uniform(1, HIDDEN, inputs=flat),
        "dense_2": uniform(HIDDEN, 2, inputs=HIDDEN),
        "shift_4": uniform(1, 2, inputs=HIDDEN),
    }
    for layer, filters in enumerate(FILTERS, start=1):
        weights[f"gain_{layer}"] = torch.ones(networks, filters, device=device, dtype=dtype)
        weights[f"shift_{layer}"] = torch.zeros(networks, filters, device=device, dtype=dtype)
    return weights


def _initial_statistics(weights: Tensors) -> Tensors:
    """Return the initial running means (zeros) and variances (ones) of batch normalization: (networks, filters)."""
    means = {f"mean_{layer}": torch.zeros_like(weights[f"shift_{layer}"]) for layer in (1, 2)}
    return means | {f"variance_{layer}": torch.ones_like(weights[f"gain_{layer}"]) for layer in (1, 2)}


def logits(weights: Tensors, statistics: Tensors, patches: Tensor, dropout: Tensor, training: bool) -> Tensor:
    """Return the logits (networks, images, 2) of both classes, for patches (networks, images, pixels, PATCH).

    `dropout` (networks, 3) are the rates of the three dropout layers. `statistics` are the running means and variances
    of batch normalization, which are updated in training.
    """
    x = _convolution(1, weights, statistics, patches, training)
    x = _patches(_drop(x, dropout[:, 0], training))
    x = _convolution(2, weights, statistics, x, training)
    x = _drop(x, dropout[:, 1], training).flatten(2)
    x = torch.relu(x @ weights["dense_1"].to(x.dtype) + weights["shift_3"].to(x.dtype))
    x = _drop(x, dropout[:, 2], training).to(weights["dense_2"].dtype)
    return x @ weights["dense_2"] + weights["shift_4"]


def _convolution(layer: int, weights: Tensors, statistics: Tensors, patches: Tensor, training: bool) -> Tensor:
    """Apply the filters of convolution `layer` (1 or 2) to patches, then batch normalization, ReLU and max pooling.

    Patches are (networks, images, pixels, numbers per patch), one for each pixel of a square image. Pooling halves its
    side: the result is (networks, images, side, side, filters) with side = √pixels / 2.
    `statistics` are the running means and variances of batch normalization, which are updated in training.
    """
    # one product for each image, because the gradient of the filters is then a sum of many short products
    x = patches @ weights[f"filters_{layer}"].to(patches.dtype).unsqueeze(1)
    wide = x.to(weights["filters_1"].dtype)
    mean, variance = statistics[f"mean_{layer}"], statistics[f"variance_{layer}"]
    if training:
        count = x.shape[1] * x.shape[2]
        batch_mean = wide.sum(2).sum(1) / count
        batch_variance = (wide.square().sum(2).sum(1) / count - batch_mean.square()).clamp_min(0.0)
        mean.lerp_(batch_mean.detach(), MOMENTUM)
        variance.lerp_(batch_variance.detach() * (count / (count - 1)), MOMENTUM)
        mean, variance = batch_mean, batch_variance
    scale = weights[f"gain_{layer}"] * (variance + VARIANCE_FLOOR).rsqrt()
    shift = weights[f"shift_{layer}"] - mean * scale
    normal = wide * scale[:, None, None] + shift[:, None, None]
    side = math.isqrt(x.shape[2])
    squares = normal.unflatten(2, (side // 2, 2, side // 2, 2))
    rows = torch.maximum(squares[:, :, :, 0], squares[:, :, :, 1])
    return torch.relu(torch.maximum(rows[:, :, :, :, 0], rows[:, :, :, :, 1])).to(x.dtype)


def _drop(x: Tensor, rates: Tensor, training: bool) -> Tensor:
    if not training:
        return x
    rate = rates.view(-1, *[1] * (x.dim() - 1))
    kept = torch.rand(x.shape, device=x.device) >= rate
    return (x * (kept / (1 - rate))).to(x.dtype)


def total_loss(weights: Tensors, statistics: Tensors, patches: Tensor, labels: Tensor, dropout: Tensor) -> Tensor:
    """Return the sum of the networks' mean cross-entropies.

    The gradient of the sum with respect to a network's weights is the gradient of this network's mean cross-entropy,
    because the cross-entropies of other networks do not depend on these weights. Patches are (networks, images, pixels,
    PATCH), labels (networks, images), and dropout rates (networks, 3).
    """
    log_likelihood = logits(weights, statistics, patches, dropout, training=True).log_softmax(-1)
    return -log_likelihood.gather(-1, labels.unsqueeze(-1)).mean(dim=(1, 2)).sum()


def adam_step(weights: list[Tensor], gradients: list[Tensor], moments: list[list[Tensor]], rates: Tensors) -> None:
    """Take one step of Adam in place, for all networks.

    Weights and gradients are (networks, ...). `moments` has two lists of such tensors: the first and the second moments
    of the gradients. `rates` are the learning rates, the betas, and the betas to the power of the number of steps so
    far, each (networks,). Weights, moments and powers are updated.
    """
    for order in ("1", "2"):
        rates[f"power_{order}"].mul_(rates[f"beta_{order}"])
    for weight, gradient, first, second in zip(weights, gradients, *moments, strict=True):
        shaped = {name: value.view(-1, *[1] * (weight.dim() - 1)) for name, value in rates.items()}
        beta_1, beta_2 = shaped["beta_1"], shaped["beta_2"]
        first.copy_(beta_1 * first + (1 - beta_1) * gradient)
        second.copy_(beta_2 * second + (1 - beta_2) * gradient.square())
        spread = (second / (1 - shaped["power_2"])).sqrt() + STEP_FLOOR
        weight.sub_(shaped["learning_rate"] / (1 - shaped["power_1"]) * first / spread)


@dataclass(frozen=True)
class Kernels:
    """The functions in which training spends nearly all of its time, compiled or not: loss, Adam step and logits."""

    loss: Callable[..., Tensor] = total_loss
    step: Callable[..., None] = adam_step
    logits: Callable[..., Tensor] = logits

    @staticmethod
    def compiled() -> "Kernels":
        """Return the functions for the loss, the Adam step and the logits, compiled by `torch.compile`."""
        return Kernels(torch.compile(total_loss), torch.compile(adam_step), torch.compile(logits))


@dataclass
class Ensemble:
    """Many independent networks, each with its own data set, that are trained at the same time."""

    data: StackedImages
    data_sets: Tensor  # (networks,), the number of each network's data set
    dropout: Tensor  # (networks, 3), dropout rates
    rates: Tensors  # learning rates, betas and powers of betas, each (networks,)
    weights: Tensors  # by layer, each (networks, ...)
    kernels: Kernels = field(default_factory=Kernels)

    def __post_init__(self) -> None:
        self.statistics = _initial_statistics(self.weights)
        for weight in self.weights.values():
            weight.requires_grad_()
        self.moments = [[torch.zeros_like(weight) for weight in self.weights.values()] for _ in range(2)]

    @staticmethod
    def of(
        data: StackedImages,
        states: Sequence[str],
        actions: Sequence[Point],
        weights: Tensors,
        kernels: Kernels | None = None,
    ) -> "Ensemble":
        """Create an ensemble with one network for each pair of a state (data set) and an action (hyperparameters)."""

        def column(name: str) -> Tensor:
            values = [float(action[name]) for action in actions]
            return torch.tensor(values, device=weights["dense_2"].device, dtype=weights["dense_2"].dtype)

        rates = {name: column(name) for name in ("learning_rate", "beta_1", "beta_2")}
        powers = {name: torch.ones_like(rates["beta_1"]) for name in ("power_1", "power_2")}
        dropout = torch.stack([column(f"dropout_{layer}") for layer in (1, 2, 3)], dim=1)
        numbers = torch.tensor([DATA_SETS.index(state) for state in states], device=data.labels.device)
        return Ensemble(data, numbers, dropout, rates | powers, weights, kernels or Kernels())

    def random_order(self) -> Tensor:
        """Draw a random order of the training images for each network: indices (networks, images)."""
        return torch.rand(len(self.data_sets), self.data.train, device=self.data.labels.device).argsort(dim=1)

    def train_epoch(self, order: Tensor, batch_size: int) -> None:
        """Train every network for one epoch.

        `order` (networks, images) holds the indices of each network's training images, in the order of their use.
        """
        for batch in self._rows(order).split(batch_size, dim=1):
            loss = self.kernels.loss(self.weights, self.statistics, *self._images(batch), self.dropout)
            parameters = list(self.weights.values())
            gradients = torch.autograd.grad(loss, parameters)
            with torch.no_grad():
                self.kernels.step(parameters, list(gradients), self.moments, self.rates)

    @torch.no_grad()
    def accuracies(self) -> Tensor:
        """Return the fraction (networks,) of the validation images that each network classifies correctly."""
        images = torch.arange(self.data.train, self.data.per_data_set, device=self.data.labels.device)
        right = []
        for batch in self._rows(images.expand(len(self.data_sets), -1)).split(IMAGES_AT_ONCE, dim=1):
            patches, labels = self._images(batch)
            outputs = self.kernels.logits(self.weights, self.statistics, patches, self.dropout, training=False)
            right.append(outputs.argmax(-1) == labels)
        return torch.cat(right, dim=1).float().mean(dim=1)

    def _rows(self, images: Tensor) -> Tensor:
        """Turn indices (networks, n) of n images within each network's data set into rows of the stacked images."""
        return images + (self.data_sets * self.data.per_data_set).unsqueeze(1)

    def _images(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the patches and labels of n stacked images for each network, given by their `rows` (networks, n)."""
        tensors = self.data.patches[rows], self.data.labels[rows]
        for tensor in tensors:
            torch._dynamo.mark_dynamic(tensor, 1)  # so that one compilation serves all batch sizes
        return tensors
