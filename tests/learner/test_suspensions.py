"""Who gets no leases for a while; a clock by hand."""

from __future__ import annotations

import pytest

from distrl.learner.peers import FIRST_S, LEAST, LONGEST_S, WINDOW, Suspensions


class Rig:
    def __init__(self) -> None:
        self.now = 0.0
        self.suspensions = Suspensions(lambda: self.now)

    def send(self, results: str, name: str = "w") -> None:
        """`r` is a rejected trajectory, `a` an accepted one."""
        for result in results:
            self.suspensions.note(name, "too long" if result == "r" else "")

    def left_s(self, name: str = "w") -> float:
        return self.suspensions.of(name)[0]


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.mark.parametrize("results", ["r" * (LEAST - 1), "ar" * 50, "aaaaar", "r" * 5 + "a" * 15 + "r" * 10])
def test_up_to_half_and_a_few_at_the_start_are_tolerated(rig: Rig, results: str) -> None:
    rig.send(results)
    assert rig.left_s() == 0.0
    assert rig.suspensions.count == 0


@pytest.mark.parametrize("results", ["r" * LEAST, "ararrr", "a" * 100 + "r" * (WINDOW // 2 + 1)])
def test_more_than_half_are_not(rig: Rig, results: str) -> None:
    rig.send(results)
    assert rig.left_s() == FIRST_S
    assert rig.left_s("another") == 0.0
    rig.now += FIRST_S
    assert rig.left_s() == 0.0
    assert rig.suspensions.count == 0


def test_each_further_time_lasts_twice_as_long_up_to_a_bound(rig: Rig) -> None:
    lasted = []
    for _ in range(1100):
        rig.send("r" * LEAST)
        lasted.append(rig.left_s())
        rig.send("r" * 50)  # these were on their way already
        assert rig.left_s() == lasted[-1]
        rig.now += lasted[-1]
    assert lasted[:4] == [60.0, 120.0, 240.0, 480.0]
    assert lasted[-1] == LONGEST_S


def test_who_mends_its_ways_begins_again(rig: Rig) -> None:
    for _ in range(3):
        rig.send("r" * LEAST)
        rig.now += rig.left_s()
    rig.send("a" * WINDOW)
    rig.send("r" * WINDOW)
    assert rig.left_s() == FIRST_S
