import pytest
import torch
from torch import Tensor, nn

from conbo.problems.cifar_cnn_ensemble import PATCH, Ensemble, StackedImages, Tensors, initial_weights, logits
from conbo.problems.cifar_cnn_training import DATA_SETS, Split, network, scaled

TRAIN, VALIDATION, BATCH_SIZE = 20, 12, 8  # so that the last batch of an epoch is smaller
STATES = ("bird/cat", "ship/truck", "bird/cat")
RATES = ((1e-3, 0.9, 0.999), (1e-2, 0.7, 0.9), (3e-4, 0.95, 0.99))
NO_DROPOUT = dict.fromkeys(("dropout_1", "dropout_2", "dropout_3"), 0.0)
ACTIONS = [NO_DROPOUT | dict(zip(("learning_rate", "beta_1", "beta_2"), rates, strict=True)) for rates in RATES]
CPU = torch.device("cpu")


@pytest.fixture
def splits() -> list[Split]:
    generator = torch.Generator().manual_seed(0)

    def split() -> Split:
        images = torch.randint(256, (TRAIN + VALIDATION, 32, 32, 3), generator=generator, dtype=torch.uint8)
        labels = torch.randint(2, (TRAIN + VALIDATION,), generator=generator)
        return Split(images[:TRAIN], labels[:TRAIN], images[TRAIN:], labels[TRAIN:])

    return [split() for _ in DATA_SETS]


def weights_of(models: list[nn.Sequential]) -> Tensors:
    """The weights of single networks as an ensemble has them: patches and pixels come before channels."""

    def stacked(*tensors: Tensor) -> Tensor:
        return torch.stack(tensors).detach().clone()

    def filters(layer: int) -> Tensor:
        banks = [model[layer].weight for model in models]
        return stacked(*(bank.permute(2, 3, 1, 0).flatten(0, 2) for bank in banks))

    dense = [model[13].weight.unflatten(1, (32, 64)).permute(2, 1, 0).flatten(0, 1) for model in models]
    return {
        "filters_1": nn.functional.pad(filters(1), (0, 0, 0, PATCH - 12)),
        "filters_2": filters(7),
        "dense_1": stacked(*dense),
        "shift_3": stacked(*(model[13].bias[None] for model in models)),
        "dense_2": stacked(*(model[16].weight.T for model in models)),
        "shift_4": stacked(*(model[16].bias[None] for model in models)),
        "gain_1": stacked(*(model[2].weight for model in models)),
        "shift_1": stacked(*(model[2].bias for model in models)),
        "gain_2": stacked(*(model[8].weight for model in models)),
        "shift_2": stacked(*(model[8].bias for model in models)),
    }


def train_alone(model: nn.Sequential, split: Split, rates: tuple[float, float, float], orders: list[Tensor]) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=rates[0], betas=rates[1:])
    model.train()
    for order in orders:
        for batch in order.split(BATCH_SIZE):
            loss = nn.functional.cross_entropy(model(scaled(split.images[batch])), split.labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    model.eval()


def test_side_by_side_is_the_same_as_alone(splits: list[Split]) -> None:
    torch.set_default_dtype(torch.float64)
    try:
        models = [network(0.0, 0.0, 0.0) for _ in STATES]
        data = StackedImages.of(splits, CPU, torch.float64)
        ensemble = Ensemble.of(data, STATES, ACTIONS, weights_of(models))
        orders = [ensemble.random_order() for _ in range(2)]
        for order in orders:
            ensemble.train_epoch(order, BATCH_SIZE)
        accuracies = ensemble.accuracies()
        for number, (model, state, rates) in enumerate(zip(models, STATES, RATES, strict=True)):
            split = splits[DATA_SETS.index(state)]
            train_alone(model, split, rates, [order[number] for order in orders])
            right = model(scaled(split.validation_images)).argmax(1) == split.validation_labels
            assert accuracies[number] == pytest.approx(right.double().mean().item())
        for name, expected in weights_of(models).items():
            assert torch.allclose(ensemble.weights[name], expected, rtol=1e-6, atol=1e-9), name
        running = torch.stack([model[8].running_var for model in models])
        assert torch.allclose(ensemble.statistics["variance_2"], running)
    finally:
        torch.set_default_dtype(torch.float32)


def test_dropout_has_a_rate_for_each_network_and_keeps_the_mean() -> None:
    """With nothing but ones before the last layer's dropout, the output shows what is left of it."""
    torch.manual_seed(0)
    images, rates = 100, torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.0, 0.5], [0.0, 0.0, 0.8]])
    weights = {name: torch.zeros_like(weight) for name, weight in initial_weights(3, CPU).items()}
    weights["shift_3"] += 1.0
    weights["dense_2"] += 1 / 256
    statistics = {
        f"{kind}_{layer}": torch.ones(3, (64, 32)[layer - 1]) for kind in ("mean", "variance") for layer in (1, 2)
    }
    outputs = logits(weights, statistics, torch.zeros(3, images, 1024, PATCH), rates, training=True)[..., 0]
    assert outputs.mean(1).tolist() == pytest.approx([1.0, 1.0, 1.0], abs=0.02)
    expected = [(rate / (1 - rate) / 256) ** 0.5 for rate in (0.0, 0.5, 0.8)]
    assert outputs.std(1).tolist() == pytest.approx(expected, rel=0.25, abs=1e-6)
    silent = logits(weights, statistics, torch.zeros(3, images, 1024, PATCH), rates, training=False)
    assert torch.allclose(silent, torch.ones(()))


def test_weights_begin_like_those_of_a_network() -> None:
    torch.manual_seed(0)
    begun, reference = initial_weights(30, CPU), weights_of([network(0.0, 0.0, 0.0) for _ in range(30)])
    assert {name: weight.shape for name, weight in begun.items()} == {
        name: weight.shape for name, weight in reference.items()
    }
    for name, weight in begun.items():
        used = weight[:, :12] if name == "filters_1" else weight  # the rest meets only zeros
        expected = reference[name][:, :12] if name == "filters_1" else reference[name]
        assert used.abs().max().item() == pytest.approx(expected.abs().max().item(), rel=0.1), name
        assert used.std().item() == pytest.approx(expected.std().item(), rel=0.2), name
