"""Two hosts behind ssh that are this machine: by a real sshd on loopback, else by a stand-in for ssh.

Each has a home directory of its own, in which commands run: FOLDER/127.0.0.1 and FOLDER/127.0.0.2.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from waiting import until

HOSTS = ("127.0.0.1", "127.0.0.2")
STAND_IN = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift 2; done
cd "FOLDER/$1" && exec sh -c "$2"
"""


def find() -> str | None:
    """The path of sshd; None if there is none that this user can run."""
    found = shutil.which("sshd", path=f"{os.environ['PATH']}{os.pathsep}/usr/sbin")
    is_installed = os.getuid() or any(user.pw_name == "sshd" for user in pwd.getpwall())
    return found if shutil.which("ssh") and is_installed else None


@contextlib.contextmanager
def ssh_hosts(folder: Path) -> Iterator[dict[str, str]]:
    """The environment in which `ssh HOST` reaches the hosts, by a real sshd if there is one."""
    for host in HOSTS:
        (folder / host).mkdir()
    program = folder / "bin" / "ssh"
    program.parent.mkdir()
    environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}
    if find() is None:
        program.write_text(STAND_IN.replace("FOLDER", str(folder)))
        program.chmod(0o755)
        yield environment
        return
    with contextlib.closing(_Sshd(folder, shutil.which("ssh") or "ssh")) as sshd:
        program.write_text(f'#!/bin/sh\nexec {sshd.client} -F {folder}/ssh_config "$@"\n')
        program.chmod(0o755)
        until(sshd.answers, "sshd")
        yield environment


class _Sshd:
    def __init__(self, folder: Path, client: str) -> None:
        self.client = client
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            self._port = listener.getsockname()[1]
        for key in ("host", "user"):
            made = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)]
            subprocess.run(made, check=True)
        (folder / "ssh_config").write_text(
            f"Host *\nPort {self._port}\nIdentityFile {folder}/user\nIdentitiesOnly yes\nLogLevel ERROR\n"
            "StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n"
        )
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        homes = "".join(
            f"Match LocalAddress {host}\n"
            f'  ForceCommand cd {folder / host} && exec sh -c "$SSH_ORIGINAL_COMMAND"\n'
            for host in HOSTS
        )
        (folder / "sshd_config").write_text(
            "".join(f"ListenAddress {host}:{self._port}\n" for host in HOSTS)
            + f"HostKey {folder}/host\nAuthorizedKeysFile {folder}/user.pub\nStrictModes no\nUsePAM no\n"
            f"PermitRootLogin yes\nPidFile none\nSetEnv PATH={path} "
            f"PYTHONPATH={os.environ.get('PYTHONPATH', '')}\n{homes}"
        )
        if not os.getuid():
            Path("/run/sshd").mkdir(exist_ok=True)
        sshd = find()
        assert sshd is not None
        with (folder / "sshd.log").open("wb") as log:
            command = [sshd, "-D", "-e", "-f", str(folder / "sshd_config")]
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
