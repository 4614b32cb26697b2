import os
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest

from conbo.errors import SettingError
from conbo.problems.cifar10_images import CLASSES, PAIRS, read_two_class_images

BIRD_CAT = 1  # the second pair


def random_batch(seed: int, images: int = 20) -> dict[bytes, object]:
    generator = np.random.default_rng(seed)
    labels = generator.integers(len(CLASSES), size=images).tolist()
    return {b"data": generator.integers(256, size=(images, 3072)).astype(np.uint8), b"labels": labels}


def write_archive(folder: Path, protocol: int = 2) -> list[dict[bytes, object]]:
    folder.mkdir(parents=True)
    batches = [random_batch(seed) for seed in range(5)]
    for number, batch in enumerate(batches, start=1):
        (folder / f"data_batch_{number}").write_bytes(pickle.dumps(batch, protocol=protocol))
    return batches


def write_partitions(folder: Path, images: int = 12) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, pair in enumerate(PAIRS, start=1):
        generator = np.random.default_rng(number)
        pixels = generator.integers(256, size=(images, 32, 32, 3)).astype(np.uint8)
        labels = generator.integers(2, size=images).astype(np.uint8)
        np.savez(folder / f"partition_{number}.npz", images=pixels, labels=labels, classes=np.array(pair))


@pytest.mark.parametrize("protocol", [2, 4])
def test_the_archive_is_split_into_pairs_of_classes(tmp_path: Path, protocol: int) -> None:
    batches = write_archive(tmp_path / "cifar-10-batches-py", protocol)
    data_sets = read_two_class_images(tmp_path)
    assert list(data_sets) == ["/".join(pair) for pair in PAIRS]

    labels = np.concatenate([batch[b"labels"] for batch in batches])
    data = np.concatenate([batch[b"data"] for batch in batches])
    rows = np.flatnonzero(labels // 2 == BIRD_CAT)
    birds_and_cats = data_sets["bird/cat"]
    assert birds_and_cats.labels.tolist() == (labels[rows] == CLASSES.index("cat")).astype(int).tolist()
    # a row has all red numbers first, then the green and the blue ones, each from top left to bottom right
    assert (
        birds_and_cats.images[0, 5, 7].tolist()
        == data[rows[0]][[5 * 32 + 7 + plane * 1024 for plane in range(3)]].tolist()
    )


def test_a_folder_and_its_packed_archive_are_the_same(tmp_path: Path) -> None:
    unpacked = tmp_path / "cifar-10-batches-py"
    write_archive(unpacked)
    packed = tmp_path / "elsewhere" / "cifar-10-python.tar.gz"
    packed.parent.mkdir()
    with tarfile.open(packed, "w:gz") as archive:
        archive.add(unpacked, arcname="cifar-10-batches-py")
    expected = read_two_class_images(unpacked)
    for source in (packed, packed.parent):
        for name, data in read_two_class_images(source).items():
            assert np.array_equal(data.images, expected[name].images)
            assert np.array_equal(data.labels, expected[name].labels)


class Malicious:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch it_ran",)


@pytest.mark.parametrize("place", ["top", "value", "labels"])
def test_a_pickle_cannot_run_anything(tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "cifar-10-batches-py"
    write_archive(folder)
    batch = random_batch(0)
    evil = {"top": Malicious(), "value": {**batch, b"more": Malicious()}, "labels": {**batch, b"labels": [Malicious()]}}
    (folder / "data_batch_3").write_bytes(pickle.dumps(evil[place], protocol=2))
    with pytest.raises(SettingError, match=r"data_batch_3' must be a batch of CIFAR-10.*asks for \w+\.system"):
        read_two_class_images(folder)
    assert not (tmp_path / "it_ran").exists()


def test_arrays_of_objects_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    write_archive(folder)
    batch = {**random_batch(0), b"data": np.array([{}, []], dtype=object)}
    (folder / "data_batch_1").write_bytes(pickle.dumps(batch, protocol=2))
    with pytest.raises(SettingError, match="an array must hold bytes"):
        read_two_class_images(folder)


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(
        SettingError, match=r"`folder` must hold partition_1.npz to .* none of these.*https://www.cs.toronto"
    ):
        read_two_class_images(tmp_path)
    with pytest.raises(SettingError, match="there is no such folder or file"):
        read_two_class_images(tmp_path / "nowhere")


def test_part_of_it_missing(tmp_path: Path) -> None:
    write_partitions(tmp_path / "partitions")
    (tmp_path / "partitions" / "partition_4.npz").unlink()
    with pytest.raises(SettingError, match=r"partition_4.npz' is missing"):
        read_two_class_images(tmp_path / "partitions")
    write_archive(tmp_path / "batches")
    (tmp_path / "batches" / "data_batch_2").unlink()
    with pytest.raises(SettingError, match=r"data_batch_2' is missing"):
        read_two_class_images(tmp_path / "batches")
    packed = tmp_path / "cifar-10-python.tar.gz"
    with tarfile.open(packed, "w:gz") as archive:
        archive.add(tmp_path / "batches", arcname="cifar-10-batches-py")
    with pytest.raises(SettingError, match=r"the archive must hold data_batch_1 to data_batch_5.*data_batch_2"):
        read_two_class_images(packed)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            {"classes": np.array(["cat", "bird"])},
            r"`classes` of .*must be \('bird', 'cat'\), but got \('cat', 'bird'\)",
        ),
        ({"images": np.zeros((12, 32, 32), np.uint8)}, r"`images` of .*must be uint8 \(12, 32, 32, 3\)"),
        ({"labels": np.arange(12)}, "`labels` of .*must be 0 or 1"),
    ],
)
def test_wrong_partitions(tmp_path: Path, wrong: dict[str, np.ndarray], message: str) -> None:
    write_partitions(tmp_path)
    path = tmp_path / "partition_2.npz"
    with np.load(path) as file:
        content = dict(file)
    np.savez(path, **{**content, **wrong})
    with pytest.raises(SettingError, match=message):
        read_two_class_images(tmp_path)


def test_the_real_images() -> None:
    if (folder := os.environ.get("CONBO_CIFAR10")) is None:
        pytest.skip("CONBO_CIFAR10 must name the folder with the images of CIFAR-10, but is not set")
    for data in read_two_class_images(folder).values():
        assert data.images.shape == (10_000, 32, 32, 3)
        assert data.labels.mean() == 0.5
