"""Who is served first, and who is sent to others."""

from distrl.core.chunk_server import PLACE_S, Gate
from distrl.core.messages import ChunkRequest

A, B, C = b"a", b"b", b"c"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def ask(digest: str = "d", others_failed: bool = False) -> ChunkRequest:
    return ChunkRequest(digest=digest, offset=0, length=1, others_failed=others_failed)


def test_without_a_limit_everybody_is_served() -> None:
    gate = Gate()
    gate.held = "d"
    assert all(gate.admits(bytes([number]), ask()) for number in range(100))


def test_places_are_kept_while_they_are_used() -> None:
    clock = Clock()
    gate = Gate(2, clock=clock)
    assert [gate.admits(peer, ask()) for peer in (A, B, C)] == [True, True, False]
    clock.now = PLACE_S
    assert gate.admits(A, ask())
    clock.now += 1.0
    assert [gate.admits(peer, ask()) for peer in (C, A, B)] == [True, True, False]


def test_who_is_done_makes_room_at_once_but_not_at_the_learner() -> None:
    for frees_at_once in (True, False):
        gate = Gate(1, frees_at_once, Clock())
        assert gate.admits(A, ask())
        gate.done(A)
        assert gate.admits(B, ask()) is frees_at_once


def test_what_others_have_is_given_only_to_who_tried_them() -> None:
    gate = Gate(2, clock=Clock())
    assert gate.admits(A, ask())
    gate.held = "d"
    assert gate.admits(A, ask())  # goes on
    assert not gate.admits(B, ask())
    assert gate.admits(B, ask(others_failed=True))
    assert not gate.admits(C, ask(others_failed=True))


def test_each_version_has_its_own_places() -> None:
    gate = Gate(1, clock=Clock())
    assert gate.admits(A, ask("old"))
    assert gate.admits(B, ask("new"))
    assert not gate.admits(A, ask("new"))
