"""Signals and children, with real processes."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import until

from distrl.core.process import Child, stop_all

WAIT_S = 30.0
CHILD = """
import sys
from distrl.core.process import install_signals
stop = install_signals(grace_s={grace})
print("ready", flush=True)
stop.wait()
print("stopping", flush=True)
{then}
"""


def start(tmp_path: Path, code: str, name: str = "child") -> Child:
    return Child(name, [sys.executable, "-c", code], tmp_path / f"{name}.log")


def wait_for_line(child: Child, line: str) -> None:
    until(lambda: line in child.log_file.read_text().split(), line)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_in_order(tmp_path, number):
    child = start(tmp_path, CHILD.format(grace=None, then="sys.exit(7)"))
    wait_for_line(child, "ready")
    os.kill(child.pid, number)
    assert child.wait(WAIT_S) == 7


def test_a_second_signal_stops_at_once(tmp_path):
    child = start(tmp_path, CHILD.format(grace=None, then="import time; time.sleep(1000)"))
    wait_for_line(child, "ready")
    os.kill(child.pid, signal.SIGTERM)
    wait_for_line(child, "stopping")
    os.kill(child.pid, signal.SIGTERM)
    assert child.wait(WAIT_S) == 130


def test_the_grace_period_ends_a_process_that_hangs(tmp_path):
    child = start(tmp_path, CHILD.format(grace=0.2, then="import time; time.sleep(1000)"))
    wait_for_line(child, "ready")
    child.request_stop()
    assert child.wait(WAIT_S) == 130


def test_a_callback_that_fails_keeps_no_process_alive(tmp_path):
    code = CHILD.format(grace=0.2, then="import time; time.sleep(1000)")
    child = start(tmp_path, code.replace("stop.wait()", "stop.on_set(lambda: 1 / 0); stop.wait()"))
    wait_for_line(child, "ready")
    child.request_stop()
    assert child.wait(WAIT_S) == 130


def test_termination_ends_with_a_kill(tmp_path):
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        "print('ready', flush=True); time.sleep(1000)"
    )
    deaf, polite = start(tmp_path, code, "deaf"), start(tmp_path, CHILD.format(grace=None, then=""), "polite")
    wait_for_line(deaf, "ready")
    wait_for_line(polite, "ready")
    stop_all([(polite, WAIT_S), (deaf, 1.0)])
    assert (deaf.poll(), polite.poll()) == (-signal.SIGKILL, 0)


def test_grandchildren_do_not_stay(tmp_path):
    code = (
        "import subprocess, sys; "
        "print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)']).pid, flush=True)"
    )
    child = start(tmp_path, code)
    assert child.wait(WAIT_S) == 0
    grandchild = int(child.log_file.read_text())
    until(lambda: not is_running(grandchild))


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: PR_SET_PDEATHSIG")
def test_children_do_not_outlive_a_killed_parent(tmp_path):
    parent_code = f"""
import sys, time
from pathlib import Path
from distrl.core.process import Child
command = [sys.executable, "-c", {CHILD.format(grace=None, then="")!r}]
child = Child("c", command, Path({str(tmp_path)!r}) / "c.log")
print(child.pid, flush=True)
time.sleep(1000)
"""
    parent = subprocess.Popen([sys.executable, "-c", parent_code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    log = tmp_path / "c.log"
    until(lambda: log.exists() and "ready" in log.read_text())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    until(lambda: not is_running(pid))
    assert "stopping" in log.read_text()
