"""Addresses of HTTP servers: where they listen, and which hosts a request may name."""

from __future__ import annotations

import ipaddress
import re
import socket

from distrl.core.errors import ConfigError, NetworkError


def split_address(option: str, address: str, example: int) -> tuple[str, int]:
    """Host and port of "PORT" or "HOST:PORT", the loopback interface without a host; or ConfigError."""
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or int(port) > 65535 or (":" in address and not host) or ":" in host:
        raise ConfigError(
            f"{option} {address!r} is not a valid address.",
            f"Use PORT or HOST:PORT, e.g. {example}; HOST is a name or an IPv4 address.",
        )
    return host or "127.0.0.1", int(port)


def keyed_address(option: str, address: str, key: str | None) -> tuple[str, int]:
    """As `split_address`; ConfigError also if other machines can reach the address and there is no `key`."""
    host, port = split_address(option, address, 8000)
    if key is None and not is_loopback(host):
        raise ConfigError(
            f"{option} {address} can be reached from other machines.",
            "Set the environment variable DISTRL_API_KEY, or listen on 127.0.0.1.",
        )
    return host, port


def listen(option: str, address: str, key: str | None) -> tuple[str, socket.socket]:
    """The host of a `keyed_address`, and a socket that listens there; NetworkError if it is in use."""
    host, port = keyed_address(option, address, key)
    try:
        return host, socket.create_server((host, port), backlog=64)
    except (OSError, OverflowError) as error:
        raise NetworkError(f"{option} {address} cannot be used: {error}.", "Use another port.") from error


def is_loopback(host: str) -> bool:
    """Whether `host` is this machine's loopback interface."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def names_loopback(host_header: str) -> bool:
    """Whether a Host header names the loopback interface.

    A web page whose name was made to resolve to this machine (DNS rebinding) sends its own name.
    """
    return is_loopback(re.sub(r":\d*$", "", host_header).strip("[]").lower())
