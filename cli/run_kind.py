"""The kinds of runs: GUI tasks, or continuous control by APPO. Commands that differ ask `run_kind` once."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import typer

from distrl.core.errors import ConfigError, MissingDependency, TaskError

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from distrl.appo.learner import AppoLearner
    from distrl.appo.run import AppoRun
    from distrl.configs.schema import Config
    from distrl.core.metrics import Values
    from distrl.core.rundir import RunDir
    from distrl.core.terminal import Console
    from distrl.core.types import Task
    from distrl.evaluator.measure import Measured
    from distrl.evaluator.statistics import Summary
    from distrl.learner.build import TaskSets
    from distrl.learner.learner import Learner

    Opener = Callable[[RunDir], AbstractContextManager[Learner | AppoLearner]]

SHOWN = 4  # measured episodes that trackers show
STARTS_NOTHING = ("phone", "browser", "two_screens", "metaworld", "libero")  # before an episode
FLUSH_S = 1.0  # for a worker's last acks; what comes later stays in the spool


class GuiRun:
    """Screens, chats and tasks: every algorithm but APPO. `distrl.appo.run.AppoRun` has the same methods."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def check_environment(self) -> None:
        """Checks the environment and the agent as far as possible without starting the environment."""
        from distrl.core.importing import choose
        from distrl.core.user_errors import check_options, read_fields
        from distrl.workers.agents import build_agent
        from distrl.workers.envs import ENVS

        config, env = self._config, self._config.env
        environment = choose(ENVS, env.kind, env.import_path)
        if not config.devices.pool:
            check_options(environment, env.options, "env")
        if env.import_path is None and env.kind in STARTS_NOTHING:
            self._try_options()
        agent = build_agent(config.agent)
        lists_elements = not isinstance(environment, type) or hasattr(environment, "elements")
        if getattr(agent, "needs_elements", False) and not lists_elements:
            raise ConfigError(
                f"The agent needs the screen's elements, but env {env.import_path or env.kind!r} lists none.",
                "Choose another agent, or give the environment a method `elements`.",
            )
        if env.import_path is None and env.kind == "android_world":
            from distrl.workers.envs.android_world import AndroidWorldOptions, find_adb

            find_adb(read_fields(AndroidWorldOptions, env.options, "env.options").adb_path)

    def _try_options(self) -> None:
        """Makes an environment whose constructor starts nothing, on a simulated phone if there is a pool."""
        from distrl.configs.devices import SimMembers
        from distrl.core.importing import import_object
        from distrl.workers.envs import build_env
        from distrl.workers.envs.phone import SIMULATED_DEVICE

        pool, phone = self._config.devices.pool, import_object(SIMULATED_DEVICE)
        for part in pool:
            if isinstance(part, SimMembers):
                phone(part.width, part.height).close()  # refuses impossible screens
        options = self._config.env.options
        try:
            build_env(self._config.env, phone() if pool else None).close()
        except TypeError as error:
            raise ConfigError(f"env.options {options}: {error}.", "Correct the value.") from error

    def check_tasks(self) -> list[str]:
        """Checks that the tasks of every phase exist, and that the environment supports and judges them.

        Returns warnings about tasks that are not trained on.
        """
        from distrl.evaluator.suites.playable import check_expert, check_playable, check_truth
        from distrl.learner.task_sampling import demonstration_sampler

        config, tasks, found = self._config, self._config.tasks, self._tasks_by_split()
        for among in found.values():
            check_playable(config, among)
        check_expert(config, found[tasks.train])
        demonstration_sampler(config.learner, found[tasks.train], config.seed)  # refuses wrong weights
        judged = [tasks.train, *([tasks.validation] if config.learner.eval_every else [])]
        warnings = [check_truth(config, split, found[split]) for split in dict.fromkeys(judged)]
        return [warning for warning in warnings if warning is not None]

    def _tasks_by_split(self) -> dict[str, list[Task]]:
        """The tasks of the splits that a run uses; an error says which key names the suite or the split."""
        from distrl.evaluator.suites import load_tasks

        tasks = self._config.tasks
        named: list[tuple[str, str | None]] = [("suite", None)]  # all of it
        named += [("train", tasks.train), ("validation", tasks.validation)]
        named += [("test", split) for split in tasks.test]
        if tasks.drift is not None:
            named.append(("drift.split", tasks.drift.split))
        found: dict[str, list[Task]] = {}
        for key, split in named:
            try:
                loaded = load_tasks(tasks, split)
            except TaskError as error:
                raise TaskError(f"tasks.{key}: {error.message}", error.remedy) from error
            if split is not None:
                found[split] = loaded
        return found

    def learner(self, stop: threading.Event, command: Sequence[str]) -> Opener:
        """Prepares a learner; the result opens it in a run directory. `command` starts its other ranks."""
        from distrl.learner.build import open_learner
        from distrl.learner.ranks import other_ranks

        config, tasks = self._config, task_sets(self._config)

        @contextlib.contextmanager
        def opened(run: RunDir) -> Iterator[Learner]:
            with (
                other_ranks(config.learner, command, run.logs) as (place, watch),
                open_learner(config, run, tasks, stop, place, watch) as learner,
            ):
                yield learner

        return opened

    def work(self, name: str, folder: Path, stop: threading.Event, wait_s: float | None) -> None:
        """Runs a worker, whose spool is in `folder`, until `stop` is set or the run is over.

        It is called `name` on this host, and waits `wait_s` for the learner; None for as long as it takes.
        """
        from distrl.core.prometheus import show
        from distrl.core.security import load_security
        from distrl.core.sockets import Wire
        from distrl.workers.act_client import ActClient
        from distrl.workers.board import SlotBoard
        from distrl.workers.client import LearnerLink, wait_for_learner
        from distrl.workers.env_pool import open_env_pool
        from distrl.workers.judging import MAX_WAITING, JudgingLink, load_judge
        from distrl.workers.spool import Spool
        from distrl.workers.worker import Worker

        config, network, slots = self._config, self._config.network, self._config.worker.slots
        settings = config.judge if config.worker.rewards.source == "judge" else None
        with contextlib.ExitStack() as stack:
            spool = Spool(folder / f"{name}.sqlite3")
            stack.callback(spool.close)
            wire = Wire(load_security(network.keys_path, network.key_name))
            full_name = wire.full_name(name)
            board = SlotBoard(full_name)
            link = LearnerLink(
                wire,
                network.learner.control,
                network.learner.broadcast,
                "worker",
                full_name,
                slots=slots,
                spool=spool,
                max_unjudged=0 if settings is None else MAX_WAITING + slots,
                board=board,
            )

            def policy(slot: int) -> ActClient:
                return ActClient(
                    wire,
                    lambda: link.status.act_endpoints if link.status else (),
                    stop.is_set,
                    f"{full_name}/{slot}",
                    config.worker.act_timeout_s,
                    lambda: link.status.slots if link.status else {},
                )

            judging = None
            if settings is not None:
                judge = load_judge(settings)
                # Closed by the end of the process: a judge may still wait for its endpoint then.
                unjudged = Spool(folder / f"{name}.judge.sqlite3")
                judging = JudgingLink(link, judge, settings, config.worker.rewards, unjudged)
            envs = open_env_pool(config, slots)
            stack.callback(envs.close)
            worker = Worker(config, judging or link, policy, full_name, stop, envs, board=board)
            # Slots that are left behind still use the sockets: then the end of the process closes them.
            stack.callback(lambda: wire.close() if worker.is_clear else None)
            link.start()
            stack.callback(link.close)
            if judging is not None:
                judging.start()
                stack.callback(judging.close)
            show(lambda: link.stats, name)
            if wait_for_learner(link, "network.control", wait_s, stop):
                worker.run()
                link.flush(FLUSH_S)

    def evaluate(
        self,
        who: Measured,
        directory: Path,
        stop: threading.Event,
        split: Sequence[str] | None = None,
        baseline: Path | None = None,
        seeds: Sequence[int] | None = None,
        wait_s: float | None = None,
        resume: bool = False,
    ) -> None:
        """Measures a policy, prints the numbers and writes the report, as `distrl evaluate` describes it."""
        from distrl.evaluator.measure import measure
        from distrl.evaluator.report.run import write_evaluation_report
        from distrl.evaluator.report.text import check_measured, gain_lines, number_lines

        config = self._config
        evaluation = measure(config, who, directory, split, resume, stop, wait_s, seeds=seeds)
        lines = number_lines(evaluation)
        if baseline is not None:
            lines += gain_lines(directory, baseline)
        for line in [*lines, f"Results: {directory}"]:
            typer.echo(line)
        try:
            typer.echo(f"Report: {write_evaluation_report(config, directory, evaluation, baseline)}")
        except MissingDependency as error:
            typer.echo(f"No report: {error}", err=True)
        check_measured(evaluation)

    def write_report(self, run: RunDir, results: Mapping[str, Path]) -> Path:
        """Writes a run's report and returns its page. `results`: evaluations by label, oldest first."""
        from distrl.evaluator.report.run import write_run_report

        return write_run_report(run.path, results)

    def pictures(self, results: Mapping[str, Path]) -> Values:
        """A few episodes of the last of `results`, evaluations by label, as pictures by name."""
        from distrl.core.filmstrip import filmstrip
        from distrl.evaluator.stores import StoredEpisodes

        if not results:
            return {}
        with contextlib.closing(StoredEpisodes(list(results.values())[-1])) as stored:
            last = reversed(list(stored.find(limit=SHOWN)))
            strips = [filmstrip(one.trajectory, one.images()) for one in last]
        return {f"pictures/test-{number}": strip for number, strip in enumerate(strips, 1) if strip}

    def print_results(self, console: Console, results: Mapping[str, Path]) -> None:
        """Prints a row per split. `results`: evaluations by label, oldest first."""
        from rich.table import Table

        from distrl.evaluator.report.compare import compare
        from distrl.evaluator.results import load_evaluation

        blocks = compare({label: load_evaluation(path) for label, path in results.items()})
        has_gain = len(results) > 1
        columns = [*results, "gain"] if has_gain else list(results)
        table = Table("split", *columns, title="Success rate (95% interval)", title_justify="left")
        for overall in (block.overall for block in blocks):
            rates = {arm.label: _rate(arm.summary) for arm in overall.arms if arm.summary.episodes}
            cells = [rates.get(label, "not measured") for label in results]
            if has_gain and overall.gain is not None and overall.gain_interval is not None:
                low, high = 100 * overall.gain_interval.low, 100 * overall.gain_interval.high
                cells.append(f"{100 * overall.gain:+.0f} ({low:+.0f} to {high:+.0f})")
            table.add_row(overall.name, *cells)
        console.print(table)


def task_sets(config: Config) -> TaskSets:
    """The tasks that a learner of `config` needs."""
    from distrl.evaluator.suites import load_tasks, vocabulary
    from distrl.learner.build import TaskSets

    named = config.tasks
    return TaskSets(
        train=load_tasks(named, named.train),
        validation=load_tasks(named, named.validation) if config.learner.eval_every else [],
        words=vocabulary(named, config.policy.kind),
        drift=load_tasks(named, named.drift.split) if named.drift else (),
    )


def _rate(summary: Summary) -> str:
    low, high = 100 * summary.interval.low, 100 * summary.interval.high
    return f"{100 * summary.success_rate:.0f}% ({low:.0f} to {high:.0f}), n = {summary.episodes}"


def run_kind(config: Config) -> GuiRun | AppoRun:
    """The kind of run that `config` describes."""
    if config.learner.algorithm.kind == "appo":
        from distrl.appo.run import AppoRun

        return AppoRun(config)
    return GuiRun(config)


_UNSUPPORTED = {
    "collect": "has no scripted expert",
    "doctor --estimate": "has no estimate, because its policies take some kB only",
    "export": "has policies that transformers cannot load",
    "export --dataset": "stores no trajectories; `distrl report RUN` shows its returns",
    "inspect": "stores no trajectories; `distrl report RUN` shows its returns",
    "simulate": "has no simulation",
    "world": "has no imagined episodes",
    "trace": "stores no episodes; its time line is in `throughput/*` of the metrics",
    "serve-inference": "has no inference servers, because workers act themselves",
}


def require_gui(config: Config, command: str) -> None:
    """Raises ConfigError if `config` is a run of continuous control, which `command` does not support."""
    if config.learner.algorithm.kind == "appo":
        problem = f"Continuous control (learner.algorithm=appo) {_UNSUPPORTED[command]}."
        raise ConfigError(problem, f"Use `distrl {command}` with runs of GUI tasks.")


def require_episodes(place: Path, command: str) -> None:
    """Raises ConfigError if `place` is a run of a kind that stores no episodes."""
    from distrl.configs.load import load_config
    from distrl.core.rundir import RunDir

    run = RunDir(place)
    if run.config.is_file() and not run.store.exists():
        require_gui(load_config(run.config), command)
