"""One entry of the simulated phone's file tree, and what stat(2) says about it."""

from __future__ import annotations

import stat as modes
from collections.abc import Callable
from dataclasses import dataclass, field

ROOT, SYSTEM, SHELL = 0, 1000, 2000
"""User ids: the superuser, the system server, and who adb is."""


@dataclass(frozen=True)
class Stat:
    """What stat(2) says.

    Attributes:
        mode: Type and permission bits.
        size: Bytes; of a link, the length of its target.
        mtime: Seconds since 1970.
        ino, nlink, uid, gid: As in stat(2).
    """

    mode: int
    size: int
    mtime: int
    ino: int
    nlink: int = 1
    uid: int = ROOT
    gid: int = ROOT

    @property
    def is_dir(self) -> bool:
        """Whether it is a directory."""
        return modes.S_ISDIR(self.mode)

    @property
    def is_link(self) -> bool:
        """Whether it is a symbolic link."""
        return modes.S_ISLNK(self.mode)

    @property
    def is_file(self) -> bool:
        """Whether it is a regular file."""
        return modes.S_ISREG(self.mode)


@dataclass
class Node:
    """One file, directory, link or device.

    Attributes:
        mode, mtime, ino, uid, gid: As in `Stat`.
        data: A regular file's bytes; a bytearray once something was appended.
        target: A link's target.
        children: A directory's entries.
        source: Makes the contents anew at each read (files under /proc).
    """

    mode: int
    mtime: int
    ino: int
    uid: int = ROOT
    gid: int = ROOT
    data: bytes | bytearray = b""
    target: str = ""
    children: dict[str, Node] = field(default_factory=dict)
    source: Callable[[], bytes] | None = None

    @property
    def is_dir(self) -> bool:
        """Whether it is a directory."""
        return modes.S_ISDIR(self.mode)

    @property
    def is_link(self) -> bool:
        """Whether it is a symbolic link."""
        return modes.S_ISLNK(self.mode)

    def stat(self) -> Stat:
        """What stat(2) says about it."""
        size = len(self.target.encode()) if self.is_link else 4096 if self.is_dir else len(self.data)
        subdirectories = sum(child.is_dir for child in self.children.values())
        nlink = 2 + subdirectories if self.is_dir else 1
        return Stat(self.mode, size, self.mtime, self.ino, nlink, self.uid, self.gid)
