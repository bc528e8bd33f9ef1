"""What a client's test has: an adb program, its server, and a simulated phone."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import adb_programs

from distrl.simulator.adb.process import PhoneSpec

DEADLINE_S = 120


@dataclass(frozen=True)
class World:
    """An adb program with its server and a phone.

    Attributes:
        program: The adb program.
        server_port: Its server.
        phone: The phone.
        home: The home folder of the program, with its keys and the console's token.
    """

    program: str
    server_port: int
    phone: PhoneSpec
    home: Path

    def run(
        self, *args: str, stdin: bytes = b"", on_phone: bool = True
    ) -> subprocess.CompletedProcess[bytes]:
        """Runs the adb program; never without a limit."""
        serial = ["-s", self.phone.serial] if on_phone else []
        return subprocess.run(
            [self.program, "-P", str(self.server_port), *serial, *args],
            input=stdin,
            capture_output=True,
            timeout=DEADLINE_S,
            env=adb_programs.environment(self.server_port, self.home),
            check=False,
        )

    def out(self, *args: str) -> str:
        """What the adb program prints; it must succeed."""
        result = self.run(*args)
        assert result.returncode == 0, result.stderr + result.stdout
        return result.stdout.decode()
