"""`conbo serve` and `conbo token`."""

import json
import socket
import subprocess
import sys
from pathlib import Path

QUICK = """
import sys
from conbo.cli import main
try:
    main(sys.argv[1:])
finally:
    assert not {"torch", "numba", "scipy", "fastapi", "uvicorn"} & {*sys.modules}
"""


def python(program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)


def conbo(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return python(QUICK, *arguments)


def serve(storage: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    return python("from conbo.cli import main; main()", "serve", "--storage", str(storage), *options)


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
    done = serve(tmp_path / "s.db", "--host", "0.0.0.0")
    assert done.returncode == 1
    assert "Error: a service without a token file must be on a loopback address" in done.stderr
    assert not (tmp_path / "s.db").exists()


def test_an_address_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = serve(tmp_path / "s.db", "--port", str(taken.getsockname()[1]))
    assert done.returncode == 1
    assert "Error: `host` and `port` must be where the service can listen, but got host='127.0.0.1'" in done.stderr
    assert "in use" in done.stderr
