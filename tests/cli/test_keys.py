"""`distrl keys`."""

import pytest
from typer.testing import CliRunner

from distrl.cli.main import app

runner = CliRunner()


@pytest.fixture
def keys(tmp_path):
    path = tmp_path / "keys"
    assert runner.invoke(app, ["keys", "create", str(path)]).exit_code == 0
    return path


def roles(keys):
    """Client → what `keys list` says after its public key."""
    lines = runner.invoke(app, ["keys", "list", str(keys)]).output.splitlines()
    return {line.split()[0]: line.split(maxsplit=2)[2] for line in lines}


def test_clients_have_roles_and_slots(keys):
    add = ["keys", "add", str(keys)]
    for command in (
        [*add, "farm"],
        [*add, "gpu", "--role", "inference"],
        [*add, "lab", "--role", "worker", "--role", "evaluate", "--slots", "8"],
    ):
        assert runner.invoke(app, command).exit_code == 0
    assert roles(keys) == {
        "client": "worker,inference,evaluate,observer,owner",
        "farm": "worker",
        "gpu": "inference",
        "lab": "worker,evaluate  8 slots",
    }
    before = (keys / "lab.key").read_text()
    assert runner.invoke(app, ["keys", "set", str(keys), "lab", "--role", "evaluate"]).exit_code == 0
    assert roles(keys)["lab"] == "evaluate"
    assert (keys / "lab.key").read_text() == before
    assert runner.invoke(app, ["keys", "remove", str(keys), "lab"]).exit_code == 0
    assert "lab" not in roles(keys)


def test_an_unknown_role_is_refused(keys):
    result = runner.invoke(app, ["keys", "add", str(keys), "farm", "--role", "king"])
    assert result.exit_code == 2
    assert "'king' is not one of 'worker'" in result.stderr
    assert "farm" not in roles(keys)
    assert not (keys / "farm.key").exists()


@pytest.mark.parametrize(
    "command",
    [
        ["create", "KEYS"],
        ["add", "KEYS", "client"],
        ["add", "KEYS", "a/b"],
        ["remove", "KEYS", "nobody"],
        ["set", "KEYS", "nobody", "--role", "worker"],
    ],
)
def test_mistakes_are_one_line_and_an_exit_code(keys, command):
    result = runner.invoke(app, ["keys", *[str(keys) if word == "KEYS" else word for word in command]])
    assert result.exit_code == 5
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
