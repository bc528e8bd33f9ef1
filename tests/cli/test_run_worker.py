"""`distrl run-worker`: its options, and its failures as one line."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from distrl.cli.main import app
from distrl.cli.run_worker import claim_name, host_name, work
from distrl.configs.schema import Config
from distrl.core.errors import ConfigError, RunDirectoryError, StoreError
from distrl.workers.spool import Spool


def test_devices_are_a_short_form_of_a_pool_behind_adb(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("devices: {pool: [{kind: sim}]}\n")
    command = [
        "run-worker",
        str(tmp_path / "c.yaml"),
        "--devices",
        "emulator-5554, emulator-56*",
        "--dry-run",
    ]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0
    (part,) = yaml.safe_load(result.output)["devices"]["pool"]
    assert (part["kind"], part["serials"]) == ("adb", ["emulator-5554", "emulator-56*"])


def test_devices_that_are_none_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("name: x\n")
    result = CliRunner().invoke(app, ["run-worker", str(tmp_path / "c.yaml"), "--devices", "a b"])
    assert result.exit_code == ConfigError.exit_code
    assert "`devices.pool.0.serials.0` is 'a b'" in result.stderr


@pytest.mark.parametrize("name", ["", "../up", "a b", ".hidden"])
def test_a_name_that_is_no_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="is not a valid name"):
        work(Config(), name, tmp_path, threading.Event())


def test_unnamed_workers_on_one_host_get_names_of_their_own_and_get_them_again(tmp_path: Path) -> None:
    first, claim = claim_name(tmp_path)
    second, other = claim_name(tmp_path)
    assert (first[-2:], second[-2:]) == ("-0", "-1")
    claim.release()
    again, claim = claim_name(tmp_path)
    assert again == first
    claim.release()
    other.release()


def test_a_folder_that_cannot_be_locked_is_reported(tmp_path: Path) -> None:
    (tmp_path / f".{host_name()}-0.lock").mkdir()
    with pytest.raises(RunDirectoryError, match="cannot be locked"):
        claim_name(tmp_path)


def test_two_workers_of_one_name_are_refused(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "w.sqlite3")
    with pytest.raises(StoreError, match="in use by another process"):
        work(Config(), "w", tmp_path, threading.Event())
    spool.close()
