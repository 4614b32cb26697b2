"""The verbs over HTTP: the library's rules and texts, retries that change nothing, and nobody who waits for a fit."""

import sqlite3
import threading
import time
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from contextlib import closing
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import conbo
from conbo.density_states import Density
from conbo.errors import PointError
from conbo.server import model_work
from conbo.server.access import Caller
from conbo.server.live import Live
from conbo.server.model_processes import ModelProcesses
from conbo.server.policies import Policies
from conbo.server.records import UnknownError
from conbo.server.service import Service
from conbo.spaces import Categorical, Space
from conbo.study import Study, open_study
from running_server import SPACE, Running, Start, reward, run_async, threads

STUDY = "/v1/studies/default"
SIMPLE = conbo.GaussianProcess(main_effects="none", output_warping="none", members=1)
NEW = {
    "name": "spring",
    "space": {
        "states": [{"name": "demand", "type": "real", "low": 10, "high": 100}],
        "actions": [{"name": "stock", "type": "integer", "low": 0, "high": 150}],
    },
}


def ask(service: Running, **body: Any) -> dict[str, Any]:
    answer = service.post(f"{STUDY}/ask", body)
    assert answer.status == 200, answer.text
    return dict(answer.json)


def test_ask_tell_fail_and_status(service: Running) -> None:
    first, second = ask(service, n=2, worker="robot")["trials"]
    assert first["worker"].startswith("robot/")
    told = service.post(f"{STUDY}/trials/{first['number']}/tell", {"reward": 2.5, "outcomes": {"wait": 4}}).json
    assert (told["stands"], told["trial"]["reward"], told["trial"]["outcomes"]) == (True, 2.5, {"wait": 4})
    assert service.post(f"{STUDY}/trials/{second['number']}/fail", {"error": "broken"}).json["stands"]
    status = service.get(STUDY).json
    assert [status[kind] for kind in ("completed", "running", "failed")] == [1, 0, 1]
    assert service.get("/v1/studies").json["studies"][0]["failed"] == 1
    page = service.get(f"{STUDY}/trials?offset=1&limit=5").json
    assert (page["total"], [trial["error"] for trial in page["trials"]]) == (2, ["broken"])
    assert service.get(f"{STUDY}/trials?status=completed").json["total"] == 1
    study = open_study(service.storage)
    assert [trial.reward for trial in study.trials] == [2.5, None]
    assert study.trials[0].state == first["state"]


def test_without_an_error_a_trial_is_canceled(service: Running) -> None:
    number = ask(service)["trials"][0]["number"]
    assert service.post(f"{STUDY}/trials/{number}/fail", {"error": None}).json["trial"]["error"] == ""


def test_suggestions_are_those_of_the_library(service: Running) -> None:
    mine = Study(SPACE, seed=1).ask(3)
    theirs = ask(service, n=3)["trials"]
    assert [(t["state"], t["action"]) for t in theirs] == [(t.state, t.action) for t in mine]


def test_a_told_trial_can_be_told_again_but_not_otherwise(service: Running) -> None:
    (trial,) = ask(service)["trials"]
    for _ in range(2):
        assert service.post(f"{STUDY}/trials/0/tell", {"reward": 1.5}).status == 200
    other = service.post(f"{STUDY}/trials/0/tell", {"reward": 2.0})
    assert (other.status, other.json["error"]["type"]) == (409, "TrialError")
    assert other.error == "trial 0 was told reward=1.5 before and cannot be told 2.0 now."
    late = service.post(f"{STUDY}/trials/0/tell", {"reward": 2.0, "worker": trial["worker"]})
    assert (late.status, late.json["stands"], late.json["trial"]["late"]) == (200, False, 2.0)
    again = service.post(f"{STUDY}/trials/0/tell", {"reward": 1.5, "worker": trial["worker"]})
    assert again.json["stands"]


@pytest.mark.parametrize(
    ("path", "body", "status", "text"),
    [
        ("trials/0/tell", {"reward": "high"}, 422, "a reward must be one finite number, but got 'high'."),
        ("trials/0/tell", {"reward": 1, "outcomes": [1]}, 422, "outcomes must be a mapping from names to numbers"),
        ("trials/0/tell", {}, 422, "`reward` must be there, but is missing."),
        ("trials/0/tell", {"reward": 1, "rewards": 2}, 422, "`rewards` must not be there: no such field is known."),
        ("trials/7/tell", {"reward": 1}, 404, "unknown trial 7: known are 0 to 0."),
        ("ask", {"state": {"demand": 5}}, 422, "`10.0 <= demand <= 100.0` must hold, but got demand=5."),
        ("ask", {"n": 0}, 422, "`n` must be an integer from 1 to 100, but got n=0."),
        ("ask", {"lease": 0}, 422, "`0 < lease <= 604800` must hold, but got lease=0."),
        ("ask", {"key": 5}, 422, "`key` must be a string of 1 to 200 characters, but got 5."),
        ("ask", [1], 422, "the body of a request must be a JSON object."),
        (
            "trials",
            {"state": {"demand": 20}, "action": {}},
            422,
            "action must give every parameter a value, but 'stock' is missing.",
        ),
        ("policy", {"states": [{"demand": 50}]}, 409, "a policy needs at least one completed trial"),
        ("plots/slices", {}, 405, "Method Not Allowed."),
        ("plots", {}, 404, "there is no such path"),
    ],
)
def test_errors_are_the_librarys(attacked: Running, path: str, body: object, status: int, text: str) -> None:
    answer = attacked.post(f"{STUDY}/{path}", body)
    assert answer.status == status, answer.text
    assert answer.error.startswith(text)


def test_an_unknown_study(attacked: Running) -> None:
    answer = attacked.get("/v1/studies/winter")
    assert (answer.status, answer.error) == (404, "there is no study 'winter': there are 'default'.")


def test_a_name_cannot_be_taken_for_a_part_of_a_path(service: Running) -> None:
    names = [
        "default/trials",
        "default/trials/0",
        "default/report",
        "default/events",
        "a/b",
        "%2F",
        "a?b#c",
        "a\\b",
        "ä .",
    ]
    for demand, name in enumerate(names, 20):
        Study(SPACE, name=name, storage=service.storage)
        conbo.Client(service.url, name=name).ask(state={"demand": demand})
    for demand, name in enumerate(names, 20):
        client = conbo.Client(service.url, name=name)
        assert (client.status()["name"], [trial.state["demand"] for trial in client.trials]) == (name, [demand])
        page = service.get(f"/studies/{quote(name, safe='')}")
        assert (page.status, f'data-study="{escape(name)}"' in page.text) == (200, True)
    assert service.get(f"{STUDY}/trials").json["total"] == 0
    not_encoded = service.get("/v1/studies/a/b")
    assert (not_encoded.status, "a slash in a study's name is written as %2F" in not_encoded.error) == (404, True)


def test_not_even_errors_say_where_the_database_is(attacked: Running) -> None:
    assert attacked.storage not in attacked.get("/v1/studies/winter").text


def test_a_repeated_ask_gets_the_same_trial(service: Running, start: Start) -> None:
    first = ask(service, key="a1", n=2)
    assert ask(service, key="a1", n=2)["trials"] == first["trials"]
    assert ask(service, key="a2")["trials"][0]["number"] == 2
    service.post(f"{STUDY}/trials/0/tell", {"reward": 1.0})
    assert [trial["status"] for trial in ask(service, key="a1", n=2)["trials"]] == ["completed", "running"]
    other = start(service.storage)
    with ThreadPoolExecutor(8) as clients:
        numbers = clients.map(lambda i: ask((service, other)[i % 2], key="b")["trials"][0]["number"], range(8))
    assert set(numbers) == {3}


def test_a_lease_that_ends_gives_the_trial_to_the_next(service: Running) -> None:
    first = ask(service, lease=0.01)
    time.sleep(0.03)
    second = ask(service, lease=60)
    assert second["trials"][0]["number"] == first["trials"][0]["number"] == 0
    assert second["trials"][0]["attempts"] == 2
    lost = service.post(f"{STUDY}/trials/0/renew", {"worker": first["worker"], "lease": 60})
    rule = "trial 0 must be leased to whoever renews its lease"
    assert (lost.status, lost.error) == (409, f"{rule}, but it is another worker's, or has no lease.")
    assert ask(service)["trials"][0]["number"] == 1


def test_renew_and_release(service: Running) -> None:
    mine = ask(service, lease=0.05)
    assert service.post(f"{STUDY}/trials/0/renew", {"worker": mine["worker"], "lease": 600}).status == 200
    time.sleep(0.06)
    assert ask(service)["trials"][0]["number"] == 1
    assert service.post(f"{STUDY}/trials/0/release", {"worker": "somebody/else"}).status == 200  # changes nothing
    assert ask(service)["trials"][0]["number"] == 2
    service.post(f"{STUDY}/trials/0/release", {"worker": mine["worker"]})
    assert ask(service)["trials"][0]["number"] == 0


def test_an_enqueued_point_comes_first_and_results_can_be_added(service: Running) -> None:
    added = service.post(f"{STUDY}/trials", {"state": {"demand": 20}, "action": {"stock": 30}, "reward": 1.5})
    assert (added.status, added.json["status"]) == (201, "completed")
    service.post(f"{STUDY}/trials", {"state": {"demand": 60}, "action": {"stock": 70}})
    assert ask(service)["trials"][0]["action"] == {"stock": 70.0}


def test_the_total_is_never_exceeded(service: Running) -> None:
    assert len(ask(service, n=3, evaluations=2)["trials"]) == 2
    assert ask(service, evaluations=2)["trials"] == []
    service.post(f"{STUDY}/trials", {"state": {"demand": 60}, "action": {"stock": 70}})
    assert ask(service, evaluations=2)["trials"] == []
    assert ask(service, n=2, evaluations=3)["trials"][0]["action"] == {"stock": 70.0}
    assert ask(service, evaluations=3)["trials"] == []


def test_create_a_study_with_constrained_outcomes(service: Running) -> None:
    limits = [{"name": "wait", "type": "at_most", "bound": 5}]
    made = service.post("/v1/studies", {**NEW, "name": "limited", "outcome_constraints": limits, "confidence": 0.9})
    assert made.status == 201
    (trial,) = service.post("/v1/studies/limited/ask", {}).json["trials"]
    tell = f"/v1/studies/limited/trials/{trial['number']}/tell"
    refused = service.post(tell, {"reward": 1.0})
    assert refused.status == 422
    assert "the outcome 'wait' must be told with every reward" in refused.error
    assert service.post(tell, {"reward": 1.0, "outcomes": {"wait": 4}}).json["stands"]
    wrong = service.post("/v1/studies", {**NEW, "name": "z", "outcome_constraints": [{"name": "wait"}]})
    assert wrong.error == "`outcome_constraints[0].type` must be there, but is missing."


def test_create_a_study(service: Running) -> None:
    for _ in range(2):
        assert service.post("/v1/studies", {**NEW, "method": "uniform"}).status == 201
    conflict = service.post("/v1/studies", {**NEW, "method": "conbo"})
    assert (conflict.status, conflict.json["error"]["type"]) == (409, "StudyError")
    damaged = service.post("/v1/studies", {"name": "x", "space": {"states": [], "actions": [{"name": "a"}]}})
    assert damaged.status == 422
    study = open_study(service.storage, "spring")
    assert (study.method, study.seed) == ("uniform", 0)
    code = service.post("/v1/studies", {**NEW, "name": "y", "model": {"type": "os.system"}})
    assert (code.status, code.error) == (422, "`model.type` must be one of GaussianProcess, but got 'os.system'.")
    function = service.post("/v1/studies", {**NEW, "name": "z", "space": {**NEW["space"], "feasible": "function m.f"}})
    assert (function.status, function.json["error"]["type"]) == (422, "SettingError")
    assert "a study of the service must not need a function" in function.error


def test_a_study_that_needs_a_function_is_read_only(start: Start, tmp_path: Any) -> None:
    path = str(tmp_path / "functions.db")
    study = Study(SPACE, state_distribution=Density(lambda state: 1.0), storage=path)
    study.tell(study.ask(), 1.0)
    service = start(path)
    assert service.get(f"{STUDY}/trials").json["trials"][0]["reward"] == 1.0
    why = "the study is read-only here, because the study's state distribution is a function"
    assert service.get(STUDY).json["read_only"].startswith(why)
    for path, body in (("ask", {}), ("trials/0/tell", {"reward": 1}), ("policy", {"states": []})):
        answer = service.post(f"{STUDY}/{path}", body)
        assert (answer.status, answer.error.startswith(why)) == (409, True)


class Held(Executor):
    """An executor that begins one kind of work only when it may."""

    def __init__(self, held: object, may_begin: threading.Event) -> None:
        self._held, self._may_begin, self._pool = held, may_begin, ThreadPoolExecutor(1)

    def submit(self, work: Any, /, *arguments: Any, **named: Any) -> Future[Any]:
        def wait_and_work() -> Any:
            if work is self._held and arguments[1] == "default":
                assert self._may_begin.wait(30)
            return work(*arguments, **named)

        return self._pool.submit(wait_and_work)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._pool.shutdown(wait, cancel_futures=cancel_futures)


def test_while_a_suggestion_is_made_everything_else_goes_on(start: Start, tmp_path: Any) -> None:
    may_begin = threading.Event()
    storage = str(tmp_path / "two.db")
    waiting = Study(SPACE, storage=storage).ask()
    Study(SPACE, name="other", storage=storage)
    service = start(storage, new=lambda background=False: Held(model_work.suggest, may_begin))
    with ThreadPoolExecutor(60) as clients:
        asked = [clients.submit(ask, service) for _ in range(60)]
        while service.get("/healthz").status != 200:
            pass
        assert service.get(STUDY).json["running"] == 1
        assert service.post(f"{STUDY}/trials/{waiting.number}/tell", {"reward": 1.0}).json["stands"]
        assert service.post("/v1/studies/other/ask", {}).json["trials"][0]["number"] == 0
        assert not any(future.done() for future in asked)
        may_begin.set()
        numbers = sorted(future.result()["trials"][0]["number"] for future in asked)
    assert numbers == list(range(1, 61))  # each of them once


def test_several_servers_share_a_study_like_workers(service: Running, start: Start) -> None:
    clients = [conbo.Client(one.url) for one in (service, start(service.storage), service)]
    with ThreadPoolExecutor(3) as pool:
        summaries = list(pool.map(lambda client: client.run(reward, 5), clients))
    assert sum(summary.completed for summary in summaries) == 5
    trials = open_study(service.storage).trials
    assert [trial.status for trial in trials] == ["completed"] * 5


def test_a_policy_answers_while_the_next_one_is_fitted(
    start: Start, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("conbo.server.policies.PAUSE_FACTOR", 0.0)
    may_fit, storage = threading.Event(), str(tmp_path / "fitted.db")
    study = Study(SPACE, storage=storage, method="uniform", model=SIMPLE)
    study.add_trials([{"demand": demand, "stock": 60, "reward": demand} for demand in (20, 40, 60)])
    service = start(storage, new=lambda background=False: Held(model_work.fit_policy, may_fit))

    def evaluations() -> int:
        return int(service.post(f"{STUDY}/policy", {"states": [{"demand": 30}]}).json["evaluations"])

    may_fit.set()
    assert evaluations() == 3
    may_fit.clear()
    study.tell(study.ask(), 0.0)
    assert [evaluations() for _ in range(3)] == [3, 3, 3]  # though a fit has begun
    may_fit.set()
    until = time.monotonic() + 60
    while evaluations() < 4:
        assert time.monotonic() < until
        time.sleep(0.01)


def test_the_file_of_a_policy_is_kept_while_it_is_in_use(tmp_path: Path) -> None:
    storage = str(tmp_path / "fitted.db")
    study = Study(SPACE, storage=storage, method="uniform", model=SIMPLE)
    study.add_trials([{"demand": demand, "stock": 60, "reward": demand} for demand in (20, 40, 60)])

    async def fit() -> None:
        fitting = ModelProcesses(1, threads)
        policies = Policies(storage, fitting)
        first = await policies.newest("default", fresh=True)
        path = Path(first.path)
        assert await policies.newest("default", fresh=True) is first
        for _ in range(3):
            study.tell(study.ask(), 0.0)
            await policies.newest("default", fresh=True)
        assert path.exists()
        del first
        assert [str(file) for file in path.parent.iterdir()] == [(await policies.newest("default", fresh=False)).path]
        fitting.close()
        policies.close()

    run_async(fit())


def test_a_report_that_could_not_be_drawn_is_drawn_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conbo.server.live.RETRY_SECONDS", 0.0)
    monkeypatch.setattr("conbo.server.live.PAUSE_FACTOR", 0.0)
    storage, attempts = str(tmp_path / "drawn.db"), []

    def page(storage: str, name: str) -> str:
        attempts.append(name)
        if len(attempts) == 1:
            raise BrokenExecutor("killed")
        return "a report"

    monkeypatch.setattr(model_work, "live_page", page)
    Study(SPACE, storage=storage).add_trial({"demand": 20}, {"stock": 60}, 1.0)

    async def draw() -> list[tuple[str, bool]]:
        service, drawn = Service(storage, threads), []
        live = Live(service)
        for _ in range(3):
            drawing = await live.drawing("default")
            assert drawing.task is not None
            await drawing.task
            drawn.append((drawing.page, drawing.trouble == ""))
        service.close()
        return drawn

    assert run_async(draw()) == [("", False), ("a report", True), ("a report", True)]
    assert len(attempts) == 2


def test_added_choices_are_drawn_without_a_new_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conbo.server.live.PAUSE_FACTOR", 0.0)
    monkeypatch.setattr(model_work, "live_page", lambda storage, name: str(open_study(storage).space))
    storage = str(tmp_path / "choices.db")
    study = Study(Space({"shop": Categorical(["north"])}, SPACE.actions), storage=storage, method="uniform")
    study.add_trial({"shop": "north"}, {"stock": 60}, 1.0)

    async def pages() -> list[tuple[bool, int]]:
        service, found = Service(storage, threads), []
        live = Live(service)
        for add in (False, False, True, False):
            if add:
                study.add_choices("shop", ["south"])
            drawing = await live.drawing("default")
            assert drawing.task is not None
            await drawing.task
            found.append(("south" in drawing.page, drawing.number))
        service.close()
        return found

    assert run_async(pages()) == [(False, 1), (False, 1), (True, 2), (True, 2)]


def test_the_dashboard_notices_that_a_study_was_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_work, "live_page", lambda storage, name: "a report")
    storage = str(tmp_path / "replaced.db")
    Study(SPACE, storage=storage).add_trial({"demand": 20}, {"stock": 60}, 1.0)

    def replace() -> None:
        with closing(sqlite3.connect(storage, isolation_level=None)) as connection:
            for table in ("conbo_trials", "conbo_fits", "conbo_studies"):
                connection.execute(f"DELETE FROM {table}")
        Study(SPACE, storage=storage, seed=5)

    async def look() -> None:
        service = Service(storage, threads)
        live = Live(service)
        drawing = await live.drawing("default")
        assert drawing.task is not None
        await drawing.task
        assert drawing.page == "a report"
        replace()
        with pytest.raises(UnknownError, match="was replaced while it was in use"):
            await live.drawing("default")
        assert (await live.drawing("default")).page == ""
        replace()
        assert [event async for event in await live.events("default", Caller(None, None))] == []
        assert (await live.drawing("default")).page == ""
        service.close()

    run_async(look())


def test_policy_and_plots(start: Start, tmp_path: Any) -> None:
    storage = str(tmp_path / "learned.db")
    study = Study(SPACE, storage=storage, seed=1, model=SIMPLE)
    study.run(reward, 5, progress=False)
    service = start(storage)
    policy, mine = conbo.Client(service.url).policy(), study.policy()
    states = [{"demand": 30}, {"demand": 500}]
    predictions = policy.predict_many(states, extrapolate=True)
    for prediction, wanted in zip(predictions, mine.predict_many(states, extrapolate=True), strict=True):
        assert prediction.action["stock"] == pytest.approx(wanted.action["stock"], rel=1e-6)
        assert (prediction.mean, prediction.std) == pytest.approx((wanted.mean, wanted.std), rel=1e-6)
    with pytest.raises(PointError, match="must hold, but got demand=500"):
        policy.many(states)
    assert policy(states[0]) == predictions[0].action
    asked = [{"demand": demand} for demand in (5, 20, 40, 60, 500)]
    with ThreadPoolExecutor(5) as readers:
        answers = list(readers.map(lambda one: service.post(f"{STUDY}/policy", {"states": [one]}), asked))
    assert [answer.status for answer in answers] == [422, 200, 200, 200, 422]  # each has its own answer
    for answer, state in zip(answers[1:4], asked[1:4], strict=True):
        (row,) = answer.json["predictions"]
        assert row["mean"] == pytest.approx(mine.predict(state).mean, rel=1e-6)
    study.tell(study.ask(), 0.0)
    assert service.post(f"{STUDY}/policy", {"states": states[:1], "fresh": True}).json["evaluations"] == 6
    assert service.get(f"{STUDY}?model=true").json["summary"]["evaluations"] == 6
    assert service.get(f"{STUDY}/plots/state-coverage").json["data"]
    unknown = service.get(f"{STUDY}/plots/coverage")
    assert (unknown.status, unknown.error) == (422, "unknown plot 'coverage': did you mean 'state-coverage'?")


def test_the_description(attacked: Running) -> None:
    described = attacked.get("/openapi.json").json
    assert described["info"]["version"] == conbo.__version__
    assert "post" in described["paths"]["/v1/studies/{name}/ask"]
    assert attacked.get("/docs").status == 404  # it would load scripts from elsewhere


def test_the_status_has_new_choices_at_once(start: Start, tmp_path: Path) -> None:
    space = conbo.Space(states={"k": conbo.Categorical(["a", "b"])}, actions={"x": conbo.Real(0, 1)})
    study = Study(space, storage=tmp_path / "choices.db", seed=1)
    service = start(str(tmp_path / "choices.db"))
    assert service.get(STUDY).json["states"][0]["choices"] == ["a", "b"]
    study.add_choices("k", ["c"])
    assert service.get(STUDY).json["states"][0]["choices"] == ["a", "b", "c"]
