import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from conbo.errors import PointError, SettingError
from conbo.problems import Problem, cifar_cnn
from conbo.problems.cifar10_images import PAIRS
from conbo.problems.cifar_cnn_training import DATA_SETS, Split, network, scaled, train_network

ACTION = {
    "dropout_1": 0.2,
    "dropout_2": 0.3,
    "dropout_3": 0.4,
    "learning_rate": 3e-3,
    "beta_1": 0.9,
    "beta_2": 0.99,
    "batch_size": 16,
}
STATE = {"classes": "bird/cat"}
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images that are easy to tell apart: the second class is brighter."""
    folder = tmp_path_factory.mktemp("images")
    for number, pair in enumerate(PAIRS, start=1):
        generator = np.random.default_rng(number)
        labels = generator.integers(2, size=80)
        images = generator.integers(0, 150, size=(80, 32, 32, 3)) + 60 * labels[:, None, None, None]
        np.savez(folder / f"partition_{number}.npz", images=images.astype(np.uint8), labels=labels, classes=pair)
    return folder


@pytest.fixture(scope="module")
def problem(folder: Path) -> Problem:
    return cifar_cnn(folder, epochs=2, train=48, validation=32, device="cpu", progress=False)


def test_the_network_is_the_one_of_the_paper() -> None:
    model = network(0.1, 0.2, 0.3)
    shapes = [tuple(parameter.shape) for parameter in model.parameters()]
    convolutions = [(64, 3, 2, 2), (64,), (64,), (32, 64, 2, 2), (32,), (32,)]  # filters, and batch norm's two
    assert shapes == [*convolutions, (256, 8 * 8 * 32), (256,), (2, 256), (2,)]
    assert [layer.p for layer in model if isinstance(layer, torch.nn.Dropout)] == [0.1, 0.2, 0.3]
    assert model(torch.zeros(5, 3, 32, 32)).shape == (5, 2)


def test_pixels_are_scaled() -> None:
    images = torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1).expand(2, 32, 32, 3)
    assert scaled(images)[0].unique().tolist() == [-1.0]
    assert scaled(images)[1].unique().tolist() == [1.0]
    assert scaled(images).shape == (2, 3, 32, 32)


def test_the_same_seed_is_the_same_training(problem: Problem) -> None:
    before = torch.random.get_rng_state()
    first, again, other = (problem.evaluate(STATE, ACTION, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert first == again
    assert {first, other} <= {right / 32 for right in range(33)}
    assert torch.equal(before, torch.random.get_rng_state())


def test_it_learns(folder: Path) -> None:
    problem = cifar_cnn(folder, epochs=5, train=48, validation=32, device="cpu", progress=False)
    assert problem.mean_reward is not None
    estimate = problem.mean_reward({"classes": "ship/truck"}, ACTION, 2, 0)
    assert estimate.mean > 0.85
    assert estimate.standard_error < 0.1


def test_the_validation_images_follow_those_for_training(folder: Path) -> None:
    from conbo.problems.cifar10_images import read_two_class_images

    data = read_two_class_images(folder)["deer/dog"]
    split = Split.of(data, train=20, validation=10)
    assert np.array_equal(split.images.numpy(), data.images[:20])
    assert np.array_equal(split.validation_images.numpy(), data.images[20:30])
    assert np.array_equal(split.validation_labels.numpy(), data.labels[20:30])


def test_every_hyperparameter_matters(folder: Path) -> None:
    from conbo.problems.cifar10_images import read_two_class_images

    split = Split.of(read_two_class_images(folder)["bird/cat"], train=32, validation=16)
    seen: list[torch.Tensor] = []

    def final_weights(action: dict[str, float]) -> torch.Tensor:
        def remember(module: torch.nn.Module, *_: object) -> None:
            if isinstance(module, torch.nn.Linear) and module.out_features == 2 and not module.training:
                seen.append(module.weight.detach().clone())

        handle = torch.nn.modules.module.register_module_forward_hook(remember)
        try:
            train_network(split, action, epochs=1, seed=0, device=CPU)
        finally:
            handle.remove()
        return seen[-1]

    usual = final_weights(ACTION)
    assert torch.equal(usual, final_weights(ACTION))
    for name, value in ACTION.items():
        changed = {**ACTION, name: 32 if name == "batch_size" else value * 0.95}
        assert not torch.equal(usual, final_weights(changed)), name


def test_the_space() -> None:
    assert DATA_SETS == ("airplane/automobile", "bird/cat", "deer/dog", "frog/horse", "ship/truck")


def test_progress_is_shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    problem = cifar_cnn(folder, epochs=1, train=16, validation=8, device="cpu")
    problem.evaluate(STATE, ACTION, np.random.default_rng(0))
    assert "training" in capsys.readouterr().err


def test_a_problem_can_be_sent_to_another_process(problem: Problem) -> None:
    sent = pickle.loads(pickle.dumps(problem))
    generators = np.random.default_rng(4), np.random.default_rng(4)
    assert sent.evaluate(STATE, ACTION, generators[0]) == problem.evaluate(STATE, ACTION, generators[1])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "`epochs >= 1` must hold, but got epochs=0"),
        ({"train": 0}, "`train >= 1` must hold, but got train=0"),
        ({"validation": -1}, "`validation >= 1` must hold, but got validation=-1"),
        ({"train": 60, "validation": 30}, r"`train \+ validation <= 80`.* train=60, validation=30"),
        ({"train": 10, "validation": 10, "device": "tricycle"}, "`device` must be .*device='tricycle'"),
        ({"train": 10, "validation": 10, "device": "cuda:99"}, "`device` must be .*device='cuda:99'"),
    ],
)
def test_wrong_settings(folder: Path, settings: dict[str, int], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        cifar_cnn(folder, **settings)


def test_wrong_points(problem: Problem) -> None:
    with pytest.raises(PointError, match="'classes' must be one of"):
        problem.evaluate({"classes": "cat/dog"}, ACTION, np.random.default_rng(0))
    with pytest.raises(PointError, match="beta_1"):
        problem.evaluate(STATE, {**ACTION, "beta_1": 0.5}, np.random.default_rng(0))


def test_a_few_steps_on_real_images() -> None:
    if (folder := os.environ.get("CONBO_CIFAR10")) is None:
        pytest.skip("CONBO_CIFAR10 must name the folder with the images of CIFAR-10, but is not set")
    problem = cifar_cnn(folder, epochs=2, train=320, validation=200, device="cpu", progress=False)
    reward = problem.evaluate({"classes": "frog/horse"}, {**ACTION, "dropout_1": 0.0}, np.random.default_rng(0))
    assert reward > 0.6
