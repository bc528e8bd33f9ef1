"""A phone whose adbd listens, and a connection to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

import pytest
from adb_peer import AdbPeer
from adb_phone import AdbPhone, adb_phone


@pytest.fixture
def phone() -> AbstractAsyncContextManager[AdbPhone]:
    """A phone."""
    return adb_phone()


@pytest.fixture
def peer(phone: object) -> Callable[[AdbPhone], Awaitable[AdbPeer]]:
    """A connection after the handshake."""

    async def online(phone: AdbPhone) -> AdbPeer:
        return await AdbPeer.online(phone.port)

    return online
