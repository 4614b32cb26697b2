"""`conbo.Client`: the verbs of a study, with answers that get lost and services that are not what they seem."""

import inspect
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import conbo
from conbo.connection import seconds_to_wait
from conbo.errors import AccessError, ConboError, PointError, RewardError, SettingError, StorageError, TrialError
from conbo.server.tokens import TokenFile
from conbo.study import Study, open_study
from running_server import Running, Start


def parameters(function: object) -> list[str]:
    return list(inspect.signature(function).parameters)  # type: ignore[arg-type]


def test_the_verbs_are_those_of_a_study() -> None:
    for name in ("ask", "tell", "fail", "release", "renew", "enqueue"):
        assert parameters(getattr(conbo.Client, name)) == parameters(getattr(Study, name))
    assert set(parameters(conbo.Client.run)) <= set(parameters(Study.run))


def test_the_loop_by_hand(service: Running) -> None:
    client = conbo.Client(service.url, worker="robot")
    first, second = client.ask(2)
    assert first.worker is not None
    assert first.worker.startswith("robot/")
    client.tell(first, 1.5, outcomes={"wait": 3})
    client.tell(first, 1.5, outcomes={"wait": 3})
    client.fail(second, "broken")
    client.renew(third := client.ask(state={"demand": 50}), 60)
    client.release(third)
    assert client.enqueue({"demand": 20}, {"stock": 30}).number == 3
    assert client.ask(state={"demand": 20}).number == 3
    assert client.trials == open_study(service.storage).trials
    assert client.trials[0].measured == {"wait": 3.0}
    assert client.status()["failed"] == 1


def test_errors_are_those_of_a_study(service: Running) -> None:
    client = conbo.Client(service.url)
    with pytest.raises(PointError, match=r"`10\.0 <= demand <= 100\.0` must hold, but got demand=5\."):
        client.ask(state={"demand": 5})
    with pytest.raises(TrialError, match="unknown trial 0: none was asked for yet"):
        client.tell(0, 1.0)
    with pytest.raises(RewardError, match="a reward must be one finite number, but got nan"):
        client.tell(client.ask(), float("nan"))
    with pytest.raises(SettingError, match="plain numbers, strings, lists and dicts"):
        client.ask(state={"demand": object()})  # type: ignore[dict-item]


def test_numbers_of_numpy_are_sent_as_plain_ones(service: Running) -> None:
    client = conbo.Client(service.url)
    (trial,) = client.ask(np.int64(1), {"demand": np.float32(50)})  # type: ignore[call-overload]
    assert trial.state == {"demand": 50.0}
    client.tell(np.int64(trial.number), np.float32(1.5))  # type: ignore[arg-type]
    assert client.trials[0].reward == 1.5
    client.enqueue({"demand": np.int32(20)}, {"stock": np.array(30)})  # type: ignore[dict-item]
    assert client.trials[1].point == {"demand": 20.0, "stock": 30.0}
    state = {"demand": np.float32(50)}
    assert client.policy()(state) == client.policy()({"demand": 50})  # type: ignore[arg-type]
    with pytest.raises(TrialError, match="a trial must be named by its number, but got True"):
        client.tell(True, 1.0)
    with pytest.raises(SettingError, match="plain numbers, strings, lists and dicts: Object of type ndarray"):
        client.ask(state={"demand": np.array([20])})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    "url",
    [
        *("", "ftp://a.org", "a.org", "http://", "http://me:secret@a.org", "http://a.org?token=x"),
        *("http://[::1", "http://a.org:http", "http://a.org:99999", "http://a b.org", "http://a.org/\n"),
    ],
)
def test_what_a_url_must_be(url: str) -> None:
    with pytest.raises(SettingError, match="`url` must"):
        conbo.Client(url)


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), "5"])
def test_what_a_timeout_must_be(timeout: Any) -> None:
    with pytest.raises(SettingError, match=r"`0 < timeout <= \d+` must hold, but got timeout="):
        conbo.Client("http://127.0.0.1:1", timeout=timeout)


@pytest.mark.parametrize("name", ["", "..", "a\ud800", 5])
def test_a_client_is_given_the_name_of_a_study(name: Any) -> None:
    with pytest.raises(SettingError, match="`name` must"):
        conbo.Client("http://127.0.0.1:1", name=name)


def test_tokens(start: Start, tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path / "tokens.json")
    service = start(tokens=tokens)
    with pytest.raises(AccessError, match="a valid token is needed"):
        conbo.Client(service.url).status()
    reader = conbo.Client(service.url, tokens.add("read"))
    assert reader.status()["completed"] == 0
    with pytest.raises(AccessError, match="this needs the right 'run'"):
        reader.ask()
    with pytest.warns(UserWarning, match="is not encrypted: others on the way can read the token"):
        conbo.Client("http://conbo.example.org", "conbo_x")


def test_a_run_records_failures_and_gives_up_after_ten(service: Running) -> None:
    client = conbo.Client(service.url)
    calls = []

    def now_and_then(state: dict[str, float], action: dict[str, float]) -> float:
        calls.append(state)
        if len(calls) == 2:
            raise ValueError("no result")
        return 1.0

    summary = client.run(now_and_then, 2)
    assert (summary.completed, summary.failed, summary.stopped) == (2, 1, "evaluations")
    assert client.trials[1].error.startswith("ValueError: no result (test_client.py, line ")
    with pytest.raises(ConboError, match="the objective failed 10 times in a row: RewardError: a reward must be one"):
        client.run(lambda state, action: float("nan"), 3)
    assert client.run(now_and_then, 2).completed == 0


def test_a_failed_evaluation_is_not_repeated_once_the_time_is_up(service: Running) -> None:
    client, most = conbo.Client(service.url), 0.3
    ends: list[float] = []

    def slow_failure(state: dict[str, float], action: dict[str, float]) -> float:
        ends.append(time.monotonic() + most)
        while time.monotonic() < ends[0]:
            time.sleep(0.01)
        raise ValueError("no result")

    summary = client.run(slow_failure, 2, retries=3, max_seconds=most)
    assert (summary.failed, summary.retried, summary.stopped) == (0, 0, "max_seconds")
    assert len(ends) <= 1
    assert client.run(lambda state, action: 1.0, 2).completed == 2  # with the trial that was given back
    assert len(client.trials) == 2


def test_an_error_of_the_service_is_no_failure_of_the_trial(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    client = conbo.Client(service.url)
    post = client._post

    def broken(path: str, body: dict[str, Any], again: bool = True) -> dict[str, Any]:
        if path.endswith("/tell"):
            raise ConboError("the service met an error of its own")
        return post(path, body, again)

    monkeypatch.setattr(client, "_post", broken)
    with pytest.raises(ConboError, match="the service met an error of its own"):
        client.run(lambda state, action: 1.0, 1)
    assert [trial.status for trial in client.trials] == ["running"]


def test_an_objective_may_raise_any_error_of_conbo(service: Running) -> None:
    def other_study_is_away(state: object, action: object) -> float:
        raise StorageError("the other study is away")

    with pytest.raises(ConboError, match="the objective failed 10 times in a row: StorageError: the other study"):
        conbo.Client(service.url).run(other_study_is_away, 1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"evaluations": 0}, "`evaluations` must be an integer of at least 1, but got evaluations=0"),
        ({"retries": -1}, "`retries` must be an integer of at least 0, but got retries=-1"),
        ({"max_seconds": "5"}, "`0 < max_seconds < inf` must hold, but got max_seconds='5'"),
        ({"lease": 0}, "`0 < lease < inf` must hold, but got lease=0"),
        ({"lease": None}, "`0 < lease < inf` must hold, but got lease=None"),
    ],
)
def test_bad_settings_of_a_run(settings: dict[str, Any], message: str) -> None:
    client = conbo.Client("http://127.0.0.1:1")
    with pytest.raises(SettingError, match=message):
        client.run(lambda state, action: 1.0, **{"evaluations": 2, **settings})


def test_a_failure_of_a_lost_trial_does_not_count(service: Running) -> None:
    client, study = conbo.Client(service.url), open_study(service.storage)

    def loses_its_trial(state: object, action: object) -> float:
        if study.trials[-1].number == 0:
            study.tell(0, 5.0)
        raise ValueError("broken")

    with pytest.raises(RewardError, match="outcomes must be a mapping"):
        client.tell(0, 1.0, outcomes=[1])  # type: ignore[arg-type]
    summary = client.run(loses_its_trial, 1)
    assert (summary.completed, summary.failed) == (0, 0)
    assert client.trials[0].reward == 5.0


def test_whoever_lost_a_trial_cannot_fail_it(service: Running) -> None:
    client = conbo.Client(service.url)
    mine = client.ask(lease=0.01)
    time.sleep(0.02)
    theirs = client.ask()
    client.fail(mine, "too slow")
    assert client.trials == (theirs,)
    client.tell(theirs, 3.0)
    with pytest.raises(TrialError, match=r"told reward=3\.0 and cannot fail"):
        client.fail(theirs, "too slow")


def test_a_trial_that_nobody_leased_can_be_canceled(service: Running) -> None:
    client, study = conbo.Client(service.url), open_study(service.storage)
    study.ask()
    client.fail(client.enqueue({"demand": 20}, {"stock": 30}), None)  # type: ignore[arg-type]
    client.fail(client.trials[0])
    assert [(trial.status, trial.error) for trial in study.trials] == [("failed", "")] * 2


def test_an_interrupted_run_gives_its_trial_back(service: Running) -> None:
    client = conbo.Client(service.url)

    def interrupted(state: object, action: object) -> float:
        raise KeyboardInterrupt

    assert client.run(interrupted, 2).stopped == "interrupted"
    assert client.ask().number == 0


def test_while_it_evaluates_a_client_renews_its_lease(service: Running) -> None:
    database = sqlite3.connect(service.storage, check_same_thread=False)

    def waits_for_renewals(state: object, action: object) -> float:
        seen: set[float] = set()
        until = time.monotonic() + 30
        while len(seen) < 3 and time.monotonic() < until:
            seen.add(database.execute("SELECT leased_until FROM conbo_trials").fetchone()[0])
            time.sleep(0.01)
        return float(len(seen))

    conbo.Client(service.url).run(waits_for_renewals, 1, lease=0.3)
    assert open_study(service.storage).trials[0].reward == 3.0
    database.close()


class Lossy(threading.Thread):
    """A network that delivers every request, but loses the first answers."""

    def __init__(self, port: int, losses: int) -> None:
        super().__init__(daemon=True)
        self._target, self.losses = port, losses
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]

    def run(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with client, socket.create_connection(("127.0.0.1", self._target)) as server:
                request = b""
                while b"\r\n\r\n" not in request or not self._is_whole(request):
                    request += client.recv(65536)
                server.sendall(request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1))
                answer = b"".join(iter(lambda: server.recv(65536), b""))
                self.losses -= 1
                if self.losses < 0:
                    client.sendall(answer)

    @staticmethod
    def _is_whole(request: bytes) -> bool:
        head, _, body = request.partition(b"\r\n\r\n")
        lengths = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")]
        return len(body) >= int(lengths[0] if lengths else 0)

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def lossy(service: Running) -> Iterator[Lossy]:
    network = Lossy(service.port, losses=2)
    network.start()
    yield network
    network.close()


def test_lost_answers_change_nothing(service: Running, lossy: Lossy) -> None:
    client = conbo.Client(f"http://127.0.0.1:{lossy.port}")
    trial = client.ask()
    assert (trial.number, lossy.losses) == (0, -1)
    lossy.losses = 2
    client.tell(trial, 1.5)
    assert [t.reward for t in open_study(service.storage).trials] == [1.5]


def test_a_service_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conbo.connection.PATIENCE", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with pytest.raises(StorageError, match=f"the service http://127.0.0.1:{port} cannot be reached: "):
        conbo.Client(f"http://127.0.0.1:{port}").status()


def test_a_redirect_does_not_carry_the_token_away(service: Running) -> None:
    class Redirects(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(302)
            self.send_header("Location", f"{service.url}/v1/studies/default")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Redirects) as elsewhere:
        threading.Thread(target=elsewhere.handle_request, daemon=True).start()
        with pytest.raises(ConboError, match="the service answered with status 302"):
            conbo.Client(f"http://127.0.0.1:{elsewhere.server_port}", "conbo_secret").status()


@pytest.mark.parametrize("retry_after", ["0", "Wed, 21 Oct 2015 07:28:00 GMT", "soon", "nan"])
def test_a_busy_service_is_asked_again(retry_after: str) -> None:
    class Busy(BaseHTTPRequestHandler):
        answers: ClassVar = [503, 200]

        def do_GET(self) -> None:
            self.send_response(self.answers.pop(0))
            self.send_header("Retry-After", retry_after)
            self.end_headers()
            self.wfile.write(b'{"completed": 7}')

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Busy) as service:
        threading.Thread(target=lambda: [service.handle_request() for _ in range(2)], daemon=True).start()
        assert conbo.Client(f"http://127.0.0.1:{service.server_port}").status()["completed"] == 7


class Answers(BaseHTTPRequestHandler):
    """A service, or a proxy in front of it, that gives these answers one after the other."""

    contents: ClassVar[list[bytes]]

    def do_GET(self) -> None:
        content = self.contents.pop(0)
        self.send_response(200)
        self.send_header("Content-Length", str(max(len(content), 16)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


def test_a_cut_off_answer_is_no_answer() -> None:
    class CutOff(Answers):
        contents: ClassVar = [b'{"comple', b"", b'{"completed": 7}']

    with HTTPServer(("127.0.0.1", 0), CutOff) as service:
        threading.Thread(target=lambda: [service.handle_request() for _ in range(3)], daemon=True).start()
        assert conbo.Client(f"http://127.0.0.1:{service.server_port}").status()["completed"] == 7


@pytest.mark.parametrize("content", [b"<html>Please sign in.</html>", b"[1, 2, 3, 4, 5, 6]"])
def test_a_page_of_somebody_else_is_no_answer(content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    class Elsewhere(Answers):
        contents: ClassVar = [content]

    monkeypatch.setattr("conbo.connection.PATIENCE", 0.0)
    with HTTPServer(("127.0.0.1", 0), Elsewhere) as service:
        threading.Thread(target=service.handle_request, daemon=True).start()
        with pytest.raises(StorageError, match="its answer must be a JSON object, but got b'"):
            conbo.Client(f"http://127.0.0.1:{service.server_port}").status()


def test_a_date_says_how_long_to_wait() -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=100))
    assert seconds_to_wait(later) == pytest.approx(100, abs=10)


@pytest.mark.parametrize("retry_after", ["-inf", "-5", "Wed, 21 Oct 99999999999999999999 07:28:00 GMT"])
def test_an_invalid_time_to_wait_counts_as_zero(retry_after: str) -> None:
    assert seconds_to_wait(retry_after) == 0


def test_a_proxy_of_the_environment_is_not_asked_for_this_machine(
    service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setattr("conbo.connection.PATIENCE", 0.0)
    assert conbo.Client(service.url).status()["completed"] == 0
