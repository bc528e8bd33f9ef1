"""Reading a status: only what is said plainly counts."""

from __future__ import annotations

import itertools

import pytest

from distrl.evaluator.judges.vlm.votes import decide, is_lost, read_status


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


@pytest.mark.parametrize("total", [1, 2, 3, 5])
@pytest.mark.parametrize("agreement", [0.5, 0.6, 0.8, 1.0])
def test_a_verdict_is_there_as_soon_as_no_vote_can_change_it(total: int, agreement: float) -> None:
    for votes in itertools.product([True, False], repeat=total):
        final = decide(votes, total, agreement)
        for count in range(total + 1):
            early = decide(votes[:count], total, agreement)
            assert early is None or early is final
            if is_lost(votes[:count], total, agreement):
                assert final is None
    assert decide([True] * total, total, agreement) is True
