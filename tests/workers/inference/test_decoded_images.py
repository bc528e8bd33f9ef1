"""Pictures of requests: each is decoded once while its episode runs, several at a time, in order."""

import threading

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")

import torch
from policy_fakes import png
from torch import Tensor

from distrl.core.errors import PolicyError
from distrl.core.policies.images import decode_image
from distrl.workers.inference.decoded_images import DecodedImages

WAIT_S = 30.0


def test_episodes_that_show_all_their_screenshots_again_decode_each_once() -> None:
    decoded: list[bytes] = []

    def decode(data: bytes) -> Tensor:
        decoded.append(data)
        return torch.empty(3, 1184, 544, dtype=torch.uint8)

    pictures = DecodedImages(decode)
    for step in range(1, 16):
        for slot in range(32):
            shown = [f"{slot}/{number}" for number in range(step)]
            pictures.of(shown, {name: name.encode() for name in shown})
    assert sorted(decoded) == sorted(f"{slot}/{n}".encode() for slot in range(32) for n in range(15))


def test_missing_pictures_are_decoded_several_at_a_time_and_stay_in_order() -> None:
    is_second_done = threading.Event()

    def decode(data: bytes) -> Tensor:
        if data == b"1":
            assert is_second_done.wait(WAIT_S), "nothing else is decoded meanwhile"
        elif data == b"2":
            is_second_done.set()
        return torch.tensor(int(data))

    shown = ["1", "2", "1", "3"]
    found = DecodedImages(decode).of(shown, {name: name.encode() for name in shown})
    assert [int(picture) for picture in found] == [1, 2, 1, 3]


def test_the_first_unreadable_picture_is_told_and_the_next_request_goes_on() -> None:
    def decode(data: bytes) -> Tensor:
        if len(data) < 10:
            raise PolicyError(f"{data.decode()} is no picture.")
        return decode_image(data, (4, 4))

    images = {"good": png(0), "a": b"first", "b": b"second"}
    pictures = DecodedImages(decode)
    with pytest.raises(PolicyError, match="first"):
        pictures.of(["good", "a", "b"], images)
    (found,) = pictures.of(["good"], images)
    assert torch.equal(found, decode_image(png(0), (4, 4)))
