"""A simulated phone and a way to run its shell's commands without adb in between."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest

from distrl.simulator.adb import shell
from distrl.simulator.adb.android import AndroidSystem
from distrl.simulator.adb.files import Files

DEADLINE_S = 20.0


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs a test that is a coroutine, with what its fixtures make in the same event loop.

    A fixture's value may be an asynchronous context manager, or a coroutine function of such a one by name.
    """
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None

    async def main() -> None:
        async with AsyncExitStack() as stack:
            values: dict[str, Any] = dict(pyfuncitem.funcargs)
            for name, value in pyfuncitem.funcargs.items():
                if hasattr(value, "__aenter__"):
                    values[name] = await stack.enter_async_context(value)
            for name, value in pyfuncitem.funcargs.items():
                if inspect.iscoroutinefunction(value):
                    values[name] = await value(*(values[key] for key in inspect.signature(value).parameters))
            await pyfuncitem.obj(
                **{name: values[name] for name in inspect.signature(pyfuncitem.obj).parameters}
            )

    asyncio.run(main())
    return True


@dataclass
class MemoryIo:
    """Streams in memory.

    Attributes:
        data: What is left of standard input.
        output, errors: What was written.
    """

    data: bytes = b""
    output: bytearray = field(default_factory=bytearray)
    errors: bytearray = field(default_factory=bytearray)

    async def read(self, size: int) -> bytes:
        found, self.data = self.data[:size], self.data[size:]
        return found

    async def out(self, data: bytes) -> None:
        self.output += data

    async def err(self, data: bytes) -> None:
        self.errors += data


@dataclass(frozen=True)
class Result:
    """What a command left: its output and errors as text and as bytes, and its status."""

    data: bytes
    error_data: bytes
    status: int

    @property
    def out(self) -> str:
        return self.data.decode("utf-8", "replace")

    @property
    def err(self) -> str:
        return self.error_data.decode("utf-8", "replace")


Run = Callable[..., Result]


@pytest.fixture
def system() -> AndroidSystem:
    """A small phone, freshly booted."""
    return AndroidSystem(width=540, height=1200)


@pytest.fixture
def phone(system: AndroidSystem) -> AndroidSystem:
    """The same."""
    return system


@pytest.fixture
def phone_files(system: AndroidSystem) -> Files:
    """The files of a phone, seen by the shell's user."""
    return system.files


@pytest.fixture
def sh(phone: AndroidSystem) -> Run:
    """Runs a command line on the phone: `sh(command, stdin=b"", tty=False)`."""

    def run(command: str, stdin: bytes = b"", tty: bool = False) -> Result:
        io = MemoryIo(stdin)

        async def go() -> int:
            return await asyncio.wait_for(
                shell.run(phone, command, io, interrupts=asyncio.Event() if tty else None), DEADLINE_S
            )

        status = asyncio.run(go())
        return Result(bytes(io.output), bytes(io.errors), status)

    return run
