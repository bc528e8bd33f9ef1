"""Trajectories as bytes: what is packed comes back, and nothing else is taken for one."""

import zlib

import pytest

from distrl.core.errors import StoreError
from distrl.core.packing import MAX_TRAJECTORY_BYTES, pack_trajectory, unpack_trajectory
from distrl.core.types import Task, Trajectory

TASK = Task(id="q/t/1", suite="q", template="t", split="train", goal="Do it")
BODY = pack_trajectory(Trajectory(id="t", task=TASK))


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x80", b"\x07", BODY[:-5], BODY[:3], BODY + b"x"])
def test_damaged_bytes_are_no_trajectory(data):
    with pytest.raises(StoreError, match="not a trajectory"):
        unpack_trajectory(data)


@pytest.mark.parametrize(
    "inside", [bytes(MAX_TRAJECTORY_BYTES + 1), b"\xdd\x00\xff\xff\xff" + b"\x90" * (2**24 - 1)]
)
def test_bytes_that_expand_without_bound_are_refused(inside):
    with pytest.raises(StoreError, match="expand to more than"):
        unpack_trajectory(zlib.compress(inside))


@pytest.mark.parametrize("pack", [bytes, zlib.compress])
def test_more_lists_than_a_message_may_have_are_refused(pack):
    with pytest.raises(StoreError, match="more than 524288 lists and maps"):
        unpack_trajectory(pack(b"\xdd\x00\x08\x00\x01" + b"\x90" * (2**19 + 1)))


def test_a_trajectory_that_compresses_too_well_is_kept_as_it_is():
    trajectory = Trajectory(id="t", task=TASK.model_copy(update={"params": {"text": " " * 2**22}}))
    assert unpack_trajectory(pack_trajectory(trajectory)) == trajectory
