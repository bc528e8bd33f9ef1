"""A process with simulated phones: `python -m distrl.simulator.adb.process JSON`, started by `SimHost`.

    one event loop:  phones (adbd, console, one task per stream) · announcer · SIGTERM ends all

It writes its ready file when all its ports listen, and is started again by its host when it dies.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from distrl.core.errors import DistrlError
from distrl.core.logs import setup
from distrl.simulator.adb.console import TOKEN_FILE, read_token
from distrl.simulator.adb.process_announce import Announcer
from distrl.simulator.adb.process_phone import HostedPhone, PhoneSpec

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ProcessSpec:
    """What a process is to host.

    Attributes:
        phones: Its phones.
        adb_server_port: The adb server that is told about them; 0 tells nobody.
        token_file: The console's token file; "" lets everybody in.
        ready_file: Written, with the process id as text, when all ports listen.
        is_own_process: Whether there is nothing else in the process: then the crash of an only phone ends it.
    """

    phones: tuple[PhoneSpec, ...]
    adb_server_port: int = 0
    token_file: str = TOKEN_FILE
    ready_file: str = ""
    is_own_process: bool = True

    def dump(self) -> str:
        """The spec as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def load(cls, text: str) -> ProcessSpec:
        """Reads what `dump` wrote."""
        fields = json.loads(text)
        return cls(**{**fields, "phones": tuple(PhoneSpec(**phone) for phone in fields["phones"])})


async def serve(spec: ProcessSpec, stop: asyncio.Event, ready: Callable[[], None]) -> None:
    """Hosts the phones until `stop` is set.

    Args:
        spec: The phones.
        stop: Ends it.
        ready: Called when all ports listen.

    Raises:
        PortInUse: If a port is taken.
        OSError: If the token file can neither be read nor made.
    """
    token = read_token(Path(spec.token_file).expanduser()) if spec.token_file else ""
    is_alone = spec.is_own_process and len(spec.phones) == 1
    phones = [HostedPhone(phone, token, spec.token_file, is_alone) for phone in spec.phones]
    announcing: asyncio.Task[None] | None = None
    try:
        for phone in phones:
            await phone.start()
        if spec.adb_server_port:
            announcer = Announcer(
                spec.adb_server_port,
                lambda: {phone.spec.serial: phone.spec.adb_port for phone in phones if phone.is_up},
            )
            announcing = asyncio.ensure_future(announcer.run())
        ready()
        await stop.wait()
    finally:
        if announcing is not None:
            announcing.cancel()
            await asyncio.gather(announcing, return_exceptions=True)
        for phone in phones:
            await phone.stop()


def _write(file: Path, text: str) -> None:
    fresh = file.with_suffix(".new")
    fresh.write_text(text, encoding="ascii")
    os.replace(fresh, file)


async def _main(spec: ProcessSpec) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    ready_file = Path(spec.ready_file)
    await serve(spec, stop, lambda: _write(ready_file, str(os.getpid())) if spec.ready_file else None)


def main() -> int:
    """Runs the process. Returns its exit code."""
    setup(role="sim-host")
    try:
        asyncio.run(_main(ProcessSpec.load(sys.argv[1])))
    except DistrlError as error:
        with contextlib.suppress(BrokenPipeError):
            print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
