"""Reading a status: only what is said plainly counts, and nothing against it."""

from __future__ import annotations

import pytest

from distrl.evaluator.judges.vlm.prompt import read_status


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("A: yes.\nStatus: success", True),
        ("Status: failure.", False),
        ("**Status:** Success", True),
        ("status = FAILURE", False),
        ("- Status: `success`", True),
        ("### **Status: success**", True),
        ("**Final Status:** `success`\n", True),
        ("Overall status: Failure", False),
        ("Status:\n**success**", True),
        ("Status: unsuccessful.", False),
        ("Status: Success ✅", True),
        ("**Status:** Success! ✔️", True),
        ("Status: Failure ❌", False),
        ("Status: success\nand again\nStatus: success", True),
        ("Status: success\n\nThe alarm is set to 7:00 and no dialog is open.", True),
        ("Status: failure\nThe alarm is there but off.", False),
        ("I expect the Wi-Fi status: on. It shows the status: off.\nStatus: failure", False),
        ("The Wi-Fi status is on, as asked.\nStatus: success", True),
        ("The status is a failure, as it is off.\nStatus: failure", False),
        ("<think>Status: success or failure? Status: failure.</think>\nStatus: success", True),
        ('{"status": "success", "reason": "Status: failure was near"}', True),
        ('{"status": "success", "status": "success"}', True),
        ('{"Status": "Failed", "reason": "no success"}', False),
        ('```json\n{"status": "failure"}\n```', False),
        ('Here it is:\n```json\n{"status": "failure"}\n```', False),
    ],
)
def test_a_status_that_is_said_plainly(text: str, status: bool) -> None:
    assert read_status(text) is status


@pytest.mark.parametrize(
    "text",
    [
        "",
        "true",
        "success",
        "[" * 100_000,
        '{"status": true}',
        '{"status": ["success"]}',
        '["success"]',
        "Status: unknown",
        "Status: not successful",
        "Status: partial success",
        "Status: successful failure",
        "Status: success/failure",
        "Status: success, or failure if the clock is wrong",
        "The status: success is what I hope for",
        "<think>Status: success",
        "<think>The alarm is on.</think>I cannot tell.",
        "Status: success\nStatus: failure",
        "Status: success\nStatus: pending",
        "Status: success\nStatus: incomplete, alarm off",
        "Status: success\n**Final Status:** Unsuccessful",
        "Status: success\nFinal status: failed (no alarm)",
        "Status: success\nCorrection: Status: not successful",
        "Status: success\nNo, I was wrong: the final status: failure",
        "Status: success\nNo wait. The status is failed, as the alarm is not set.",
        "Status: success\nThe status should be: partially successful",
        "Status: success\n\nFailure.",
        "Status: success\nVerdict: failure",
        "Status: success\nWait, the alarm is off.",
        "Status: success\nHowever, the alarm is off.",
        "Status: success\nThe task is not yet complete.",
        "Status: failure\nActually Status: succeeded.",
        "Status: failure\nFinal answer: success",
        "Status: failure\nOn second thought it is set.",
        "The final **status**: failure.\nStatus: success",
        "The final status is not success.\nStatus: success",
        "The final status is not a failure.\nStatus: failure",
        "Status \uff1a success\nStatus \uff1a failed",
        "Failure ❌\nStatus: success",
        "Success ✅\nStatus: failure",
        "Status: success ❌",
        "Status: failure ✅",
        '{"status": "success", "status": "failure"}',
        '{"status": "success", "final_status": "failed"}',
        '{"status": "success", "status": null}',
    ],
)
def test_an_answer_without_a_status_or_against_it_says_nothing(text: str) -> None:
    assert read_status(text) is None


@pytest.mark.parametrize("why", [" (the alarm is on)", ". It isn't on.", ", but it is off", "? No.", " - no"])
def test_an_explanation_in_its_line_costs_either_status(why: str) -> None:
    """If it cost only one of them, judged rates would lean to the other."""
    assert read_status(f"Status: success{why}") is None
    assert read_status(f"Status: failure{why}") is None


@pytest.mark.parametrize("part", ["Status: success, ", "status ", "\n", "[", "Status: "])
def test_an_answer_that_goes_in_circles_says_nothing(part: str) -> None:
    assert read_status(part * (50_000 // len(part))) is None
