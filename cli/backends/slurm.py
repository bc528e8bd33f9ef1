"""`--on slurm`: a job for each kind of role, servers and workers as arrays, in a folder that all nodes share.

Each job runs a keeper, which restarts its process on the node. Slurm queues a job again when its node fails.
Before its time is up, a job gets SIGTERM: its process stops, the learner after a checkpoint, and it queues
itself again.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from distrl.cli.backends.backend import (
    Backend,
    LaunchError,
    ProcessState,
    call,
    read_ending,
    read_notes,
    read_roles,
    read_state,
    write_notes,
)
from distrl.cli.backends.keeper import command
from distrl.cli.backends.roles import Role

WARN_S = {"learner": 600, "inference": 60, "worker": 60}
"""Seconds from SIGTERM to the end of a job's time."""

SCRIPT = """#!/bin/bash
{options}
{keeper} &
keeper=$!
trap 'kill -TERM $keeper' TERM
wait $keeper; code=$?
while kill -0 $keeper 2>/dev/null; do wait $keeper; code=$?; done
# Its time is up, or the node is wanted for other jobs. Is there more to do?
if [ $code = 130 ] && [ ! -e {over} ]; then scontrol requeue $SLURM_JOB_ID; fi
exit $code
"""


class SlurmBackend(Backend):
    """Jobs, submitted by sbatch."""

    def submit(self, roles: Sequence[Role], dry_run: bool) -> list[str]:
        by_kind = {kind: [role for role in roles if role.kind == kind] for kind in WARN_S}
        scripts = {kind: self._script(kind, among) for kind, among in by_kind.items() if among}
        if dry_run:
            return [f"# {self._file(kind)}\n{text}" for kind, text in scripts.items()]
        jobs: dict[str, str] = {}
        try:
            for kind, text in scripts.items():
                self._file(kind).write_text(text, encoding="utf-8")
                jobs[kind] = call(["sbatch", "--parsable", str(self._file(kind))]).strip().partition(";")[0]
        except LaunchError:
            if jobs:
                call(["scancel", *jobs.values()])
            raise
        write_notes(self.run, jobs=jobs)
        return [f"Submitted job {job}: {len(by_kind[kind])} x {kind}." for kind, job in jobs.items()]

    def status(self) -> list[ProcessState]:
        kinds = {job: kind for kind, job in read_notes(self.run).get("jobs", {}).items()}
        queue: dict[str, tuple[str, str, str]] = {}
        for line in call(["squeue", "--me", "-h", "-r", "-o", "%F|%K|%T|%N|%r"]).splitlines():
            job, index, state, node, reason = line.split("|", 4)
            if job in kinds:
                name = kinds[job] if kinds[job] == "learner" else f"{kinds[job]}-{index}"
                queue[name] = state, node, reason
        return [
            self._state(role.name, *queue.get(role.name, ("", "", ""))) for role in read_roles(self.folder)
        ]

    def stop(self) -> None:
        super().stop()
        if jobs := read_notes(self.run).get("jobs"):
            call(["scancel", "--state=PENDING", *jobs.values()])

    def _state(self, name: str, job: str, node: str, reason: str) -> ProcessState:
        """What Slurm and the keeper know together: the keeper's note may be older than the job."""
        noted = read_state(self.folder, name)
        if job == "PENDING":
            return ProcessState(name=name, state="queued", detail=f"{reason} (Slurm)")
        if job in ("RUNNING", "COMPLETING", "CONFIGURING"):
            if noted is not None and (noted.state in ("running", "restarting") or job == "COMPLETING"):
                return noted.model_copy(update={"where": node})
            return ProcessState(name=name, state="running", where=node)
        if noted is not None and noted.state in ("done", "failed", "stopped"):
            return noted
        if ending := read_ending(self.folder):  # it was queued until then
            return ProcessState(name=name, state="done" if ending == "done" else "stopped")
        return ProcessState(name=name, state="lost", detail="its job is gone; see the logs, or sacct")

    def _file(self, kind: str) -> Path:
        return self.folder / "launch" / f"{kind}.sh"

    def _script(self, kind: str, among: Sequence[Role]) -> str:
        """The script of the job for all roles of a kind."""
        needs, hours = among[0].needs, self.config.placement.hours
        options = {"job-name": f"{self.config.name}-{kind}", "ntasks": "1", "cpus-per-task": str(needs.cpus)}
        name, log = kind, f"slurm-{kind}.log"
        if kind != "learner":
            options["array"] = f"0-{len(among) - 1}"
            name, log = f"{kind}-$SLURM_ARRAY_TASK_ID", f"slurm-{kind}-%a.log"
        wanted = {"gpu": float(needs.gpus), **needs.resources}
        if gres := ",".join(f"{resource}:{num:g}" for resource, num in wanted.items() if num):
            options["gres"] = gres
        if needs.memory_gb is not None:
            options["mem"] = f"{1024 * needs.memory_gb:.0f}M"
        if hours is not None:
            options["time"] = f"{60 * hours:.0f}"
        options["signal"] = f"B:TERM@{WARN_S[kind]}"
        options |= {"chdir": os.getcwd(), "output": str(self.folder / "logs" / log), "open-mode": "append"}
        lines = [*(f"--{key}={value}" for key, value in options.items()), "--requeue", *needs.options]
        return SCRIPT.format(
            options="\n".join(f"#SBATCH {shlex.quote(line)}" for line in lines),
            keeper=f"{shlex.join(command(sys.executable, 'keep', self.folder))} {name}",
            over=shlex.quote(str(self.folder / "launch" / "over")),
        )
