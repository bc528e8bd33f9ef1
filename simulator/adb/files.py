"""The simulated phone's file tree, in memory: POSIX paths, modes, owners, links and errors.

Paths are absolute and use "/"; "." and ".." and symbolic links are followed as the kernel follows them. Every
failure is an `OSError` with the errno that the kernel would give. Nothing here touches the host's disk.
"""

from __future__ import annotations

import errno
import os
import stat as modes
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

ROOT, SYSTEM, SHELL = 0, 1000, 2000
"""User ids: the superuser, the system server, and the user of adb's shells."""


class _Kind:
    """What the mode of a file says."""

    mode: int

    @property
    def is_dir(self) -> bool:
        """Whether it is a directory."""
        return modes.S_ISDIR(self.mode)

    @property
    def is_link(self) -> bool:
        """Whether it is a symbolic link."""
        return modes.S_ISLNK(self.mode)


@dataclass(frozen=True)
class Stat(_Kind):
    """What stat(2) says; a link is as large as its target is long."""

    mode: int
    size: int
    mtime: int
    ino: int
    nlink: int = 1
    uid: int = ROOT
    gid: int = ROOT


@dataclass
class Node(_Kind):
    """One file, directory, link or device.

    Attributes:
        data: A regular file's bytes; a bytearray once something was appended.
        source: Makes the contents at each read (files under /proc).
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

    def stat(self) -> Stat:
        """What stat(2) says about it."""
        size = len(self.target.encode()) if self.is_link else 4096 if self.is_dir else len(self.data)
        subdirectories = sum(child.is_dir for child in self.children.values())
        nlink = 2 + subdirectories if self.is_dir else 1
        return Stat(self.mode, size, self.mtime, self.ino, nlink, self.uid, self.gid)


Entries = list[tuple[str, Stat]]
Entry = tuple[str, int, int, int, int, "str | bytes"]
MAX_BYTES = 1 << 30
"""Most bytes that the files of one phone take together; beyond it writing fails with ENOSPC."""
MAX_LINKS = 16
"""Most symbolic links followed in one path."""
MAX_NAME = 255
"""Most bytes in one name."""
MAX_PATH = 4095
"""Most bytes in the path of a file, without links."""


def fail(number: int, path: str) -> OSError:
    """The OSError of `number`, of the right subclass, with the kernel's text."""
    return OSError(number, os.strerror(number), path)


class Files:
    """A file tree. Modes and owners are kept and shown, and forbid nothing.

    Attributes:
        uid: The user of shells, who owns what they make: `SHELL`, or `ROOT` after `adb root`.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._inodes = 1
        self._bytes = 0
        self.uid = ROOT
        self.root = Node(modes.S_IFDIR | 0o755, clock(), 1)
        self.readonly: tuple[str, ...] = ()
        """Top-level directories where nothing may be changed, e.g. "system"; "" is the root itself."""

    def _new(self, mode: int) -> Node:
        self._inodes += 1
        return Node(mode, self._clock(), self._inodes, self.uid, self.uid)

    def _walk(self, path: str, follow: bool) -> tuple[Node, str, Node | None, str]:
        """The parent directory, the last name, the node of that name (None if absent), and its real path."""
        if not path:
            raise fail(errno.ENOENT, path)
        names = [name for name in path.split("/") if name and name != "."]
        must_exist = path.endswith("/.")
        must_be_dir = path.endswith(("/", "/."))
        trail: list[tuple[str, Node]] = [("", self.root)]
        links = 0
        while names:
            name = names.pop(0)
            here = trail[-1][1]
            if not here.is_dir:
                raise fail(errno.ENOTDIR, path)
            if name == "..":
                del trail[max(1, len(trail) - 1) :]
                continue
            if len(os.fsencode(name)) > MAX_NAME:
                raise fail(errno.ENAMETOOLONG, path)
            child = here.children.get(name)
            last = not names
            if child is not None and child.is_link and (follow or not last or must_be_dir):
                links += 1
                if links > MAX_LINKS:
                    raise fail(errno.ELOOP, path)
                if last:  # A target that ends so leads to a directory, as a path does.
                    must_exist |= child.target.endswith("/.")
                    must_be_dir |= child.target.endswith(("/", "/."))
                names = [part for part in child.target.split("/") if part and part != "."] + names
                if child.target.startswith("/"):
                    trail = trail[:1]
                continue
            if child is None:
                if last and not must_exist:
                    return here, name, None, _join(trail, name)
                raise fail(errno.ENOENT, path)
            trail.append((name, child))
        name, node = trail[-1]
        if must_be_dir and not node.is_dir:
            raise fail(errno.ENOTDIR, path)
        parent = trail[-2][1] if len(trail) > 1 else self.root
        return parent, name, node, _join(trail[:-1], name)

    def _get(self, path: str, follow: bool = True) -> Node:
        node = self._walk(path, follow)[2]
        if node is None:
            raise fail(errno.ENOENT, path)
        return node

    def _change(self, real: str, path: str) -> None:
        top = real.split("/")[1] if real.count("/") > 1 else ""
        if top in self.readonly:
            raise fail(errno.EROFS, path)
        if len(os.fsencode(real)) > MAX_PATH:
            raise fail(errno.ENAMETOOLONG, path)

    def exists(self, path: str) -> bool:
        """Whether there is something at `path`, links followed."""
        try:
            return self._walk(path, True)[2] is not None
        except OSError:
            return False

    def stat(self, path: str) -> Stat:
        """stat(2): links are followed."""
        return self._get(path).stat()

    def lstat(self, path: str) -> Stat:
        """lstat(2): a link in the last place is not followed."""
        return self._get(path, follow=False).stat()

    def readlink(self, path: str) -> str:
        """A link's target."""
        node = self._get(path, follow=False)
        if not node.is_link:
            raise fail(errno.EINVAL, path)
        return node.target

    def list(self, path: str) -> Entries:
        """The entries of a directory (without "." and ".."), by name, links not followed."""
        node = self._get(path)
        if not node.is_dir:
            raise fail(errno.ENOTDIR, path)
        return [(name, child.stat()) for name, child in sorted(node.children.items())]

    def read(self, path: str) -> bytes:
        """A file's bytes."""
        node = self._get(path)
        if node.is_dir:
            raise fail(errno.EISDIR, path)
        return bytes(node.data) if node.source is None else node.source()

    def write(
        self, path: str, data: bytes, mode: int = 0o644, mtime: int | None = None, append: bool = False
    ) -> None:
        """Creates or replaces a file (or appends to it); an existing file keeps its mode.

        Args:
            mtime: Seconds since 1970; now when None.
        """
        parent, name, node, real = self._walk(path, True)
        if node is None and path.endswith("/"):
            raise fail(errno.EISDIR, path)
        if node is None:
            self._change(real, path)
            node = self._new(modes.S_IFREG | (mode & 0o7777))
            parent.children[name] = node
        elif node.is_dir:
            raise fail(errno.EISDIR, path)
        elif modes.S_ISCHR(node.mode):
            return
        elif real.split("/")[1] in self.readonly:
            raise fail(errno.EROFS, path)
        added = len(data) if append else len(data) - len(node.data)
        if self._bytes + added > MAX_BYTES:
            raise fail(errno.ENOSPC, path)
        self._bytes += added
        if not append:
            node.data = bytes(data)
        elif data:
            if not isinstance(node.data, bytearray):
                node.data = bytearray(node.data)
            node.data += data
        node.mtime = self._clock() if mtime is None else mtime

    def mkdir(self, path: str, mode: int = 0o755, parents: bool = False) -> None:
        """Makes a directory; with `parents`, also those above it, and an existing one is accepted."""
        if parents:
            made = ""
            for name in [name for name in path.split("/") if name]:
                made = f"{made}/{name}"
                if not self.exists(made):
                    self.mkdir(made, mode)
            if not self.stat(path).is_dir:
                raise fail(errno.EEXIST, path)
            return
        parent, name, node, real = self._walk(path.rstrip("/") or "/", False)
        if node is not None:
            raise fail(errno.EEXIST, path)
        self._change(real, path)
        parent.children[name] = self._new(modes.S_IFDIR | (mode & 0o7777))
        parent.mtime = self._clock()

    def symlink(self, target: str, path: str) -> None:
        """Makes a link at `path`."""
        parent, name, node, real = self._walk(path, False)
        if node is not None:
            raise fail(errno.EEXIST, path)
        self._change(real, path)
        link = self._new(modes.S_IFLNK | 0o777)
        link.target = target
        parent.children[name] = link

    def remove(self, path: str) -> None:
        """Removes a file, a link or an empty directory."""
        parent, name, node, real = self._walk(path, False)
        if node is None:
            raise fail(errno.ENOENT, path)
        if node is self.root:
            raise fail(errno.EBUSY, path)
        self._change(real, path)
        if node.children:
            raise fail(errno.ENOTEMPTY, path)
        del parent.children[name]
        self._bytes -= len(node.data)
        parent.mtime = self._clock()

    def remove_tree(self, path: str) -> None:
        """Removes a file or a directory with everything in it."""
        below = list(_tree(self._get(path, follow=False), path.rstrip("/")))
        for each, _ in reversed(below):
            self.remove(each)
        self.remove(path)

    def assign(self, path: str, mode: int, uid: int, gid: int) -> None:
        """Sets permission bits, owner and group."""
        node = self._get(path)
        node.mode, node.uid, node.gid = modes.S_IFMT(node.mode) | (mode & 0o7777), uid, gid

    def generated(self, path: str, source: Callable[[], bytes], mode: int = modes.S_IFREG | 0o444) -> None:
        """Makes a file, or a character device that swallows what is written; `source` makes its bytes."""
        parent, name, _, _ = self._walk(path, True)
        node = self._new(mode)
        node.source = source
        parent.children[name] = node

    def tree(self, path: str = "/") -> Iterator[tuple[str, Node]]:
        """All nodes below `path` with their paths, parents first."""
        return _tree(self._get(path), path.rstrip("/"))

    def used(self) -> int:
        """Bytes that all files take."""
        return self._bytes

    def replace(self, tops: tuple[str, ...], entries: Iterable[Entry]) -> None:
        """Empties the directories `tops` and fills them with `entries`.

        Args:
            tops: Directories that stay as they are themselves.
            entries: (path, mode, mtime, uid, gid, contents), parents first; a link has its target (str),
                a file its bytes as contents.
        """
        for top in tops:
            for _, node in list(_tree(self._get(top), top)):
                self._bytes -= len(node.data)
            self._get(top).children.clear()
        for path, mode, mtime, uid, gid, contents in entries:
            folder, _, name = path.rpartition("/")
            node = self._new(mode)
            node.mtime, node.uid, node.gid = mtime, uid, gid
            if isinstance(contents, str):
                node.target = contents
            else:
                node.data = contents
                self._bytes += len(contents)
            self._get(folder).children[name] = node


def _join(trail: list[tuple[str, Node]], name: str) -> str:
    parts = [part for part, _ in trail[1:]]
    return "/" + "/".join([*parts, name] if name else parts)


def _tree(node: Node, path: str) -> Iterator[tuple[str, Node]]:
    """All nodes below `node`, parents first."""
    waiting = [(path, node)]
    while waiting:
        path, node = waiting.pop()
        children = [(f"{path}/{name}", child) for name, child in sorted(node.children.items())]
        yield from children
        waiting += reversed(children)
