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
        ('{"status": "success", "reason": "Status: failure was near"}', True),
        ('```json\n{"status": "failure"}\n```', False),
        ("Status: success\nand again\nStatus: success", True),
        ("Status: success\nStatus: failure", None),
        ("Status: success\nNo, I was wrong: the final status: failure", None),
        ("The final **status**: failure.\nStatus: success", None),
        ('{"status": "success", "status": "failure"}', None),
        ('{"status": "success", "status": "success"}', True),
        ("[" * 100_000, None),
        ("The status: success is what I hope for", None),
        ("Status: successful failure", None),
        ("Status: unknown", None),
        ("success", None),
        ('{"status": true}', None),
        ('{"status": ["success"]}', None),
        ('["success"]', None),
        ("true", None),
        ("", None),
    ],
)
def test_read_status(text: str, status: bool | None) -> None:
    assert read_status(text) is status


@pytest.mark.parametrize(
    "text",
    [
        "Status: success\nNo wait. Status: failed, as the alarm is not set.",
        "Status: success\nNo wait. The status is failed, as the alarm is not set.",
        "Status: success\nFinal status: failed (no alarm)",
        "Status: success\nCorrection: Status: not successful",
        "Status: success\nStatus: incomplete, alarm off",
        "Status: success\n**Final Status:** Unsuccessful",
        "Status: success\nStatus: pending",
        "Status: success\nThe status should be: partially successful",
        "Status: success\n\nFailure.",
        "Status: success\nVerdict: failure",
        "Status: success\nWait, the alarm is off.",
        "Status: success\nHowever, the alarm is off.",
        "Status: success\nThe task is not yet complete.",
        "Status: failure\nActually Status: succeeded.",
        "Status: failure\nFinal answer: success",
        "Status: failure\nOn second thought it is set.",
        "Status: success, but the alarm is off",
        "Status: success (partially)",
        "Status: success? No.",
        "Status: success - the alarm isn't set",
        "Status: success/failure",
        "Status: success, or failure if the clock is wrong",
        "Status: failure; no, success",
        "Status: not successful",
        "Status: partial success",
        "Status \uff1a success\nStatus \uff1a failed",
        '{"status": "success", "final_status": "failed"}',
        '{"status": "success", "Status": "failure"}',
        '{"status": "success", "status": null}',
        "<think>Status: success",
        "<think>The alarm is on.</think>I cannot tell.",
    ],
)
def test_an_answer_that_contradicts_itself_says_nothing(text: str) -> None:
    assert read_status(text) is None


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("### **Status: success**", True),
        ("**Final Status:** `success`\n", True),
        ("Overall status: Failure", False),
        ("Status:\n**success**", True),
        ("Status: success (the alarm is set to 7:00)", True),
        ("Status: success. The alarm is set to 7:00.", True),
        ("Status: success\n\nThe alarm is set to 7:00 and no dialog is open.", True),
        ("Status: failed", False),
        ("Status: unsuccessful.", False),
        ("Status: failure \u2014 the alarm is not set, but the clock is open", False),
        ("Status: failure\nThe alarm is there but off.", False),
        ("I expect the Wi-Fi status: on. It shows the status: off.\nStatus: failure", False),
        ("The Wi-Fi status is on, as asked.\nStatus: success", True),
        ("The status is a failure, as it is off.\nStatus: failure", False),
        ("<think>Status: success or failure? Status: failure.</think>\nStatus: success", True),
        ('Here it is:\n```json\n{"status": "failure"}\n```', False),
        ('{"Status": "Failed", "reason": "no success"}', False),
    ],
)
def test_what_models_write_around_a_status(text: str, status: bool) -> None:
    assert read_status(text) is status


@pytest.mark.parametrize(
    "why",
    [
        " (the list shows no unread mail)",
        ". Wi-Fi is now off, not on.",
        " - only the 7:00 alarm is on",
        ", stopped without errors",
        ": the message was sent from the front page of the account.",
        ". The alarm isn't there any more; no dialog is open.",
        " — the contact has no number and does not show a picture",
    ],
)
def test_an_explanation_costs_neither_status_alone(why: str) -> None:
    """Nor a reward: if it did only one of them, judged rates would lean to the other."""
    assert read_status(f"Status: success{why}") is True
    assert read_status(f"Status: failure{why}") is False


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("Status: success. The alarm is on and nothing is missing.", True),
        ("Status: success, nothing went wrong", True),
        ("Status: success, without any failure", True),
        ("Status: success, not a failure", True),
        ("Status: Success ✅", True),
        ("**Status:** Success! ✔️", True),
        ("Status: success ✅ (the alarm is on)", True),
        ("Status: success (the alarm is on) ✅", True),
        ("Status: failure, without any success", False),
        ("Status: failure, not successful", False),
        ("Status: Failure ❌", False),
        ("Status: failed ✗ - the alarm is off", False),
    ],
)
def test_words_and_marks_that_agree_with_the_status(text: str, status: bool) -> None:
    assert read_status(text) is status


@pytest.mark.parametrize(
    "text",
    [
        "Status: success, partly",
        "Status: success. However, the alarm is off.",
        "Status: success, although the alarm is off",
        "Status: success, except for the second alarm",
        "Status: success. The task is not done.",
        "Status: success. The task has not yet been completed.",
        "Status: success. The task was not successful.",
        "Status: success. The agent tried without success.",
        "Status: success (the alarm was not saved)",
        "Status: success (the message hasn’t been sent)",
        "Status: success (not all of them)",
        "Status: success (only one of the two)",
        "Status: success. I cannot see the alarm.",
        "Status: success. The contact is missing.",
        "Status: success. The title is wrong.",
        "Status: success. One step failed.",
        "Status: success. No, the alarm is off.",
        "Status: success - no",
        "Status: success, not yet",
        "Status: success, nearly",
        "Status: success ❌",
        "Status: success (the alarm is off) ❌",
        "Status: failure ✅",
        "Status: failure. It did not fail.",
        "Status: failure. It was successful.",
        "Status: failure, maybe",
        "Failure ❌\nStatus: success",
        "Success ✅\nStatus: failure",
        "The final status is not success.\nStatus: success",
        "The final status is not a failure.\nStatus: failure",
    ],
)
def test_an_explanation_that_takes_the_status_back(text: str) -> None:
    assert read_status(text) is None


@pytest.mark.parametrize("part", ["Status: success, ", "status ", "\n", "[", "Status: "])
def test_an_answer_that_goes_in_circles_says_nothing(part: str) -> None:
    assert read_status(part * (50_000 // len(part))) is None
