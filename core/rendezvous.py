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
from typing import Annotated

from pydantic import Field, ValidationError

from distrl.core.errors import ConfigError
from distrl.core.files import write_bytes_atomically
from distrl.core.types import Record

HOST = "DISTRL_HOST"
"""The environment variable with the name or address under which other machines reach this one."""

_REFERENCE = re.compile(r"((?:file|env):.+)#(control|broadcast|weights)")


Address = Annotated[str, Field(pattern=r"^(tcp://[^\s/]+:\d{1,5}|(ipc|inproc)://\S+)$")]


class Meeting(Record):
    """The addresses of a learner, and the public key that it must have; without keys it is empty."""

    control: Address
    broadcast: Address
    weights: Address
    public: str = ""


def publish(place: str, meeting: Meeting) -> None:
    """Replaces the record if it is a file; a record in the environment is the user's to set."""
    kind, _, name = place.partition(":")
    if kind == "file":
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        write_bytes_atomically(Path(name), meeting.model_dump_json().encode(), mode=0o600)


def find(place: str) -> Meeting | None:
    """The record as it is now; None if the file does not exist yet or cannot be read.

    Raises:
        ConfigError: The environment variable does not hold a record.
    """
    kind, _, name = place.partition(":")
    try:
        if kind == "file":
            return Meeting.model_validate_json(Path(name).read_bytes())
        return Meeting.model_validate_json(os.environ.get(name, ""))
    except (OSError, ValidationError) as error:
        if kind == "file":
            return None
        raise ConfigError(
            f"The environment variable {name} (network.rendezvous) does not hold a learner's addresses.",
            'Set it to {"control": "tcp://HOST:PORT", "broadcast": …, "weights": …, "public": …}.',
        ) from error


def split_reference(endpoint: str) -> tuple[str, str] | None:
    """The rendezvous and the name of the address, if `endpoint` is a reference and not an address."""
    found = _REFERENCE.fullmatch(endpoint)
    return (found[1], found[2]) if found is not None else None


def reachable(bound: str) -> str:
    """The address at which other processes reach a bound one: that of all interfaces gets a host's name."""
    head, _, port = bound.rpartition(":")
    if head in ("tcp://0.0.0.0", "tcp://[::]", "tcp://*"):
        return f"tcp://{os.environ.get(HOST) or socket.gethostname()}:{port}"
    return bound
