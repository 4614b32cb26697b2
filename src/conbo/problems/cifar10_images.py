"""Reads the images of CIFAR-10 from the user's files, as five data sets of two classes each.

Two kinds of files are understood: `partition_1.npz` to `partition_5.npz`, each with `images`, `labels` and `classes`,
and the original Python archive, packed (`cifar-10-python.tar.gz`) or unpacked (`cifar-10-batches-py`). The archive
consists of pickles, which are read without executing any code in them.
"""

import io
import pickle
import tarfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray

from conbo.errors import SettingError

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
PAIRS = tuple(zip(CLASSES[::2], CLASSES[1::2], strict=True))
SIDE, CHANNELS = 32, 3

PARTITION_FILES = tuple(f"partition_{number}.npz" for number in range(1, len(PAIRS) + 1))
ARCHIVE = "cifar-10-python.tar.gz"
ARCHIVE_FOLDER = "cifar-10-batches-py"
BATCH_FILES = tuple(f"data_batch_{number}" for number in range(1, 6))  # without the archive's test images
WHERE_TO_GET = f"{ARCHIVE} is at https://www.cs.toronto.edu/~kriz/cifar.html"


@dataclass(frozen=True)
class TwoClassImages:
    """Images of two classes in a random order."""

    images: NDArray[np.uint8]  # (n, SIDE, SIDE, CHANNELS)
    labels: NDArray[np.int64]  # (n,), 0 for the first class and 1 for the second


def read_two_class_images(source: str | Path) -> dict[str, TwoClassImages]:
    """Read the five two-class data sets from a folder or a packed archive; return them by name, such as "bird/cat"."""
    path = Path(source).expanduser()
    if path.is_file():
        return _from_batches(path, _packed_batches(path))
    if any((path / name).exists() for name in PARTITION_FILES):
        return {
            "/".join(pair): _partition(path / name, pair) for name, pair in zip(PARTITION_FILES, PAIRS, strict=True)
        }
    for folder in (path, path / ARCHIVE_FOLDER):
        if any((folder / name).exists() for name in BATCH_FILES):
            return _from_batches(folder, map(_unpacked_batch, [folder / name for name in BATCH_FILES]))
    if (path / ARCHIVE).is_file():
        return read_two_class_images(path / ARCHIVE)
    missing = "it has none of these" if path.is_dir() else "there is no such folder or file"
    wanted = f"{PARTITION_FILES[0]} to {PARTITION_FILES[-1]}, {ARCHIVE} or {ARCHIVE_FOLDER}"
    raise SettingError(f"`folder` must hold {wanted}, but got {str(path)!r}: {missing}. {WHERE_TO_GET}.")


def _partition(path: Path, pair: tuple[str, str]) -> TwoClassImages:
    if not path.is_file():
        raise SettingError(f"`folder` must hold all of {', '.join(PARTITION_FILES)}, but {str(path)!r} is missing.")
    try:
        with np.load(path, allow_pickle=False) as file:
            images, labels, classes = file["images"], file["labels"], tuple(map(str, file["classes"]))
    except (KeyError, ValueError, OSError) as error:
        raise SettingError(f"{str(path)!r} must hold `images`, `labels` and `classes`, but {error}.") from error
    if classes != pair:
        raise SettingError(f"`classes` of {str(path)!r} must be {pair}, but got {classes}.")
    return _checked(path, images, labels)


def _checked(path: Path, images: NDArray[Any], labels: NDArray[Any]) -> TwoClassImages:
    shape = (len(labels), SIDE, SIDE, CHANNELS)
    if images.shape != shape or images.dtype != np.uint8:
        raise SettingError(f"`images` of {str(path)!r} must be uint8 {shape}, but got {images.dtype} {images.shape}.")
    if not np.isin(labels, (0, 1)).all():
        raise SettingError(f"`labels` of {str(path)!r} must be 0 or 1, but got {np.unique(labels).tolist()}.")
    return TwoClassImages(images, labels.astype(np.int64))


def _from_batches(path: Path, batches: Iterator[dict[bytes, Any]]) -> dict[str, TwoClassImages]:
    """Return the five two-class data sets by name, from the batches of the CIFAR-10 archive.

    Images keep the archive's random order. `path` is the archive's path, for error messages.
    """
    pixels, labels = [], []
    for batch in batches:
        if not isinstance(batch, dict) or not {b"data", b"labels"} <= batch.keys():
            raise SettingError(f"a batch of {str(path)!r} must hold `data` and `labels`, but it does not.")
        pixels.append(batch[b"data"])
        labels.append(np.asarray(batch[b"labels"], dtype=np.int64))
    planes = np.concatenate(pixels).reshape(-1, CHANNELS, SIDE, SIDE)  # red, green and blue, one after the other
    all_images, all_labels = planes.transpose(0, 2, 3, 1), np.concatenate(labels)
    return {"/".join(pair): _pick(path, all_images, all_labels, pair) for pair in PAIRS}


def _pick(path: Path, images: NDArray[Any], labels: NDArray[np.int64], pair: tuple[str, str]) -> TwoClassImages:
    first, second = map(CLASSES.index, pair)
    chosen = (labels == first) | (labels == second)
    return _checked(path, np.ascontiguousarray(images[chosen]), (labels[chosen] == second).astype(np.int64))


def _packed_batches(path: Path) -> Iterator[dict[bytes, Any]]:
    try:
        with tarfile.open(path) as archive:
            for name in BATCH_FILES:
                member = archive.extractfile(f"{ARCHIVE_FOLDER}/{name}")
                if member is None:
                    raise KeyError(name)
                yield _unpickle(member.read(), path)
    except (KeyError, tarfile.TarError, EOFError) as error:
        rule = f"the archive must hold {BATCH_FILES[0]} to {BATCH_FILES[-1]} in {ARCHIVE_FOLDER}"
        raise SettingError(f"{rule}, but {str(path)!r} does not: {error}. {WHERE_TO_GET}.") from error


def _unpacked_batch(path: Path) -> dict[bytes, Any]:
    if not path.is_file():
        raise SettingError(f"`folder` must hold all of {', '.join(BATCH_FILES)}, but {str(path)!r} is missing.")
    return _unpickle(path.read_bytes(), path)


# Reading pickles safely


def _unpickle(content: bytes, path: Path) -> dict[bytes, Any]:
    try:
        return _plain(_BatchUnpickler(io.BytesIO(content), encoding="bytes").load())
    except (pickle.UnpicklingError, EOFError, IndexError, TypeError, ValueError) as error:
        raise SettingError(f"{str(path)!r} must be a batch of CIFAR-10, but cannot be read: {error}.") from error


class _PickledType:
    """Replaces numpy's dtype when a pickle is read; it only stores the type's code, such as "u1"."""

    def __init__(self, code: str | bytes, *rest: object) -> None:
        self.code = code.decode() if isinstance(code, bytes) else code

    def __setstate__(self, state: object) -> None: ...


class _PickledArray:
    """Replaces numpy's ndarray when a pickle is read; it only stores the shape and the bytes."""

    shape: Sequence[int]
    content: bytes

    def __setstate__(self, state: tuple[object, Sequence[int], _PickledType, bool, bytes]) -> None:
        _, self.shape, kind, columns_first, self.content = state
        if not isinstance(kind, _PickledType) or kind.code != "u1" or columns_first:
            raise pickle.UnpicklingError("an array must hold bytes, row by row")


def _reconstruct(*_: object) -> _PickledArray:
    return _PickledArray()


def _encode(text: str | bytes, encoding: str | bytes) -> bytes:
    """Replaces `_codecs.encode` when a pickle is read; it returns `text` as bytes.

    In old pickle protocols, Python 3 stores bytes as a call of that function. The encoding is always Latin-1, so
    `encoding` is ignored.
    """
    return text if isinstance(text, bytes) else text.encode("latin1")


class _BatchUnpickler(pickle.Unpickler):
    """An unpickler that reads only containers, numbers, text and arrays of bytes, and never imports anything."""

    _known: ClassVar[dict[str, Callable[..., Any]]] = {
        "numpy.core.multiarray._reconstruct": _reconstruct,
        "numpy._core.multiarray._reconstruct": _reconstruct,
        "numpy.ndarray": _PickledArray,
        "numpy.dtype": _PickledType,
        "_codecs.encode": _encode,
    }

    def find_class(self, module: str, name: str) -> Any:
        """Return the safe replacement for a name that occurs in pickled arrays; raise an error for all other names."""
        if (known := self._known.get(f"{module}.{name}")) is None:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is no array")
        return known

    def persistent_load(self, pid: object) -> NoReturn:
        """Raise an error, because a valid batch has no references to objects outside the file."""
        raise pickle.UnpicklingError("it asks for something outside the file")


def _plain(batch: Any) -> Any:
    """Return the batch with every `_PickledArray` replaced by a numpy array."""
    if not isinstance(batch, dict):
        return batch
    return {key: _array(value) if isinstance(value, _PickledArray) else value for key, value in batch.items()}


def _array(pickled: _PickledArray) -> NDArray[np.uint8]:
    return np.frombuffer(pickled.content, dtype=np.uint8).reshape(tuple(pickled.shape))
