"""One chromedriver process with its browser: started, spoken to by W3C WebDriver, and killed as one group.

The driver leads a process group of its own that also holds the browser, so one signal ends them all. A
watcher in that group reads a pipe from this process: when this process dies, however it dies, the pipe ends
and the watcher ends the group. Home, configuration, cache and profile of the browser lie in one temporary
directory that goes with it.
"""

from __future__ import annotations

import http.client
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distrl.core.errors import EnvError, MissingDependency

_log = logging.getLogger(__name__)

BROWSER_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
DRIVER_NAMES = ("chromedriver", "chromium.chromedriver")
BROWSER_VARIABLE = "DISTRL_CHROMIUM"
DRIVER_VARIABLE = "DISTRL_CHROMEDRIVER"

# $0 is the temporary directory, $@ the driver's command. The shell becomes the driver, so that `Popen` sees
# the driver's own exit. The watcher in the background asks politely first and removes the directory once
# nobody writes into it any more (rm fails until then), for at most 4 s; then it kills the group and itself.
_WATCHED_START = """
exec 3<&0
{
  cat >/dev/null
  trap "" TERM
  kill -TERM 0
  tries=0
  until [ $tries -ge 8 ]; do
    sleep 0.5
    rm -rf -- "$0" 2>/dev/null && break
    tries=$((tries + 1))
  done
  kill -KILL 0
} <&3 3<&- &
exec "$@" </dev/null 3<&-
"""
_PORT_LINE = re.compile(r"started successfully on port (\d+)")


def find_program(what: str, given: str | None, variable: str, names: Sequence[str]) -> str:
    """The path of a program: as given, else from an environment variable, else the first of `names` on PATH.

    Raises:
        MissingDependency: There is none.
    """
    wanted = given or os.environ.get(variable)
    for name in [wanted] if wanted else names:
        path = shutil.which(name)
        if path is not None:
            return path
    looked_for = repr(wanted) if wanted else ", ".join(names) + " on PATH"
    raise MissingDependency(
        f"{what} is needed and was not found (looked for {looked_for}).",
        f"Install it (Debian: apt install chromium chromium-driver) or set {variable} to its path.",
    )


class ChromeDriver:
    """A running driver with one browser session.

    Args:
        driver, browser: Paths of chromedriver and of the browser.
        flags: Command-line flags of the browser.
        deadline_s: Longest wait for the reply to one command.
        start_deadline_s: Longest wait for the driver and the browser to start.

    Raises:
        EnvError: They did not start in time.
    """

    def __init__(
        self, driver: str, browser: str, flags: Sequence[str], deadline_s: float, start_deadline_s: float
    ) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="distrl-browser-"))
        self._deadline_s = deadline_s
        self._http: http.client.HTTPConnection | None = None
        self._session = ""
        self._process = self._launch(driver)
        give_up_at = time.monotonic() + start_deadline_s
        port = self._wait_for_port(give_up_at)
        remaining_s = max(give_up_at - time.monotonic(), 0.1)
        self._http = http.client.HTTPConnection("127.0.0.1", port, timeout=remaining_s)
        self._open_session(browser, flags)

    @property
    def alive(self) -> bool:
        """Whether commands can still be sent."""
        return self._http is not None

    @property
    def process_group(self) -> int:
        """The id of the process group that holds the driver and the browser."""
        return self._process.pid

    @property
    def home(self) -> Path:
        """The temporary directory that holds everything the browser writes."""
        return self._home

    def command(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """Sends one command of the session and returns its value.

        Args:
            path: Below /session/{id}, e.g. "url".
            body: The command's JSON parameters; None for a command that only asks (GET).

        Raises:
            EnvError: The browser refused, died or did not answer in time. All processes are killed then,
                since nothing is known about the page any more.
        """
        return self._send(f"/session/{self._session}/{path}", body)

    def close(self) -> None:
        """Kills driver and browser and removes their directory. May be called twice."""
        if self._http is not None:
            self._http.close()
            self._http = None
        if self._process.returncode is None:
            self._kill_group()
        self._remove_home()

    def _launch(self, driver: str) -> subprocess.Popen[bytes]:
        home = str(self._home)
        environment = dict(os.environ, HOME=home, TMPDIR=home)
        environment |= {"XDG_CONFIG_HOME": f"{home}/config", "XDG_CACHE_HOME": f"{home}/cache"}
        with (self._home / "driver.log").open("wb") as output:
            try:
                return subprocess.Popen(
                    ["/bin/sh", "-c", _WATCHED_START, home, driver, "--port=0"],
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    start_new_session=True,
                )
            except OSError as error:
                self._remove_home()
                raise EnvError(f"chromedriver {driver!r} could not be started: {error}.") from error

    def _wait_for_port(self, give_up_at: float) -> int:
        while True:
            printed = self._log()
            match = _PORT_LINE.search(printed)
            if match is not None:
                return int(match.group(1))
            if self._process.poll() is not None or time.monotonic() > give_up_at:
                self.close()
                raise EnvError(
                    f"chromedriver did not start: {printed[-300:].strip() or 'it printed nothing'}.",
                    "Run it by hand with --port=0 to see why.",
                )
            time.sleep(0.005)

    def _open_session(self, browser: str, flags: Sequence[str]) -> None:
        profile = f"--user-data-dir={self._home / 'profile'}"
        wait_ms = int(self._deadline_s * 1000)
        capabilities = {
            "browserName": "chrome",
            # An alert() would otherwise block the page for ever.
            "unhandledPromptBehavior": "dismiss",
            "timeouts": {"pageLoad": wait_ms, "script": wait_ms, "implicit": 0},
            "goog:chromeOptions": {"binary": browser, "args": [*flags, profile]},
        }
        reply = self._send("/session", {"capabilities": {"alwaysMatch": capabilities}})
        self._session = reply["sessionId"]
        assert self._http is not None
        self._http.timeout = self._deadline_s
        if self._http.sock is not None:
            self._http.sock.settimeout(self._deadline_s)

    def _send(self, path: str, body: dict[str, Any] | None) -> Any:
        if self._http is None:
            raise EnvError("the browser is not running.", "Reset the environment: it starts a fresh one.")
        try:
            content = None if body is None else json.dumps(body)
            method = "GET" if body is None else "POST"
            self._http.request(method, path, content, {"Content-Type": "application/json"})
            response = self._http.getresponse()
            value = json.loads(response.read())["value"]
        except TimeoutError as error:
            self.close()
            raise EnvError(f"the browser did not answer {path.rsplit('/', 1)[-1]!r} in time.") from error
        except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
            self.close()
            raise EnvError(f"the browser's driver went away ({type(error).__name__}: {error}).") from error
        if response.status != 200:
            self.close()
            reason = str(value.get("message", value)).split("\n", 1)[0]
            raise EnvError(f"the browser refused {path.rsplit('/', 1)[-1]!r}: {reason}")
        return value

    def _log(self) -> str:
        return (self._home / "driver.log").read_text(encoding="utf-8", errors="replace")

    def _kill_group(self) -> None:
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            _log.debug("the browser's process group had gone already")
        try:
            self._process.wait(timeout=10.0)
        except subprocess.TimeoutExpired:
            _log.warning("chromedriver (process %d) does not die", self._process.pid)
        if self._process.stdin is not None:
            self._process.stdin.close()

    def _remove_home(self) -> None:
        """Killed processes may still be writing for a moment, so removal is tried for up to a second."""
        for _ in range(50):
            try:
                shutil.rmtree(self._home)
            except FileNotFoundError:
                return
            except OSError as error:
                failure = error
                time.sleep(0.02)
            else:
                return
        _log.warning("could not remove %s: %s", self._home, failure)
