"""Every command line that adb clients send gives what they look for; anything else fails loudly."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

CASES = [
    pytest.param(case, id=f"{client}: {case['run']}"[:80])
    for client, cases in yaml.safe_load(
        (Path(__file__).parent / "client_commands.yaml").read_text(encoding="utf-8")
    ).items()
    for case in cases
]


@pytest.mark.parametrize("case", CASES)
def test_clients_get_what_they_look_for(sh: Any, case: dict[str, Any]) -> None:
    for line in case.get("first", ()):
        assert sh(line).status == 0
    result = sh(case["run"], stdin=case.get("stdin", "").encode())
    assert result.status == case.get("status", 0), result
    if "out" in case:
        assert result.out == case["out"]
    else:
        assert re.search(case["match"], result.out, re.M), result.out
    if "err" in case:
        assert re.search(case["err"], result.err, re.M), result.err
    else:
        assert result.err == ""
