"""The hook of the commands: what train, run-learner, run-worker, evaluate … do with learner.algorithm=appo.

`distrl.cli.run_kind.GuiRun` describes the methods. torch is imported where it is needed only.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from distrl.appo.envs import space_of
from distrl.configs.schema import Config
from distrl.core.errors import ConfigError, MissingDependency
from distrl.core.metrics import Values
from distrl.core.rundir import RunDir
from distrl.core.terminal import Console
from distrl.evaluator.measure import Measured

if TYPE_CHECKING:
    from distrl.appo.learner import AppoLearner
    from distrl.appo.measure import Returns


class AppoRun:
    """Continuous control: workers train, and runs are measured by returns."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def check_environment(self) -> None:
        """Makes the environment once."""
        space_of(self._config.env.options)

    def check_tasks(self) -> list[str]:
        """Makes the environment once: it is the only task."""
        self.check_environment()
        return []

    def learner(
        self, stop: threading.Event, command: Sequence[str]
    ) -> Callable[[RunDir], AbstractContextManager[AppoLearner]]:
        """Prepares a master; makes the environment once to get its sizes."""
        from distrl.appo.learner import open_learner

        sizes = space_of(self._config.env.options).sizes
        return lambda run: open_learner(self._config, run, sizes, stop)

    def work(self, name: str, folder: Path, stop: threading.Event, wait_s: float | None) -> None:
        """Runs a worker that trains until `stop` is set or the run is over. `folder` stays unused."""
        from distrl.appo.worker import AppoWorker, MasterClient
        from distrl.core.policies import use_threads
        from distrl.core.prometheus import show
        from distrl.core.security import load_security
        from distrl.core.sockets import Wire
        from distrl.workers.client import LearnerLink, wait_for_learner

        config, network = self._config, self._config.network
        use_threads(config.learner.threads)
        with contextlib.ExitStack() as stack:
            wire = stack.enter_context(Wire(load_security(network.keys_path, network.key_name)))
            name = wire.full_name(name)
            slots = config.worker.slots
            learner = network.learner
            link = LearnerLink(wire, learner.control, learner.broadcast, "worker", name, slots=slots)

            def is_stopping() -> bool:
                return stop.is_set() or link.shutdown.is_set()

            client = MasterClient(wire, learner.control, learner.weights, name, is_stopping)
            stack.callback(client.close)
            worker = AppoWorker(config, name, client, is_stopping, link.set_stats)
            link.start()
            stack.callback(link.close)
            show(lambda: link.stats, name)
            if wait_for_learner(link, "network.control", wait_s, stop):
                worker.run()

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
        """Measures a checkpoint or random actions, prints the mean return, and writes the report."""
        from distrl.appo.measure import measure
        from distrl.appo.report import write_report

        if split or baseline or seeds:
            raise ConfigError("Continuous control has no splits, seeds or baseline.", "Leave them out.")
        console, subject = Console(), who.subject()
        result = measure(self._config, subject, directory, resume, stop, Console(stderr=True).print)
        console.print(f"mean return {_described(result)}, n = {len(result.returns)}")
        console.print(f"Results: {directory}", soft_wrap=True)
        try:
            page = write_report(directory, self._config.name, {subject.label: directory}, None, self._config)
        except MissingDependency as error:
            Console(stderr=True).print(f"No report: {error}", soft_wrap=True)
        else:
            console.print(f"Report: {page}", soft_wrap=True)

    def write_report(self, run: RunDir, results: Mapping[str, Path]) -> Path:
        """See `distrl.appo.report.write_report`."""
        from distrl.appo.report import write_report
        from distrl.evaluator.report.metrics import RunMetrics

        metrics = RunMetrics.read(run.metrics)
        return write_report(run.path, self._config.name, results, metrics, self._config)

    def pictures(self, results: Mapping[str, Path]) -> Values:
        """None: nothing here has pictures."""
        return {}

    def print_results(self, console: Console, results: Mapping[str, Path]) -> None:
        """Prints one row per evaluation."""
        from distrl.appo.measure import load_returns

        table = Table("", "mean return (95% interval)", "episodes")
        for label, path in results.items():
            result = load_returns(path)
            table.add_row(label, _described(result), str(len(result.returns)))
        console.print(table)


def _described(result: Returns) -> str:
    """Mean and interval."""
    interval = f" ({result.interval.low:.1f} to {result.interval.high:.1f})" if result.interval else ""
    return f"{result.mean:.1f}{interval}"
