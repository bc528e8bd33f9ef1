"""One emulator process: started in a session of its own, followed by its log, waited for, and ended.

Ready means, in this order: the adb server lists it as `device`; sys.boot_completed = 1; init.svc.bootanim =
stopped; `wm size` names a size and a screenshot has more than one colour.

`EmulatorProcess` is used by one thread at a time, but `stop` and `pid` may be called by another. The process
is registered as soon as it runs, so that `distrl cleanup` finds it if this process dies first. `session`
works with the emulator that already runs from an AVD, which is left running, or with one started for the
purpose.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from distrl.core.errors import ConfigError
from distrl.workers.devices.adb import AdbClient
from distrl.workers.devices.adb_server import AdbServer
from distrl.workers.devices.avd import Avd, read_ini
from distrl.workers.devices.claims import Ports, claim_ports
from distrl.workers.devices.console import UNLOADABLE, Console
from distrl.workers.devices.errors import (
    AvdLocked,
    BootTimeout,
    DeviceError,
    DeviceNotFound,
    EmulatorError,
    EmulatorExited,
    LowDisk,
    NoAcceleration,
    PortInUse,
    SnapshotFailed,
    SnapshotMissing,
    SnapshotPending,
)
from distrl.workers.devices.processes import (
    CONSOLE_S,
    Entry,
    ProcessKey,
    Registry,
    cmdline,
    end_process,
    is_alive,
    key_of,
    state_dir,
)
from distrl.workers.devices.screen import Frames
from distrl.workers.devices.sdk import ROOT_VARIABLES, Sdk, emulator_version, probe_acceleration
from distrl.workers.devices.snapshots import Snapshotter, get_snapshot, require_same_hardware

GPU = "swiftshader_indirect"
"""The GPU mode for machines without a GPU; a snapshot loads only under the mode it was saved with."""
LEAST_FREE_BYTES = 64 * 2**20
"""Free space below which no emulator is started. Emulators themselves refuse with less than about 2 GB."""
BOOT_S = 180.0
"""Longest time for a boot or a start from a snapshot, by default."""
_CALL_S, _SCREENSHOT_S = 5.0, 10.0
_POLL_S = 0.25
_SLOW = "See the emulator's log; a slow machine needs more time: --boot-timeout, or boot_s."
_DRAWS_NOTHING = (
    "Take a system image that draws: ATD images (aosp_atd, google_atd) do not; with another one see the "
    "emulator's log."
)
_SIZE = re.compile(r"(?:Physical|Override) size: (\d+)x(\d+)")


@dataclass(frozen=True)
class EmulatorOptions:
    """How an emulator is started.

    `snapshot` is the one to start from; None boots cold. With `read_only` it shares the AVD with others, and
    its console can neither save, load nor delete snapshots. `extra` are further options.
    """

    gpu: str = GPU
    snapshot: str | None = None
    read_only: bool = False
    extra: tuple[str, ...] = ()

    def flags(self, avd: str, console_port: int) -> list[str]:
        """The command line behind the program's name."""
        start = ["-snapshot", self.snapshot] if self.snapshot else ["-no-snapshot-load"]
        return [
            # `-grpc PORT` would serve the whole emulator to everyone, on all interfaces. Without it emulators
            # choose a port of the loopback interface and require a token; old ones only with this option.
            *("-avd", avd, "-port", str(console_port), "-grpc-use-token"),
            *("-no-window", "-no-audio", "-no-boot-anim", "-gpu", self.gpu, "-no-snapshot-save"),
            *start,
            *(["-read-only"] if self.read_only else []),
            *self.extra,
        ]


class EmulatorProcess:
    """One emulator, on claimed `ports` that the caller releases after `stop`.

    `log` is its output, in a file of the state directory that each start replaces.
    """

    def __init__(
        self,
        sdk: Sdk,
        avd: Avd,
        ports: Ports,
        options: EmulatorOptions = EmulatorOptions(),
        *,
        adb_server_port: int,
    ) -> None:
        self.sdk, self.avd, self.ports, self.options = sdk, avd, ports, options
        self.serial = ports.serial
        self.log = LogFollower(state_dir() / "logs" / f"emulator-{ports.console}-{avd.name}.log")
        roots = dict.fromkeys(ROOT_VARIABLES, str(sdk.root))  # where it looks for system images
        places = {"ANDROID_AVD_HOME": str(avd.home), "ANDROID_ADB_SERVER_PORT": str(adb_server_port)}
        self._environ = {**os.environ, **roots, **places}
        self._child: subprocess.Popen[bytes] | None = None
        self._entry: Entry | None = None

    @property
    def pid(self) -> int | None:
        """Its process id while it runs."""
        child = self._child
        return child.pid if child is not None and child.poll() is None else None

    def start(self) -> None:
        """Starts it and returns at once; `wait_booted` reports failures.

        Raises EmulatorError if another emulator holds the AVD, the disk is full, the snapshot does not exist
        or was saved with other hardware, or the program cannot be started.
        """
        assert self.pid is None, "the emulator runs already"
        self.avd.require_unused(shared=self.options.read_only)
        self._require_disk()
        if self.options.snapshot is not None:
            get_snapshot(self.avd, self.options.snapshot)
            require_same_hardware(self.avd, self.options.snapshot, self.options.extra)
        command = [str(self.sdk.emulator), *self.options.flags(self.avd.name, self.ports.console)]
        self.log.path.parent.mkdir(parents=True, exist_ok=True)
        self.log = LogFollower(self.log.path)
        try:
            with self.log.path.open("wb") as output:
                self._child = child = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=self._environ,
                    start_new_session=True,
                )
        except OSError as error:
            raise EmulatorError(f"{command[0]} cannot be started: {error}.", "Reinstall it.") from error
        if key_of(child.pid) is None:
            return  # it has ended already; `check` says why
        # `members` recognises emulators that a killed process left by these words.
        what = f"emulator of AVD {self.avd.name} at port {self.ports.console}"
        try:
            self._entry = Registry().add(child.pid, what, self.ports.console)
        except EmulatorError:
            child.kill()  # without an entry no later command could end it
            child.wait()
            raise

    def _require_disk(self) -> None:
        """An emulator on a full disk cannot write its locks, and reports that another process holds them."""
        free = shutil.disk_usage(self.avd.directory).free
        if free < LEAST_FREE_BYTES:
            raise LowDisk(
                f"the disk of the AVD {self.avd.name!r} is full: {free / 2**20:.0f} MB are left, and an "
                f"emulator needs {LEAST_FREE_BYTES / 2**20:.0f} MB for its locks and logs alone.",
                f"Free some GB on the disk of {self.avd.directory}.",
                serial=self.serial,
            )

    def check(self) -> None:
        """Raises EmulatorError by what its log says, or if it has ended with its last words."""
        child = self._child  # another thread may be stopping it
        has_ended = child is None or child.poll() is not None
        for line in self.log.lines():
            fault = fault_of(line, self.serial, from_snapshot=self.options.snapshot is not None)
            if fault is not None:
                raise fault
        if has_ended:
            status = "does not run" if child is None else _status(child.returncode)
            said = last_complaint(self.log.tail())
            raise EmulatorExited(
                f"the emulator {status}{f', saying: {said}' if said else ''}.".replace("..", "."),
                f"See its log, {self.log.path}.",
                serial=self.serial,
                evidence=self.log.tail(),
            )

    def wait_booted(self, client: AdbClient, timeout_s: float = BOOT_S) -> None:
        """Waits until Android can be used.

        Raises:
            BootTimeout: If it is not ready in time, with the end of its log.
            EmulatorError: If it ends or its log reports a failure.
        """
        try:
            wait_booted(client, timeout_s, self.check)
        except BootTimeout as error:
            error.evidence = f"{error.evidence}\n{self.log.tail()}"
            raise

    def stop(self, console_s: float = CONSOLE_S) -> str:
        """Ends it: console, SIGTERM, SIGKILL. May be called twice, and without `start`.

        Returns what ended it, as `end_process`; `console_s`: how long it may take after the console's `kill`.
        """
        child, entry = self._child, self._entry
        if child is None:
            return "gone"
        how = "gone"
        # Without an entry another thread is starting it at this moment.
        key = entry.key if entry is not None else key_of(child.pid)
        if key is not None:
            how = end_process(key, self.ports.console, console_s)
            if not how:
                raise EmulatorError(
                    f"the emulator (process {child.pid}) does not end, not even by SIGKILL.",
                    "It hangs in the kernel; see `dmesg`.",
                    serial=self.serial,
                )
        if entry is not None:
            Registry().remove(entry)
        child.poll()
        self._child = self._entry = None
        return how


def _status(code: int) -> str:
    return f"was ended by signal {-code}" if code < 0 else f"ended with exit status {code}"


def wait_booted(
    client: AdbClient,
    timeout_s: float,
    check: Callable[[], object] = lambda: None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Waits until Android can be used.

    Args:
        timeout_s: For all conditions together.
        check: Called before each look; raises when waiting is in vain (its process ended, its log says why).

    Raises:
        BootTimeout: With the condition that did not hold, and what was seen of it.
    """
    give_up_at = clock() + timeout_s

    def left(most_s: float) -> float:
        """The time for one call; a last one may be made at the deadline, but briefly."""
        return max(0.5, min(most_s, give_up_at - clock()))

    # Each returns "" when its condition holds, else what it saw.

    def is_there() -> str:
        state = client.state(left(2.0))
        return "" if state == "device" else f"its state is {state!r}"

    def has(name: str, wanted: str) -> str:
        value = client.shell(f"getprop {name}", left(_CALL_S)).text.strip()
        return "" if value == wanted else f"{name} is {value!r}"

    def answers() -> str:
        size = client.shell("wm size", left(_CALL_S)).text
        if not _SIZE.search(size):
            return f"`wm size` prints {size[:80].strip()!r}"
        Frames().judge(client.exec_out(client.display.screencap, left(_SCREENSHOT_S)))
        return ""

    conditions = {
        "adb": is_there,
        "boot_completed": lambda: has("sys.boot_completed", "1"),
        "bootanim": lambda: has("init.svc.bootanim", "stopped"),
        "service": answers,
    }
    for name, look in conditions.items():
        while True:
            check()
            try:
                seen = look()
            except DeviceError as error:
                seen = error.message
            if not seen:
                break
            if clock() >= give_up_at:
                raise BootTimeout(
                    f"not ready after {timeout_s:g} s, waiting for {name}: {seen.rstrip('.')}.",
                    _DRAWS_NOTHING if "of one colour" in seen else _SLOW,
                    serial=client.serial,
                    evidence=seen,
                )
            sleep(_POLL_S)


@contextmanager
def session(
    sdk: Sdk,
    avd: Avd,
    options: EmulatorOptions,
    server: AdbServer,
    *,
    console_port: int | None = None,
    boot_s: float = BOOT_S,
    must_run: bool = False,
    note: Callable[[str], object] = lambda text: None,
) -> Iterator[Snapshotter]:
    """An emulator that runs from an AVD, for a while; one is started unless it `must_run` already.

    One that runs must be at `console_port`, if that is given. `note` is called with each step, in words.
    """
    with ExitStack() as stack:
        server.ensure_running()
        there = running_from(avd)
        if there is not None:
            yield _attached(there, sdk, avd, server, console_port, boot_s)
            return
        if must_run:
            raise DeviceNotFound(
                f"no emulator runs from the AVD {avd.name!r}.",
                f"Start one (`emulator -avd {avd.name}`), or make the snapshot with `create`.",
            )
        ports = stack.enter_context(claim_ports(console_port))
        process = EmulatorProcess(sdk, avd, ports, options, adb_server_port=server.port)
        stack.callback(process.stop)
        stack.callback(note, "stopping the emulator")
        note(f"starting {avd.name} at port {ports.console}")
        try:
            process.start()
            client = AdbClient(ports.serial, server.port)
            note(f"booting {ports.serial} (log: {process.log.path})")
            process.wait_booted(client, boot_s)
            yield _snapshotter(sdk, avd, client, options.gpu, options.extra, has_started=True)
        except DeviceError as error:
            is_vague = isinstance(error, EmulatorExited) or not isinstance(error, EmulatorError)
            if is_vague and process.pid is None:
                process.check()  # its own last words say more
            raise


def _attached(
    there: Running, sdk: Sdk, avd: Avd, server: AdbServer, console_port: int | None, boot_s: float
) -> Snapshotter:
    """The emulator that already runs from the AVD."""
    require_ours(there)
    if console_port not in (None, there.console_port):
        raise ConfigError(
            f"an emulator runs from the AVD {avd.name!r} already, at port {there.console_port}, so none is "
            f"started at {console_port}.",
            "Leave --port out to work with that one, or stop it first.",
        )
    client = AdbClient(there.serial, server.port)
    wait_booted(client, boot_s)
    words = cmdline(there.key.pid)  # the only place of its options
    gpu = words[words.index("-gpu") + 1] if "-gpu" in words[:-1] else avd.config().get("hw.gpu.mode", GPU)
    return _snapshotter(sdk, avd, client, gpu, words)


def _snapshotter(
    sdk: Sdk, avd: Avd, client: AdbClient, gpu: str, options: Sequence[str], has_started: bool = False
) -> Snapshotter:
    console = Console(int(client.serial.removeprefix("emulator-")))
    return Snapshotter(avd, console, client, gpu, emulator_version(sdk), options, has_started)


def require_ours(there: Running) -> None:
    """Raises AvdLocked if another process of this tool works with the emulator: it would lose its state."""
    for entry in Registry().entries():
        owner = entry.owner
        if entry.key == there.key and owner is not None and owner.pid != os.getpid() and is_alive(owner):
            raise AvdLocked(
                f"the {entry.what} is in use by process {owner.pid} of this tool.",
                "Wait until that is done, or work on a clone of the AVD.",
                serial=there.serial,
            )


@dataclass(frozen=True)
class Running:
    """One running emulator; `avd_dir` is None where its file does not say."""

    key: ProcessKey
    avd_name: str
    avd_dir: Path | None
    console_port: int

    @property
    def serial(self) -> str:
        """The name under which adb lists it."""
        return f"emulator-{self.console_port}"


def directories(environ: Mapping[str, str] = os.environ) -> list[Path]:
    """Where emulators may have announced themselves."""
    bases = [environ.get("XDG_RUNTIME_DIR"), f"/run/user/{os.getuid()}"]
    bases += [environ.get("ANDROID_EMULATOR_HOME"), environ.get("ANDROID_USER_HOME")]
    for root in (environ.get("ANDROID_PREFS_ROOT"), environ.get("ANDROID_SDK_HOME")):
        bases += [f"{root}/.android", root] if root else []
    bases += [f"{environ.get('HOME') or Path.home()}/.android", f"/tmp/android-{environ.get('USER', 'root')}"]
    return list(dict.fromkeys(Path(base) / "avd" / "running" for base in bases if base))


def running(environ: Mapping[str, str] = os.environ) -> list[Running]:
    """All emulators that announce themselves and whose process runs."""
    files = (path for folder in directories(environ) for path in sorted(folder.glob("pid_*.ini")))
    found = {one.key.pid: one for path in files if (one := _read_running(path)) is not None}
    return list(found.values())


def running_from(avd: Avd) -> Running | None:
    """The emulator that runs from this AVD, if one announces itself."""
    same = (one for one in running() if one.avd_name == avd.name)
    return next((one for one in same if one.avd_dir in (None, avd.directory)), None)


def _read_running(path: Path) -> Running | None:
    """The emulator of one file, unless its process is gone or the file is not complete (yet)."""
    digits = path.stem.removeprefix("pid_")
    key = key_of(int(digits)) if digits.isdecimal() else None
    # The file outlives a killed emulator, and its number may be another process's by now.
    if key is None or not any("-avd" in word or "emulator" in word for word in cmdline(key.pid)):
        return None
    try:
        fields = read_ini(path)
        directory = Path(fields["avd.dir"]) if fields.get("avd.dir") else None
        return Running(key, fields["avd.name"], directory, int(fields["port.serial"]))
    except (EmulatorError, KeyError, ValueError):
        return None


_MAX_LINE = 4096
_PREFIX = re.compile(r"^(?:emulator: )?(?:(?:FATAL|ERROR|WARNING|INFO|PANIC)\s*[|:]?\s*)?", re.IGNORECASE)


class LogFollower:
    """Reads what was added to a growing log since the last look; the log need not exist yet."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._position = 0
        self._rest = b""

    def lines(self) -> list[str]:
        """The lines that were completed since the last call."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._position)
                data = file.read()
        except FileNotFoundError:
            return []
        self._position += len(data)
        *whole, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[-_MAX_LINE:]
        return [line.decode("utf-8", "replace").rstrip("\r") for line in whole]

    def tail(self, max_bytes: int = 4096) -> str:
        """The end of the log, for an error's evidence."""
        try:
            with self.path.open("rb") as file:
                file.seek(0, 2)
                file.seek(max(0, file.tell() - max_bytes))
                return file.read().decode("utf-8", "replace")
        except FileNotFoundError:
            return ""


def fault_of(line: str, serial: str = "", from_snapshot: bool = False) -> EmulatorError | None:
    """The error that a line of the log announces; None if it is not one that ends a start.

    With `from_snapshot` it should start from a snapshot. That it cannot is a warning of its own only.
    """
    if "emulation currently requires hardware acceleration" in line:
        found = probe_acceleration()
        reason = f"although {found.reason}" if found.usable else f"because {found.reason}"
        text = f"the emulator cannot use hardware acceleration, {reason}"
        remedy = found.remedy or "Ask the emulator why: `emulator -accel-check`."
        return NoAcceleration(text, remedy, serial=serial, evidence=line)
    for pattern, kind, message, remedy in (*_FATAL, *(_SNAPSHOT if from_snapshot else ())):
        if match := re.search(pattern, line):
            text = message.format(*match.groups(), line=bare(line).removesuffix(" Exiting..."))
            return kind(text, remedy, serial=serial, evidence=line)
    return None


def bare(line: str) -> str:
    """A line without the level in front of it."""
    return _PREFIX.sub("", line).strip()


def last_complaint(text: str) -> str:
    """The last line of a log that names an error, else its last line."""
    lines = [line for line in text.splitlines() if line.strip()]
    complaints = [line for line in lines if re.search(r"\b(FATAL|ERROR|PANIC)\b", line)]
    return bare((complaints or lines or [""])[-1])[:300]


# Pattern, error, message and remedy; in the message {0} is the pattern's first group, {line} the line.
_Meaning = tuple[str, type[EmulatorError], str, str]
_FATAL: tuple[_Meaning, ...] = (
    (
        "Not enough disk space to run AVD|Not enough space to create userdata",
        LowDisk,
        "the emulator reports: {line}",
        "Free some GB on the disk of the AVD, for instance by deleting unused snapshots.",
    ),
    (
        "A snapshot operation for '([^']*)' is pending and timeout has expired",
        SnapshotPending,
        "the emulator waited 10 s for a snapshot operation of the AVD {0!r} that another process has begun.",
        "Wait for it; if no emulator runs, remove snapshot.lock in the AVD's directory, and check that you "
        "may write there.",
    ),
    (
        "Running multiple emulators with the same AVD|nother emulator instance (?:is )?running",
        AvdLocked,
        "another emulator uses the AVD.",
        "Stop it (`distrl cleanup` shows those of this tool), or clone the AVD.",
    ),
    (
        "(?i)too many emulator instances are running",
        PortInUse,
        "the emulator could not listen on its ports.",
        "Another program was faster; start again, or choose another even --port.",
    ),
)
_SNAPSHOT: tuple[_Meaning, ...] = (
    (
        "does not have the requested snapshot '([^']*)'",
        SnapshotMissing,
        "the AVD has no snapshot {0!r}.",
        "See `distrl snapshot-avd list`, and make it with `create`.",
    ),
    (
        "Failed to load snapshot '([^']*)'",
        SnapshotFailed,
        "the snapshot {0!r} does not load.",
        UNLOADABLE,
    ),
    (
        r"(?:[Cc]old boot\b:?\s*|(?=ignoring -snapshot option\b))(.*)",
        SnapshotFailed,
        "the emulator boots cold instead of loading the snapshot: {0}",
        "If the AVD's config.ini has fastboot.forceColdBoot=yes, take that out; else make the snapshot "
        "again, with this emulator and GPU mode, by `distrl snapshot-avd create`.",
    ),
)
