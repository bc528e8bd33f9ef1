"""The stand-in's virtual machine: a simulated phone that boots, answers adb and the console, and ends.

one event loop:  adbd · console · gRPC · announcer to the adb server · boot · SIGTERM or a client ends all
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from distrl.core.errors import EnvError, MissingDependency
from distrl.core.files import write_bytes_atomically
from distrl.simulator.adb import emulator_grpc
from distrl.simulator.adb.adbd.connection import AdbdServer
from distrl.simulator.adb.android import AndroidSystem
from distrl.simulator.adb.console import TOKEN_FILE, ConsoleServer, read_token
from distrl.simulator.adb.faults import Faults, Kind, parse
from distrl.simulator.adb.machine import AvdSnapshots, Machine
from distrl.simulator.adb.process import Announcer, Endpoint
from distrl.simulator.emulator.startup import VERSION, Fault, Options, Refused, hardware, line
from distrl.workers.devices.avd import Avd, write_ini
from distrl.workers.devices.errors import PortInUse, SnapshotMissing

COLD_BOOT_S, WARM_BOOT_S = 0.3, 0.05
"""How long a boot takes, from nothing and from a snapshot; `sim.boot_s` in config.ini changes the first."""
FIRST_PORT, LAST_PORT = 5554, 5584
DATA = "userdata-sim.bin"
"""Where an AVD's data is while no emulator runs."""
Say = Callable[[str, str], None]


class Emulator:
    """One run of the stand-in; the AVD's locks are held."""

    def __init__(
        self, avd: Avd, options: Options, fault: Fault, say: Say, environ: Mapping[str, str] = os.environ
    ) -> None:
        self._avd, self._options, self._fault = avd, options, fault
        self._say, self._environ = say, environ
        self._stop = asyncio.Event()
        config = avd.config()
        self._cold_s = float(config.get("sim.boot_s", COLD_BOOT_S))
        size = int(config.get("hw.lcd.width", 540)), int(config.get("hw.lcd.height", 1200))
        self._adb_port = options.adb_port or (options.port or FIRST_PORT) + 1
        self._servers: list[Endpoint] = []
        self._grpc: dict[str, str] = {}
        """Where its gRPC services are, as it is announced to others; empty if it has none."""
        self._system = AndroidSystem(f"emulator-{self._adb_port - 1}", *size, _api_level(config))
        self._faults = Faults()
        self._faults.on_change(lambda fault: _die() if fault.kind is Kind.CRASH else None)
        self._hardware = hardware(avd, options)
        self._snapshots = AvdSnapshots(
            avd.directory,
            self._hardware,
            self._system.screenshot_png,
            is_corrupt=fault.name == "snapshot_corrupt",
        )
        self._machine = Machine(
            self._system,
            self._faults,
            self._snapshots,
            kill=self._stop.set,
            avd_name=avd.name,
            avd_path=str(avd.directory),
            is_read_only=options.read_only,
            version=VERSION,
        )

    async def run(self) -> None:
        """Runs until a signal or a client ends it. Raises Refused for taken ports or damaged data."""
        started = time.monotonic()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        is_warm = self._restore()
        self._booted(False)
        await self._listen()
        if self._fault.name == "crash":
            loop.call_later(self._fault.seconds, _die)
        if self._fault.name == "offline":
            self._faults.set(parse("offline"))
        advertised = self._advertise()
        announcing = asyncio.ensure_future(self._announce())
        booting = asyncio.ensure_future(self._boot(started, is_warm))
        try:
            await self._stop.wait()
        finally:
            for task in (announcing, booting):
                task.cancel()
            await asyncio.gather(announcing, booting, return_exceptions=True)
            self._faults.close()
            for server in self._servers:
                await server.stop()
            advertised.unlink(missing_ok=True)
        self._save(is_warm)

    async def _listen(self) -> None:
        port = self._options.port
        if self._fault.name != "port_in_use":
            for candidate in [port] if port is not None else range(FIRST_PORT, LAST_PORT + 1, 2):
                self._adb_port = self._options.adb_port or candidate + 1
                if await self._listen_at(candidate):
                    await self._serve_grpc()
                    return
        raise Refused(
            line("ERROR", "It seems too many emulator instances are running on this machine. Aborting.")
        )

    async def _listen_at(self, port: int) -> bool:
        token = read_token(Path(self._environ.get("HOME", "~"), Path(TOKEN_FILE).name).expanduser())
        adbd, console = AdbdServer(self._system, self._faults), ConsoleServer(self._machine, token)
        try:
            await adbd.start(self._adb_port)
            await console.start(port)
        except PortInUse:
            await adbd.stop()
            return False
        self._servers = [adbd, console]
        return True

    async def _serve_grpc(self) -> None:
        """Starts gRPC if it is asked for. Raises Refused if its port is taken."""
        asked = self._options.values.get("grpc")
        if asked is None:
            return
        token = secrets.token_urlsafe(48) if "grpc-use-token" in self._options.plain else ""
        port = int(asked) if asked.isdecimal() else self._adb_port - 1 + emulator_grpc.PORT_OFFSET
        try:
            server = emulator_grpc.serve(self._machine, token)
            await server.start(port)
        except MissingDependency as error:
            self._say("WARNING", f"No gRPC service: {error}")
            return
        except PortInUse as error:
            for other in self._servers:
                await other.stop()
            raise Refused(
                line("ERROR", "Failed to start grpc service, even though it was explicitly requested.")
            ) from error
        auth = "+token" if token else "none"
        self._say("INFO", f"Started GRPC server at 127.0.0.1:{port}, security: Local, auth: {auth}")
        self._servers.append(server)
        self._grpc = {"grpc.port": str(port)} | ({"grpc.token": token} if token else {})

    async def _announce(self) -> None:
        server = int(self._environ.get("ANDROID_ADB_SERVER_PORT") or 5037)
        await Announcer(server, lambda: {f"emulator-{self._adb_port - 1}": self._adb_port}).run()

    def _booted(self, is_booted: bool) -> None:
        self._system.properties["init.svc.bootanim"] = "stopped" if is_booted else "running"
        self._system.properties["sys.boot_completed"] = "1" if is_booted else ""

    async def _boot(self, started: float, is_warm: bool) -> None:
        if self._fault.name == "hang_boot":
            return
        await asyncio.sleep(WARM_BOOT_S if is_warm else self._cold_s)
        self._booted(True)
        self._say("INFO", f"Boot completed in {(time.monotonic() - started) * 1000:.0f} ms")

    def _restore(self) -> bool:
        """Loads the snapshot, else the data that the last run left. Returns whether it was the snapshot."""
        name = self._options.snapshot
        if name is not None:
            try:
                self._system.load(self._snapshots.load(name))
            except SnapshotMissing:
                if "snapshot" in self._options.values:
                    self._say("WARNING", f"Device 'cache' does not have the requested snapshot '{name}'")
                    self._say("WARNING", f"Failed to load snapshot '{name}'")
            except EnvError as error:
                if "hw.gpu.mode" in error.message:
                    self._say("WARNING", "Change of GLES renderer detected.")
                self._say("WARNING", f"Failed to load snapshot '{name}'")
            else:
                self._say("INFO", f"Successfully loaded snapshot '{name}'")
                return True
        data = self._avd.directory / DATA
        if data.is_file() and "wipe-data" not in self._options.plain:
            try:
                self._system.load(data.read_bytes())
            except EnvError as error:
                raise Refused(line("FATAL", f"{data} is damaged. Start with -wipe-data.")) from error
            self._system.reboot()
        return False

    def _save(self, is_warm: bool) -> None:
        """Keeps a cold boot's data, and the state for the next quick boot, unless an option forbids it."""
        if self._options.read_only:
            return
        if not is_warm:
            write_bytes_atomically(self._avd.directory / DATA, self._system.dump())
        if self._options.saves_on_exit:
            self._say("INFO", "Saving state as 'default_boot'")
            self._snapshots.save("default_boot", self._system.dump())

    def _advertise(self) -> Path:
        base = self._environ.get("XDG_RUNTIME_DIR") or self._environ.get("ANDROID_USER_HOME")
        root = Path(base) if base else Path(self._environ.get("HOME", "~")).expanduser() / ".android"
        path = root / "avd" / "running" / f"pid_{os.getpid()}.ini"
        path.parent.mkdir(parents=True, exist_ok=True)
        fields = {
            "port.serial": str(self._adb_port - 1),
            "port.adb": str(self._adb_port),
            "avd.name": self._avd.name,
            "avd.dir": str(self._avd.directory),
            "avd.id": self._avd.name,
            **self._grpc,
        }
        write_ini(path, fields)
        return path


def _die() -> None:
    """As by a fault in the machine: nothing is cleaned up."""
    os.kill(os.getpid(), signal.SIGKILL)


def _api_level(config: Mapping[str, str]) -> int:
    match = re.search(r"android-(\d+)", config.get("image.sysdir.1", ""))
    return int(match[1]) if match is not None else 34
