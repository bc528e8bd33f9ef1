"""Run directories: made once, never overwritten, owned by one process at a time."""

from __future__ import annotations

import errno
import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from distrl.configs.load import load_config
from distrl.configs.schema import Config
from distrl.core.errors import RunDirectoryError
from distrl.core.rundir import RunDir


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(name="one", runs_dir=str(tmp_path / "deep" / "runs"))


def test_create_writes_the_resolved_config(config: Config, tmp_path: Path) -> None:
    run = RunDir.create(config)
    assert run.path == tmp_path / "deep" / "runs" / "one"
    assert load_config(run.config) == config
    assert RunDir.open(run.path).store == run.path / "store.sqlite3"


def test_an_existing_directory_is_refused_and_left_alone(config: Config) -> None:
    run = RunDir.create(config)
    before = run.config.read_bytes()
    with pytest.raises(RunDirectoryError, match=r"exists already\. .*--resume") as caught:
        RunDir.create(config.model_copy(update={"seed": 5}))
    assert caught.value.exit_code == 3
    assert run.config.read_bytes() == before


def test_resume_needs_an_existing_run(config: Config) -> None:
    with pytest.raises(RunDirectoryError, match="is not a run"):
        RunDir.create_or_open(config, resume=True)
    created = RunDir.create_or_open(config, resume=False)
    assert RunDir.create_or_open(config, resume=True).path == created.path


def test_a_place_that_cannot_be_made_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(RunDirectoryError, match="cannot be made"):
        RunDir.create(Config(runs_dir=str(tmp_path / "file" / "runs")))
    with pytest.raises(RunDirectoryError, match="cannot be made"):
        RunDir.create(Config(runs_dir=str(tmp_path / "file")))


def test_a_directory_that_is_half_made_is_taken_away(config: Config) -> None:
    class Unwritable:
        name, runs_dir = config.name, config.runs_dir

        def to_yaml(self) -> str:
            raise OSError(28, "No space left on device")

    with pytest.raises(RunDirectoryError, match="cannot be made: No space left"):
        RunDir.create(Unwritable())
    assert RunDir.create(config).config.is_file()


def test_a_new_config_keeps_the_old_one(config: Config) -> None:
    run = RunDir.create(config)
    run.write_config(config)
    assert sorted(path.name for path in run.path.glob("config*")) == ["config.yaml"]
    longer = config.model_copy(update={"seed": 7})
    run.write_config(longer)
    assert load_config(run.config) == longer
    assert load_config(run.path / "config.1.yaml") == config


def test_a_file_system_without_locks_is_one_clear_error(config: Config, monkeypatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    run = RunDir.create(config)
    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(RunDirectoryError, match=r"learner\.lock cannot be locked: No locks available\."):
        run.lock()


def test_an_id_that_a_power_cut_emptied_is_made_anew(config: Config) -> None:
    run = RunDir.create(config)
    assert run.run_id() == run.run_id()
    (run.path / ".run_id").write_text("")
    assert run.run_id().startswith("one-")
    assert run.run_id() == run.run_id()
    (run.path / ".lease_secret").write_bytes(b"\xff" * 32)
    assert len(run.lease_secret()) == 32
    assert run.lease_secret() == run.lease_secret()


def test_only_one_process_holds_a_role(config: Config) -> None:
    run = RunDir.create(config)
    with run.lock("learner"):
        with pytest.raises(RunDirectoryError, match="Another learner"):
            run.lock("learner")
        run.lock("train").release()
    run.lock("learner").release()


def test_the_lock_ends_with_its_process(config: Config) -> None:
    run = RunDir.create(config)
    script = (
        "import sys; from distrl.core.rundir import RunDir; "
        "lock = RunDir.open(sys.argv[1]).lock(); print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(run.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(RunDirectoryError, match=f"process {holder.pid}"):
            run.lock()
        holder.kill()
        holder.wait(timeout=30)
    run.lock().release()
