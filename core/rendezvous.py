"""Where the learner is: a small record that it publishes and that every other process looks up.

    network.rendezvous   file:PATH   a file in a folder that all processes share
                         env:NAME    an environment variable, for addresses that are known beforehand

A socket connects to a reference such as `file:/shared/learner.json#control`. It looks the address up when it
has none, and again while its connection is lost, so that a learner may move to another host or port.
"""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path
from typing import Protocol

from pydantic import ValidationError

from distrl.core.errors import ConfigError
from distrl.core.files import write_bytes_atomically
from distrl.core.types import Record

HOST = "DISTRL_HOST"
"""The environment variable with the name or address under which other machines reach this one."""

_REFERENCE = re.compile(r"((?:file|env):.+)#(control|broadcast|weights)")


class Meeting(Record):
    """The addresses of a learner, and the public key that it must have; without keys it is empty."""

    control: str
    broadcast: str
    weights: str
    public: str = ""


class Rendezvous(Protocol):
    """A place that holds one `Meeting`."""

    def publish(self, meeting: Meeting) -> None:
        """Replaces the record."""
        ...

    def find(self) -> Meeting | None:
        """The record as it is now; None if there is none yet, or if it cannot be read."""
        ...


class FileRendezvous:
    """The record as JSON in a file, which is replaced as a whole."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def publish(self, meeting: Meeting) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes_atomically(self._path, meeting.model_dump_json().encode(), mode=0o600)

    def find(self) -> Meeting | None:
        try:
            return Meeting.model_validate_json(self._path.read_bytes())
        except (OSError, ValidationError):
            return None


class EnvironmentRendezvous:
    """The record as JSON in an environment variable. The learner has to bind the addresses that it names."""

    def __init__(self, name: str) -> None:
        self._name = name

    def publish(self, meeting: Meeting) -> None:
        """Does nothing: who started this process knows the addresses."""

    def find(self) -> Meeting | None:
        try:
            return Meeting.model_validate_json(os.environ.get(self._name, ""))
        except ValidationError as error:
            raise ConfigError(
                f"The environment variable {self._name} of network.rendezvous holds no record of a learner.",
                'Set it to {"control": "tcp://HOST:PORT", "broadcast": …, "weights": …, "public": …}.',
            ) from error


def open_rendezvous(place: str) -> Rendezvous:
    """The rendezvous that `network.rendezvous` names; ConfigError for an unknown kind."""
    kind, _, name = place.partition(":")
    if kind == "file":
        return FileRendezvous(name)
    if kind == "env":
        return EnvironmentRendezvous(name)
    raise ConfigError(f"network.rendezvous {place!r} is not a rendezvous.", "Use file:PATH or env:NAME.")


def split_reference(endpoint: str) -> tuple[Rendezvous, str] | None:
    """The rendezvous and the name of the address, if `endpoint` is a reference and not an address."""
    found = _REFERENCE.fullmatch(endpoint)
    return (open_rendezvous(found[1]), found[2]) if found is not None else None


def reachable(bound: str) -> str:
    """The address at which other processes reach a bound one: that of all interfaces gets a host's name."""
    head, _, port = bound.rpartition(":")
    if head in ("tcp://0.0.0.0", "tcp://[::]", "tcp://*"):
        return f"tcp://{os.environ.get(HOST) or socket.gethostname()}:{port}"
    return bound
