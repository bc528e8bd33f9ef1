"""Log lines."""

import logging
import subprocess
import sys

import pytest

from distrl.core import logs


@pytest.fixture(autouse=True)
def _restore_logging():
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    for handler in [handler for handler in root.handlers if handler not in handlers]:
        root.removeHandler(handler)
        handler.close()
    root.setLevel(level)


def test_lines_carry_time_level_and_role(tmp_path, capsys):
    logs.setup(tmp_path / "logs" / "x.log", "info", "worker-3")
    logging.getLogger("distrl.test").info("hello %s", "there")
    logging.getLogger("distrl.test").debug("not shown")
    line = (tmp_path / "logs" / "x.log").read_text()
    assert line == capsys.readouterr().err
    assert line.endswith("INFO    worker-3 distrl.test: hello there\n")
    assert line[:2] == "20"


@pytest.mark.needs("huggingface_hub")
def test_the_hub_s_library_logs_no_retries(monkeypatch):
    monkeypatch.delenv("HF_HUB_VERBOSITY", raising=False)
    code = (
        "import logging\nfrom distrl.core import logs\nlogs.setup()\nimport huggingface_hub.utils\n"
        "logging.getLogger('huggingface_hub.utils._http').warning('Retrying in 8s')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Retrying" not in done.stderr


HOSTILE = "\x1b]0;owned\x07\x1b[2J a\r\n2026 ERROR b \x9b31m \u202egnp.exe\u2066"


def test_words_of_others_neither_control_a_terminal_nor_forge_lines(capsys):
    logs.setup(role="learner")
    logging.getLogger("distrl.test").warning("refused %s", HOSTILE)
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        logging.getLogger("distrl.test").exception("failed")
    said = capsys.readouterr().err
    assert all(char.isprintable() or char == "\n" for char in said)
    first, second, *trace = said.splitlines()
    assert "refused \\x1b]0;owned\\x07\\x1b[2J a\\r\\n2026 ERROR b" in first
    assert second.endswith("failed")
    assert trace[0].startswith("Traceback")


def test_half_a_surrogate_pair_can_be_written():
    assert logs.printable("a\ud800").encode() == b"a\\ud800"


def test_other_scripts_are_left_as_they_are():
    text = "设置 → \U0001f469\u200d\U0001f52c\tשלום\n"
    assert logs.printable(text) == text
