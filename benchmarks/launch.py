"""How long `distrl launch` takes until the policy acts for the first time, from the command's start.

The quickstart without demonstrations, so that the first action is the policy's: learner, inference server and
workers have started, weights have arrived and the first step has been taken. With `--on slurm` and no sbatch
on the PATH, a cluster of two nodes is started on this machine (tests/fakes/slurm_cluster.py).

    python benchmarks/launch.py                # local, slurm if it is there
    python benchmarks/launch.py --on slurm --repeat 5
    python benchmarks/launch.py --on ray       # three nodes on this machine (tests/fakes/ray_nodes.py)
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from distrl.core.store import TrajectoryStore
from distrl.core.types import Trajectory

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests" / "fakes"))
from ray_nodes import ray_nodes
from slurm_cluster import find, slurm_cluster

TARGET_S = 30.0
DEADLINE_S = 300.0


@contextlib.contextmanager
def launched(folder: Path, on: str, environment: Mapping[str, str], options: Sequence[str]) -> Iterator[Path]:
    """The directory of a run that is launched from `folder` and stopped afterwards."""
    settings = ["learner.demonstrations.episodes=0", "name=timed", f"runs_dir={folder}", *options]
    settings.append(f"placement.folder={folder}")  # of ray: the same directory
    launch, run = [sys.executable, "-m", "distrl", "launch"], folder / "timed"
    command = [*launch, "quickstart", "--on", on, *(f"--set={setting}" for setting in settings)]
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, cwd=folder)
    try:
        yield run
    finally:
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        for verb in (["stop"], ["status", "--wait"]):
            subprocess.run([*launch, *verb, str(run)], env=environment, check=False, **quiet)


def first_action(folder: Path, on: str, environment: Mapping[str, str], options: Sequence[str]) -> float:
    """Seconds until the first step of the first episode is taken; the run is stopped then."""
    begin = time.time()
    with launched(folder, on, environment, options) as run:
        while not (taken := trajectories(run)):
            if time.time() > begin + DEADLINE_S:
                raise SystemExit(f"no episode within {DEADLINE_S:g} s: see {run / 'logs'}")
            time.sleep(0.2)
    return min(one.started_at + one.duration_s / max(1, len(one.steps)) for one in taken) - begin


def trajectories(run: Path) -> list[Trajectory]:
    """The trajectories that the learner has stored so far."""
    store = run / "store.sqlite3"
    return list(TrajectoryStore(store).iterate()) if store.exists() else []


def main() -> None:
    """Prints the median time of each backend."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--on", choices=("local", "slurm", "ray"), action="append")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--set", dest="options", action="append", default=[], metavar="KEY=VALUE")
    args = parser.parse_args()
    has_slurm = find() is not None
    for on in args.on or ["local", *(["slurm"] if has_slurm else [])]:
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            environment: Mapping[str, str] = os.environ
            if on == "slurm" and shutil.which("sbatch") is None:
                (folder / "slurm").mkdir()
                environment = stack.enter_context(slurm_cluster(folder / "slurm")).environment
            if on == "ray":
                stack.enter_context(ray_nodes(folder))
                environment = dict(os.environ)
            took = []
            for number in range(args.repeat):
                (folder / str(number)).mkdir()
                took.append(first_action(folder / str(number), on, environment, args.options))
            median_s = statistics.median(took)
            verdict = "ok" if median_s <= TARGET_S else "MISSED"
            shown = ", ".join(f"{seconds:.1f}" for seconds in took)
            print(f"{on}: first action after {median_s:.1f} s ({shown}); target {TARGET_S:g} s: {verdict}")


if __name__ == "__main__":
    main()
