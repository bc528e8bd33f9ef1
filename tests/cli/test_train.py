"""`distrl train` up to where it starts processes, and what it shows."""

from __future__ import annotations

import io
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from distrl.cli.backends.roles import allocator, environment, roles
from distrl.cli.health.run import doubtful_rates
from distrl.cli.local import programs
from distrl.cli.local.progress import Progress
from distrl.cli.local.run import LocalRun
from distrl.cli.main import app
from distrl.cli.train import doubtful_points
from distrl.configs.load import load_config
from distrl.configs.schema import Config, NetworkConfig
from distrl.core.errors import CheckpointError, NetworkError
from distrl.core.messages import Status, WeightInfo
from distrl.core.rundir import RunDir
from distrl.core.terminal import Console
from distrl.evaluator.run_state import Ending, describe_complete

runner = CliRunner()


def test_dry_run_prints_the_resolved_config_and_makes_nothing(tmp_path: Path) -> None:
    result = runner.invoke(app, ["train", "quickstart", "--set", f"runs_dir={tmp_path}/runs", "--dry-run"])
    assert result.exit_code == 0
    (tmp_path / "out.yaml").write_text(result.stdout)
    assert load_config(tmp_path / "out.yaml") == load_config("quickstart", [f"runs_dir={tmp_path}/runs"])
    assert not (tmp_path / "runs").exists()


def test_default_addresses_become_free_ports_and_chosen_ones_stay() -> None:
    chosen = NetworkConfig(control="tcp://127.0.0.1:45671")
    network = programs.free_addresses(chosen)
    assert network.control == chosen.control
    ports = {network.broadcast, network.weights}
    assert len(ports) == 2
    assert not ports & {NetworkConfig().broadcast, NetworkConfig().weights}
    again = programs.free_addresses(NetworkConfig())
    programs.check_addresses(again)
    assert len({again.control, again.broadcast, again.weights}) == 3


@pytest.mark.parametrize("name", ["control", "act"])
def test_an_address_in_use_is_found_before_anything_starts(name: str) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        address = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(NetworkError, match=f"{address} is in use"):
            programs.check_addresses(programs.free_addresses(NetworkConfig(**{name: address})))


@pytest.mark.needs("torch", "transformers", "jinja2")
@pytest.mark.parametrize(("latest", "seed"), [(None, 0), ("step_9", 5)])
def test_a_refused_resume_leaves_the_configuration_unless_the_run_went_on(
    tmp_path: Path, monkeypatch, latest: str | None, seed: int
) -> None:
    run = RunDir.create(load_config("quickstart", ["name=here", f"runs_dir={tmp_path}"]))

    def refuse(self: LocalRun) -> bool:
        if latest is not None:
            (run.checkpoints / latest).mkdir()
            (run.checkpoints / "latest").write_text(latest)
        raise CheckpointError("It does not fit.")

    monkeypatch.setattr(LocalRun, "train", refuse)
    result = runner.invoke(app, ["train", str(run.config), "--resume", "--set", "seed=5"])
    assert result.exit_code == 4
    assert load_config(run.config).seed == seed


@pytest.mark.needs("torch", "transformers", "jinja2")
@pytest.mark.filterwarnings("error")
def test_without_workers_here_the_run_is_not_measured_here(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(LocalRun, "train", lambda self: True)
    sets = ("--set=name=far", f"--set=runs_dir={tmp_path}", "--set=local.workers=0")
    result = runner.invoke(app, ["train", "quickstart", *sets])
    assert result.exit_code == 0, result.output
    assert f"distrl serve-inference {tmp_path}/far/config.yaml --checkpoint {tmp_path}/far" in result.stdout
    assert (tmp_path / "far" / "report.html").is_file()


@pytest.mark.parametrize(
    ("addresses", "is_warned_of"),
    [
        ({}, False),
        ({"control": "tcp://10.0.0.1:5700"}, True),
        ({"control": "tcp://0.0.0.0:5700", "act": "tcp://0.0.0.0:*", "advertise": "tcp://gpu:*"}, False),
        ({"control": "tcp://10.0.0.1:5700", "act": "tcp://10.0.0.1:*"}, False),
    ],
)
def test_servers_that_workers_elsewhere_would_not_reach(
    addresses: dict[str, str], is_warned_of: bool
) -> None:
    assert (programs.unreachable_servers(NetworkConfig(**addresses)) is not None) == is_warned_of


def test_the_programs_share_config_and_addresses(tmp_path: Path) -> None:
    config = load_config("quickstart", ["local.workers=3", "local.inference_servers=2"])
    run, network = RunDir(tmp_path), programs.free_addresses(config.network)
    found = roles(config, run.path, programs.assignments(network), 2, 3)
    assert [role.name for role in found] == [
        "learner", "inference-0", "inference-1", "worker-0", "worker-1", "worker-2",
    ]  # fmt: skip
    for role in found:
        assert str(run.config) in role.program({}).command
        assert f"--set=network.control={network.control}" in role.program({}).command


def test_only_a_learner_on_a_cpu_keeps_its_buffers_and_the_users_settings_win() -> None:
    assert allocator({})["MALLOC_MMAP_MAX_"] == "0"
    assert allocator({"MALLOC_ARENA_MAX": "2"}) == {}
    assert environment({})["OMP_NUM_THREADS"] == "1"
    assert "OMP_NUM_THREADS" not in environment({"OMP_NUM_THREADS": "4"})


def status(phase: str, **metrics: float) -> Status:
    weights = WeightInfo(version=4, digest="d", size_bytes=1)
    return Status(run_id="r", phase=phase, weights=weights, metrics=metrics)


def shown(*states: Status | None, terminal: bool, config: Config | None = None) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=160)
    with Progress(config or Config(), console) as progress:
        for state in states:
            progress.show(state, 4, 1)
        progress.note("worker-1 died")
    return out.getvalue()


def test_a_log_gets_a_line_per_phase_and_one_as_soon_as_it_is_counted() -> None:
    episodes = {"train/success": 0.525, "eval/val/success": 0.75, "updates": 12.0}
    episodes |= {"phase/done": 40.0, "phase/total": 2000.0, "workers/actions_per_s": 31.55}
    text = shown(
        None,
        status("demonstrations"),
        status("demonstrations", **{"phase/done": 3.0, "phase/total": 200.0}),
        status("demonstrations", **{"phase/done": 4.0, "phase/total": 200.0}),
        status("training", **episodes),
        terminal=False,
    )
    lines = text.splitlines()
    phases = ["[starting", "[demonstrations", "[demonstrations", "[training"]
    assert [line.partition("]")[0] for line in lines[:-1]] == phases
    assert "demonstrations 3/200" in lines[2]  # at once, though the phase had its line
    assert "episodes 40/2000" in lines[3]
    assert "train success 52% · validation 75% · updates 12 · actions/s 31.6 · version 4" in lines[3]
    assert "processes 4 · restarts 1" in lines[3]
    assert lines[-1] == "worker-1 died"


def test_an_alarm_of_the_learner_is_said_once_and_so_is_its_end() -> None:
    loud = {"mismatch/alarm": 1.0, "mismatch/kl_recent": 0.31, "mismatch/kl_limit": 0.05}
    quiet = {**loud, "mismatch/alarm": 0.0}
    states = [status("training", **one) for one in (quiet, loud, loud, quiet, quiet)]
    lines = [line for line in shown(*states, terminal=False).splitlines() if "mismatch" in line]
    assert len(lines) == 2
    assert "KL 0.31 per token (limit 0.05)" in lines[0]
    assert "has cleared" in lines[1]


def test_devices_that_are_lacking_are_shown() -> None:
    pool = [{"kind": "avd", "avd": "P", "count": 9}, {"kind": "sim", "count": 2}]
    config = Config.model_validate({"devices": {"pool": pool}, "worker": {"slots": 4}})
    states = {"workers/devices_ready": 1.0, "workers/devices_busy": 2.0}
    assert "devices 3/8" in shown(status("training", **states), terminal=False, config=config)


def test_a_model_that_writes_other_points_is_warned_of(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "qwen2_5_vl", "vision_config": {"patch_size": 14}}')
    (tmp_path / "preprocessor_config.json").write_text('{"patch_size": 14, "merge_size": 2}')
    (warning,) = doubtful_points(load_config("qwen-vl", [f"policy.model={tmp_path}"]))
    resize = "{patch_size: 14, merge_size: 2, min_pixels: 3136, max_pixels: 330000}"
    assert f"Set agent.options.coordinates to absolute and agent.options.resize to {resize}" in warning
    assert doubtful_points(load_config("quickstart")) == []


def test_continuous_control_shows_returns() -> None:
    numbers = {
        "phase/done": 500.0,
        "phase/total": 500_000.0,
        "train/return": -3.21,
        "eval/return": 7.0,
        "off_policy/staleness_mean": 1.5,
    }
    text = shown(
        status("training", **numbers, **{"throughput/env_steps_per_s": 1234.5, "updates": 3.0}),
        terminal=False,
        config=load_config("appo-lunarlander"),
    )
    wanted = "steps 500/500000 · return -3.2 · validation 7.0 · staleness 1.5 · steps/s 1234 · updates 3"
    assert wanted in text.splitlines()[0]


@pytest.fixture
def over(tmp_path: Path) -> RunDir:
    """A run that has made its 40 episodes, but no update."""
    sets = ["name=over", f"runs_dir={tmp_path}/runs", "learner.episodes=40", "tasks.test=[test]"]
    run = RunDir.create(load_config("quickstart", sets))
    (run.checkpoints / "step_0").mkdir()
    (run.checkpoints / "latest").write_text("step_0\n")
    (run.checkpoints / "final").write_text('step_0\n{"episodes":40,"online_s":30.0}\n')
    (run.evaluations / "step_0").mkdir(parents=True)
    (run.evaluations / "step_0" / "results.json").write_text("{}")
    return run


def learnt(run: RunDir) -> None:
    """Lets the run have made three updates, all evaluated."""
    (run.checkpoints / "step_3").mkdir()
    (run.checkpoints / "latest").write_text("step_3\n")
    (run.checkpoints / "final").write_text('step_3\n{"episodes":40,"online_s":30.0}\n')
    (run.evaluations / "step_3").mkdir()
    (run.evaluations / "step_3" / "results.json").write_text("{}")


@pytest.mark.parametrize("command", ["train", "run-learner"])
def test_a_complete_run_names_its_report_and_the_key_that_continues_it(over: RunDir, command: str) -> None:
    learnt(over)
    over.report.touch()
    moved = over.path.rename(over.path.with_name("moved"))
    limited = ["--set=learner.episodes=999", "--set=learner.max_minutes=0.5"]
    for more, key in (([], "learner.episodes"), (limited, "learner.max_minutes")):
        result = runner.invoke(app, [command, str(moved), "--resume", *more])
        assert result.exit_code == 0, result.output
        assert f"{moved} is complete. To continue it, raise {key}." in result.output
        assert f"Report: {moved}/report.html" in result.output


@pytest.mark.parametrize(
    ("ending", "key"),
    [
        (Ending(5, 5, 1.0), "learner.algorithm.max_env_steps"),
        (Ending(4, 5, 1.0, is_solved=True), "learner.algorithm.stop_at_return"),
    ],
)
def test_continuous_control_is_continued_by_its_own_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: Ending, key: str
) -> None:
    monkeypatch.setattr("distrl.evaluator.run_state.read_ending", lambda run, config: ending)
    assert f"raise {key}." in describe_complete(RunDir(tmp_path), load_config("appo-lunarlander"))


@pytest.mark.needs("torch", "transformers", "jinja2")
def test_a_complete_run_continues_if_more_is_asked_for(over: RunDir, monkeypatch) -> None:
    learnt(over)
    monkeypatch.setattr(LocalRun, "train_and_measure", lambda self: None)
    result = runner.invoke(app, ["train", str(over.path), "--resume", "--set", "learner.episodes=50"])
    assert result.exit_code == 130, result.output
    assert "Stopped" in result.stdout
    assert (over.path.parent / "latest").resolve() == over.path.resolve()


def test_a_run_without_an_update_has_an_exit_code_of_its_own(over: RunDir) -> None:
    result = runner.invoke(app, ["train", str(over.path), "--resume"])
    assert result.exit_code == 17
    assert "The policy was not updated" in result.stderr
    assert "after 40 training episodes, and the first update needs 128" in result.stderr
    limited = ["--set", "learner.episodes=999", "--set", "learner.max_minutes=0.5"]
    result = runner.invoke(app, ["train", str(over.path), "--resume", *limited])
    assert result.exit_code == 17
    assert "learner.max_minutes=0.5 ended the run after 40 training episodes" in result.stderr


def over_time(
    phase: str,
    rows: list[tuple[float, dict[str, float]]],
    terminal: bool = False,
    preset: str = "quickstart",
    settings: tuple[str, ...] = (),
) -> str:
    """What is shown for metrics that arrive at these seconds."""
    out, now = io.StringIO(), [0.0]
    console = Console(file=out, force_terminal=terminal, width=160)
    with Progress(load_config(preset, settings), console, lambda: now[0]) as progress:
        for second, metrics in rows:
            now[0] = second
            progress.show(status(phase, **metrics), 4, 0)
    return out.getvalue()


def counts(rate: float, seconds: float, total: float = 1000.0) -> list[tuple[float, dict[str, float]]]:
    return [
        (float(second), {"phase/done": rate * second, "phase/total": total})
        for second in range(int(seconds) + 1)
    ]


SLOW = counts(1.0, 200.0)
FAST = [(200.0 + i, {"phase/done": 200.0 + 4 * i, "phase/total": 1000.0}) for i in range(1, 101)]
MINUTES_EACH = [(200.0 * i, {"phase/done": float(i), "phase/total": 20.0}) for i in range(12)]
ONLINE = [(second, {**row, "time/online_s": second}) for second, row in counts(2.0, 90.0, 1120.0)]
UPDATES = [(float(i), {"phase/done": 100.0, "phase/total": 100.0, "updates": i / 2}) for i in range(31)]
STEPS = [
    (float(i), {"phase/total": 500_000.0, "phase/done": 1000.0 * i, "time/online_s": float(i)})
    for i in range(101)
]
PAID = ("learner.episodes=100", "learner.updates_per_episode=0.5")


@pytest.mark.parametrize(
    ("phase", "rows", "preset", "settings", "text"),
    [
        ("validation", counts(2.0, 90.0), "quickstart", (), "validation 180/1000 · 6:50 left"),
        ("training", SLOW + FAST, "quickstart", (), "episodes 600/1000 · 1:40 left"),
        ("training", MINUTES_EACH, "quickstart", (), "30:00 left"),
        ("training", ONLINE, "quickstart", ("learner.max_minutes=2",), "0:30 left"),
        ("warm-up", ONLINE, "quickstart", ("learner.max_minutes=2",), "cloning 180/1120 · 7:50 left"),
        ("training", UPDATES, "quickstart", PAID, "episodes 100/100 · 1:10 left"),  # updates take time too
        ("training", STEPS, "appo-lunarlander", ("learner.max_minutes=3",), "1:30 left"),
    ],
)
def test_the_time_left_is_that_of_the_recent_rate_and_of_what_else_limits_the_run(
    phase: str, rows: list[tuple[float, dict[str, float]]], preset: str, settings: tuple[str, ...], text: str
) -> None:
    assert text in over_time(phase, rows, False, preset, settings).splitlines()[-1]
    assert "left" in over_time(phase, rows, True, preset, settings)


def test_an_unknown_rate_shows_no_time_left() -> None:
    assert "left" not in over_time("training", [(float(i), counts(0.0, 0.0)[0][1]) for i in range(60)])
    assert "left" not in over_time("training", counts(2.0, 3.0), terminal=True)


def test_evaluations_show_their_tasks_and_the_time_left() -> None:
    out, now = io.StringIO(), [0.0]
    progress = Progress(Config(), Console(file=out, width=160), lambda: now[0])
    for second in range(32):
        now[0] = float(second)
        progress.show_evaluations({"step_0": (second, 60), "step_9": (second // 2, 60)} if second else {}, 2)
    lines = out.getvalue().splitlines()
    assert lines[0] == "[evaluating] 0:00"
    assert lines[-1] == "[evaluating] 0:31 · tasks 46/120 · 0:49 left · step_0 31/60 · step_9 15/60"


def test_adapters_that_would_stay_what_they_are_cause_a_warning() -> None:
    few = ["learner.episodes=1024", "learner.optim.lr=1e-6"]
    (warning,) = doubtful_rates(load_config("qwen-vl", few))
    assert "in the 16 updates of this run by 2e-05 at most" in warning
    assert doubtful_rates(load_config("qwen-vl", [*few, "policy.lora=null"])) == []
    for preset in ("qwen-vl", "phones", "androidworld", "autoui", "quickstart"):
        assert doubtful_rates(load_config(preset)) == []
