"""What is recorded on a GPU and replayed gives the results of the function itself, also if it cannot be recorded."""

from threading import Thread

import pytest
import torch
from torch import Tensor

from conbo.recording import Recording, recorded, repeat

NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device")
DEVICES = ["cpu", pytest.param("cuda", marks=NO_GPU)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("times", [0, 1, 2, 3, 7])
def test_a_step_is_repeated_as_often_as_asked(times: int, device: str) -> None:
    total = torch.zeros(3, device=device)

    def step() -> tuple[Tensor, ...]:
        total.add_(torch.arange(3.0, device=device))
        return ()

    repeat(step, times, total.device if total.is_cuda else None)
    assert total.tolist() == [0.0, times, 2.0 * times]


@NO_GPU
def test_a_recording_reads_its_tensors_anew() -> None:
    point = torch.ones(2, device="cuda")
    double = Recording(lambda: (2 * point,), point.device)
    assert double.is_recorded
    assert double()[0].tolist() == [2.0, 2.0]
    point.copy_(torch.tensor([3.0, 5.0]))
    assert double()[0].tolist() == [6.0, 10.0]


@NO_GPU
@pytest.mark.parametrize("copies", [1, 5])
def test_linear_algebra_is_recorded_in_a_thread_that_never_used_it(copies: int) -> None:
    matrices, found = torch.eye(3, dtype=torch.float64, device="cuda").expand(copies, 3, 3).clone(), list[object]()

    def factorizes() -> None:
        root = Recording(lambda: (torch.linalg.cholesky_ex(matrices.squeeze(0))[0] @ matrices[0],), matrices.device)
        matrices.mul_(4)
        found.extend([root.is_recorded, root()[0].sum().item()])

    thread = Thread(target=factorizes)
    thread.start()
    thread.join()
    assert found == [True, copies * 3 * 2.0 * 4.0]


@NO_GPU
def test_a_function_that_waits_for_the_gpu_is_called_instead() -> None:
    point, found = torch.ones(2, device="cuda"), list[list[float]]()

    def waits() -> None:  # in a thread of its own, in which nothing more is recorded then
        product = Recording(lambda: (point * float(point.sum()),), point.device)
        again = Recording(lambda: (2 * point,), point.device)
        assert [product.is_recorded, again.is_recorded] == [False, False]
        found.append(product()[0].tolist())
        point.fill_(3.0)
        found.extend([product()[0].tolist(), again()[0].tolist()])

    thread = Thread(target=waits)
    thread.start()
    thread.join()
    assert found == [[2.0, 2.0], [18.0, 18.0], [6.0, 6.0]]


@pytest.mark.parametrize("device", DEVICES)
def test_searches_that_ended_do_not_change_the_others(device: str) -> None:
    starts = torch.tensor([[0.1], [0.2], [0.3]], device=device)

    def function(points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        return points[:, 0] ** 2 + rows, 2 * points

    same = recorded(function, starts) if device == "cuda" else function
    for kept in ([0, 1, 2], [0, 1, 2], [0, 2], [2]):
        rows = torch.tensor(kept, device=device)
        points = starts[rows] + len(kept)
        for ours, theirs in zip(same(points, rows), function(points, rows), strict=True):
            torch.testing.assert_close(ours, theirs)
