"""An ssh server of our own on loopback, with throw-away keys, for measuring scp."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType

START_S = 10.0
COPY_S = 120.0


class LoopbackSsh:
    """Runs sshd for the duration of a `with` block.

    Raises:
        RuntimeError: A program is missing or sshd does not start; the message says why.
    """

    def __init__(self) -> None:
        sshd = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
        if sshd is None or not all(shutil.which(name) for name in ("scp", "ssh-keygen")):
            raise RuntimeError("needs scp, ssh-keygen and sshd")
        if os.geteuid() == 0 and not Path("/run/sshd").is_dir():
            raise RuntimeError("sshd as root needs the directory /run/sshd")
        self._sshd = sshd
        self._folder = tempfile.TemporaryDirectory()
        self.folder = Path(self._folder.name)

    def __enter__(self) -> LoopbackSsh:
        for name in ("host", "client"):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / name)]
            subprocess.run(command, check=True)
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self._port = probe.getsockname()[1]
        config = self.folder / "config"
        config.write_text(
            f"Port {self._port}\nListenAddress 127.0.0.1\nHostKey {self.folder}/host\n"
            f"AuthorizedKeysFile {self.folder}/client.pub\nPidFile none\nStrictModes no\nUsePAM no\n"
            "PasswordAuthentication no\nSubsystem sftp internal-sftp\n"
        )
        with (self.folder / "log").open("wb") as log:
            self._process = subprocess.Popen([self._sshd, "-D", "-e", "-f", str(config)], stderr=log)
        deadline = time.monotonic() + START_S
        while self._process.poll() is None and time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self._port)) == 0:
                    return self
            time.sleep(0.05)
        reason = (self.folder / "log").read_text().strip()
        self.__exit__(None, None, None)
        raise RuntimeError(f"sshd did not start: {reason[-200:]}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(START_S)
        self._folder.cleanup()

    def copy(self, source: Path, count: int) -> None:
        """Copies a file `count` times at once.

        Raises:
            RuntimeError: A copy failed; the message has sshd's last words.
        """
        options = [
            "StrictHostKeyChecking=no",
            "UserKnownHostsFile=/dev/null",
            "LogLevel=ERROR",
            "BatchMode=yes",
        ]
        flags = [flag for option in options for flag in ("-o", option)]
        command = ["scp", "-q", "-P", str(self._port), "-i", str(self.folder / "client"), *flags, str(source)]
        target = f"{getpass.getuser()}@127.0.0.1:{self.folder}/copy"
        copies = [subprocess.Popen([*command, f"{target}{number}"]) for number in range(count)]
        for process in copies:
            if process.wait(COPY_S) != 0:
                raise RuntimeError(f"scp failed: {(self.folder / 'log').read_text().strip()[-200:]}")
