"""The kinds of runs: GUI tasks, or continuous control by APPO. Commands that differ ask `run_kind` once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from distrl.appo.learner import AppoLearner
    from distrl.appo.run import AppoRun
    from distrl.configs.schema import Config
    from distrl.core.rundir import RunDir
    from distrl.core.terminal import Console
    from distrl.evaluator.measure import Measured
    from distrl.learner.learner import Learner

    Opener = Callable[[RunDir], AbstractContextManager[Learner | AppoLearner]]


class GuiRun:
    """Screens, chats and tasks: every algorithm but APPO. `distrl.appo.run.AppoRun` has the same methods.

    Attributes:
        packages: That `distrl train` needs, and the extras that install them.
        needs: Names of `distrl.cli.health.machine.Need`, on every machine of the run.
        tasks: What `check_tasks` checks, in words.
    """

    packages: Mapping[str, str] = {"torch": "train", "transformers": "train", "jinja2": "report"}
    needs: Sequence[str] = ()

    def __init__(self, config: Config) -> None:
        self._config = config
        self.tasks = f"{config.tasks.suite} has its splits."

    def require(self, command: str) -> None:
        """Raises ConfigError if `command` does not work with this kind of run; here all do."""

    def check_kinds(self) -> None:
        """Raises ConfigError if an environment or agent chosen by name does not exist."""
        from distrl.core.importing import check_kind
        from distrl.workers.agents import AGENTS
        from distrl.workers.envs import ENVS

        config = self._config
        for key, section, registry in (
            ("env", config.env, ENVS),
            ("agent", config.agent, AGENTS),
        ):
            if section.import_path is None:
                check_kind(registry, section.kind, f"{key}.kind")

    def check_environment(self) -> None:
        """Checks environment and agent as far as possible without starting them, see there."""
        from distrl.cli.health.run import check_environment

        check_environment(self._config)

    def check_tasks(self) -> list[str]:
        """Checks the tasks of every phase of the run, or raises DistrlError. Returns warnings."""
        from distrl.cli.train import check_tasks

        return check_tasks(self._config)

    def learner(self, stop: threading.Event, command: Sequence[str]) -> Opener:
        """Prepares a learner; the result opens it in a run directory. Arguments as for `gui_learner`."""
        from distrl.cli.run_learner import gui_learner

        return gui_learner(self._config, stop, command)

    def work(self, name: str, folder: Path, stop: threading.Event, wait_s: float | None) -> None:
        """Runs a worker. Arguments as for `distrl.cli.run_worker.work`; `name` is its own."""
        from distrl.cli.run_worker import collect_here

        collect_here(self._config, name, folder, stop, wait_s)

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
        from distrl.cli.evaluate import evaluate_tasks

        evaluate_tasks(self._config, who, directory, stop, split, baseline, seeds, wait_s, resume)

    def write_report(self, run: RunDir, results: Mapping[str, Path]) -> Path:
        """Writes a run's report and returns its page. `results`: evaluations by label, oldest first."""
        from distrl.evaluator.report import write_run_report

        return write_run_report(run.path, results)

    def print_results(self, console: Console, results: Mapping[str, Path]) -> None:
        """Prints a table of these evaluations."""
        from distrl.cli.local.run import print_summary

        print_summary(console, results)


def run_kind(config: Config) -> GuiRun | AppoRun:
    """The kind of run that `config` describes."""
    if config.learner.algorithm.kind == "appo":
        from distrl.appo.run import AppoRun

        return AppoRun(config)
    return GuiRun(config)
