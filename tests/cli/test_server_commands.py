"""`conbo serve` and `conbo token`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import conbo as library
from conbo.study import Study, open_study

SPACE = library.Space(states={"demand": library.Real(10, 100)}, actions={"stock": library.Real(0, 150)})

QUICK = """
import sys
from conbo.cli import main
try:
    main(sys.argv[1:])
finally:
    assert not {"torch", "numba", "scipy", "fastapi", "uvicorn"} & {*sys.modules}
"""


def conbo(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", QUICK, *arguments], capture_output=True, text=True, check=False)


def test_tokens_are_printed_once_listed_and_revoked(tmp_path: Path) -> None:
    file = str(tmp_path / "tokens.json")
    made = conbo("token", "--right", "run", "--file", file, "--label", "robot", "--days", "2")
    assert made.returncode == 0, made.stderr
    secret = made.stdout.strip()
    assert secret.startswith("conbo_")
    assert secret not in Path(file).read_text()
    assert len(json.loads(Path(file).read_text())["tokens"]) == 1
    token_id = secret.split("_")[1]
    listed = conbo("token", "--file", file).stdout
    assert listed.startswith(f"{token_id}  run    until 20")
    assert listed.rstrip().endswith("robot")
    assert conbo("token", "--file", file, "--revoke", token_id).returncode == 0
    assert conbo("token", "--file", file).stdout == "There are no tokens.\n"


def test_without_tokens_it_stays_on_this_machine(tmp_path: Path) -> None:
    words = ["serve", "--storage", str(tmp_path / "s.db"), "--host", "0.0.0.0"]
    done = subprocess.run(
        [sys.executable, "-c", "from conbo.cli import main; main()", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "Error: a service without a token file must be on a loopback address" in done.stderr
    assert not (tmp_path / "s.db").exists()


@pytest.mark.slow
def test_a_service_with_processes_of_its_own(tmp_path: Path) -> None:
    storage = str(tmp_path / "s.db")
    Study(SPACE, storage=storage)
    words = ["serve", "--storage", storage, "--port", "0"]
    program = [sys.executable, "-c", "from conbo.cli import main; main()", *words]
    with subprocess.Popen(program, stderr=subprocess.PIPE, text=True) as service:
        try:
            assert service.stderr is not None
            assert service.stderr.readline().startswith("Without --token-file, only this machine can reach the service")
            address = service.stderr.readline().split()[1].rstrip(";")
            client = library.Client(address)
            trial = client.ask()
            client.tell(trial, 1.0)
        finally:
            service.terminate()
    assert [trial.reward for trial in open_study(storage).trials] == [1.0]
