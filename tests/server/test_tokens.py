"""The file of tokens: hashes alone, readable by its owner alone, and damage is an error."""

import json
import os
import stat
from pathlib import Path

import pytest

from conbo.errors import RecordError, SettingError
from conbo.server.tokens import TokenFile


def test_the_file_keeps_hashes_alone(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "tokens.json"
    secret = TokenFile(path).add("run", label="robot")
    text = path.read_text()
    assert secret not in text
    assert secret.split("_", 2)[2] not in text
    (kept,) = json.loads(text)["tokens"]
    assert (kept["right"], kept["label"], kept["id"]) == ("run", "robot", secret.split("_")[1])
    if os.name == "posix":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_reader_notices_changes(tmp_path: Path) -> None:
    reader, writer = TokenFile(tmp_path / "t.json"), TokenFile(tmp_path / "t.json")
    assert reader.find("x") is None
    secrets = [writer.add("read") for _ in range(3)]
    found = [reader.find(secret) for secret in secrets]
    assert len({token.id for token in found if token is not None}) == 3
    writer.revoke(secrets[1].split("_")[1])
    assert [reader.find(secret) is not None for secret in secrets] == [True, False, True]
    with pytest.raises(SettingError, match="unknown token 'abc': known are "):
        writer.revoke("abc")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a record must be JSON"),
        ("[]", "a record must be an object with names"),
        ('{"tokens": [{}]}', "`tokens.id` must be there, but is missing"),
        (
            '{"tokens": [{"id": "a", "right": "root", "sha256": "00", "created": 0, "expires": 9, "label": ""}]}',
            "`sha256` must have 64 hexadecimal digits",
        ),
        (
            '{"tokens": [{"id": "a", "right": "root", "sha256": "%s", "created": 0, "expires": 9, "label": ""}]}'
            % ("0" * 64),
            "`tokens.right` must be one of read, run, admin, but got 'root'",
        ),
    ],
)
def test_damage(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "tokens.json"
    path.write_text(text)
    with pytest.raises(RecordError, match=message):
        TokenFile(path).tokens()


def test_settings(tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path / "tokens.json")
    with pytest.raises(SettingError, match="`right` must be 'read', 'run' or 'admin', but got 'root'"):
        tokens.add("root")  # type: ignore[arg-type]
    for days in (0, 36_501, 1e300, float("nan")):
        with pytest.raises(SettingError, match="`0 < days <= 36500` must hold, but got days="):
            tokens.add("read", days=days)
    with pytest.raises(SettingError, match="`label` must be printable"):
        tokens.add("read", label="a\nb")
