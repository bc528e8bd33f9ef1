"""A Slurm cluster of two nodes on loopback: its own munged, slurmctld and slurmd.

Its programs are looked for in $DISTRL_SLURM_ROOT, where Debian's packages are unpacked (see CONTRIBUTING.md),
else on the PATH.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

from waiting import until

NODES = ("n1", "n2")
NEEDED = ("munged", "slurmctld", "slurmd", "slurmstepd", "sbatch", "squeue", "scancel", "scontrol")


def find() -> dict[str, str] | None:
    """The paths of the programs; None if some are not there."""
    root = os.environ.get("DISTRL_SLURM_ROOT")
    folders = [f"{root}/usr/bin", f"{root}/usr/sbin"] if root else [*os.get_exec_path(), "/usr/sbin"]
    path, found = os.pathsep.join(folders), {}
    for name in NEEDED:
        program = shutil.which(f"{name}-wlm", path=path) or shutil.which(name, path=path)
        if program is None:
            return None
        found[name] = program
    return found


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class SlurmCluster:
    """The cluster in `folder`; `environment` is what its clients need."""

    def __init__(self, programs: dict[str, str], folder: Path) -> None:
        self._programs, self._folder, self._daemons = programs, folder, list[subprocess.Popen[bytes]]()
        conf, root = folder / "slurm.conf", os.environ.get("DISTRL_SLURM_ROOT")
        self.environment = {**os.environ, "SLURM_CONF": str(conf)}
        plugins = ""
        if root:
            libraries = f"{root}/usr/lib/x86_64-linux-gnu"
            self.environment["LD_LIBRARY_PATH"] = (
                f"{libraries}:{libraries}/slurm-wlm:{root}/lib/x86_64-linux-gnu"
            )
            self.environment["PATH"] = f"{root}/usr/bin:{os.environ['PATH']}"
            plugins = f"PluginDir={libraries}/slurm-wlm"
        host = socket.gethostname().split(".")[0]
        user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
        # What asks for no node gets n2 as long as it has room.
        nodes = "".join(
            f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={free_port()} CPUs=8 "
            f"Weight={weight}\n"
            for node, weight in (("n1", 2), ("n2", 1))
        )
        conf.write_text(
            f"""ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={free_port()}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
{plugins}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_min_interval=0,sched_interval=2,bf_interval=2
ReturnToService=2
SlurmdParameters=config_overrides
SlurmdTimeout=6
KillWait=30
MailProg=/bin/true
{nodes}PartitionName=all Nodes={",".join(NODES)} Default=YES MaxTime=INFINITE State=UP
"""
        )
        (folder / "state").mkdir()

    def start(self) -> None:
        """Starts the daemons, and returns when both nodes are idle."""
        folder = self._folder
        key = folder / "munge.key"
        key.write_bytes(os.urandom(64))
        key.chmod(0o600)
        names = ("socket", "pid-file", "log-file", "seed-file")
        places = [f"--{name}={folder}/munge.{name.partition('-')[0]}" for name in names]
        self._daemon("munged", "--foreground", "--force", f"--key-file={key}", *places)
        until(lambda: (folder / "munge.socket").exists())
        self._daemon("slurmctld", "-D", "-i")
        for node in NODES:
            self._daemon("slurmd", "-D", "-N", node, "-d", self._programs["slurmstepd"], node=node)
        until(lambda: self.client("sinfo", "-h", "-t", "idle", "-o", "%D").strip() == "2", "two idle nodes")

    def client(self, *command: str) -> str:
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        return done.stdout

    def kill_node(self, node: str) -> None:
        """Kills everything on a node, as a power cut would."""
        marks = (f"TEST_NODE={node}".encode(), f"SLURMD_NODENAME={node}".encode())
        for pid in self._pids():
            with contextlib.suppress(OSError):
                if any(mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") for mark in marks):
                    os.kill(pid, signal.SIGKILL)

    def stop(self) -> None:
        """Kills the daemons and everything that they started."""
        for pid in self._pids():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        for daemon in self._daemons:
            daemon.kill()
            daemon.wait()

    def _pids(self) -> Iterator[int]:
        """The processes of jobs and daemons: their environment names this cluster."""
        mark = f"SLURM_CONF={self.environment['SLURM_CONF']}".encode()
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                is_ours = mark in (entry / "environ").read_bytes().split(b"\0")
                if is_ours and int(entry.name) != os.getpid():
                    yield int(entry.name)

    def _daemon(self, name: str, *options: str, node: str = "") -> None:
        with (self._folder / f"{name}{node}.out").open("wb") as out:
            self._daemons.append(
                subprocess.Popen(
                    [self._programs[name], *options],
                    env={**self.environment, "TEST_NODE": node},
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )


@contextlib.contextmanager
def slurm_cluster(folder: Path) -> Iterator[SlurmCluster]:
    """A running cluster, whose files are in `folder`."""
    programs = find()
    assert programs is not None
    cluster = SlurmCluster(programs, folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
