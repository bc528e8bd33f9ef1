"""Keys of the wire: CURVE key pairs in files, and the list of clients that a server lets in.

A keys directory holds

    server.key          secret of every binding process (learner, inference servers)      mode 0600
    server.pub          its public half; every connecting process checks it
    NAME.key            secret of the client NAME, by default `client`                      mode 0600
    allowed/NAME.pub    a client that binding processes admit: its public key, roles and slots, as JSON

and each machine gets only the files that its roles need (docs/architecture.md). The allow-list is read at
each handshake. The processes of a client are called NAME or NAME/SOMETHING, so that no client can use the
name of another.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import Field, ValidationError

from distrl.core.errors import SecurityError
from distrl.core.types import Record

SERVER = "server"
ANY_CLIENT = "client"
Role = Literal["worker", "inference", "evaluate", "observer", "owner"]
ROLES: tuple[Role, ...] = get_args(Role)  # what each may send: distrl.core.service
_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"
_KEY = r"[0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}"  # Z85


@dataclass(frozen=True)
class KeyPair:
    """A CURVE key pair, both halves as 40 characters of Z85."""

    public: str
    secret: str = field(repr=False)


class Client(Record):
    """An entry of the allow-list.

    Attributes:
        name: The client's; its processes are called this or `name/…`.
        slots: The most leases that its workers may hold together; None for no limit.
        public: Its public key; empty in a `Client` of a message.
    """

    name: Annotated[str, Field(pattern=f"^{_NAME}$")]
    roles: Annotated[tuple[Role, ...], Field(min_length=1)]
    slots: Annotated[int, Field(ge=0)] | None = None
    public: Annotated[str, Field(pattern=f"^({_KEY})?$")] = ""

    def owns(self, process: str) -> bool:
        """Whether a process of this client may be called `process`."""
        return process == self.name or process.startswith(f"{self.name}/")

    @property
    def user_id(self) -> str:
        """What ZeroMQ attaches to each message of this client; `of_user_id` reads it."""
        return self.model_dump_json(exclude={"public"})

    @staticmethod
    @lru_cache(maxsize=1024)
    def of_user_id(user_id: str) -> Client:
        """The client of a message."""
        return Client.model_validate_json(user_id)


@dataclass(frozen=True)
class Security:
    """What one process needs for CURVE.

    Attributes:
        name: The client whose key `own` is.
        own: The client pair of this process; None on a machine that only binds.
        server: The server pair; None on a machine that only connects.
    """

    keys_dir: Path
    name: str
    own: KeyPair | None
    server: KeyPair | None
    server_public: str

    def find_client(self, public: str) -> Client | None:
        """The client with this public key, from the allow-list as it is now; None if it may not connect.

        An entry is read again when its file changes.

        Raises:
            SecurityError: It is not listed, but an entry that cannot be read may be its own.
        """
        _check_directory(self.keys_dir)
        broken: SecurityError | None = None
        for entry in (self.keys_dir / "allowed").glob("*.pub"):
            try:
                found = entry.stat()
                client = _entry(entry, found.st_ino, found.st_mtime_ns, found.st_size)
            except FileNotFoundError:
                continue
            except SecurityError as error:
                broken = error
                continue
            if client.public == public:
                return client
        if broken is not None:
            raise broken
        return None

    def client_pair(self) -> KeyPair:
        """The pair that authenticates connecting sockets; SecurityError if this machine has no client key."""
        if self.own is None:
            raise SecurityError(
                f"No client key in {self.keys_dir}.",
                "Make one with `distrl keys add` where the server key is and copy it here.",
            )
        return self.own

    def server_pair(self) -> KeyPair:
        """The pair that authenticates binding sockets; SecurityError if this machine has no server key."""
        if self.server is None:
            raise SecurityError(
                f"Binding with security needs {self.keys_dir / 'server.key'}, which is missing.",
                "Copy the server key of the run here, or make new keys with `distrl keys create`.",
            )
        return self.server


def load_security(keys_dir: Path | None, name: str = ANY_CLIENT) -> Security | None:
    """Reads the keys of one process.

    Args:
        keys_dir: The keys directory; None means no CURVE, which only loopback and ipc endpoints allow.
        name: The client key to use is `NAME.key`, of which only `client.key` may be missing. A process
            that only binds passes `SERVER`, and gets `client.key` if it is there.

    Raises:
        SecurityError: Keys are missing, broken, or readable by others.
    """
    if keys_dir is None:
        return None
    _check_directory(keys_dir)
    name = ANY_CLIENT if name == SERVER else _checked(name)
    own = _load_optional_pair(keys_dir / f"{name}.key")
    if own is None and name != ANY_CLIENT:
        raise SecurityError(
            f"{keys_dir / name}.key is missing.",
            f"Copy {name}.key there from the machine that made the keys, or correct network.key_name.",
        )
    server = _load_optional_pair(keys_dir / f"{SERVER}.key")
    if own is None and server is None:
        raise SecurityError(
            f"{keys_dir} has neither {ANY_CLIENT}.key nor {SERVER}.key.",
            "Make keys with `distrl keys create`, or set network.key_name to the client key that is there.",
        )
    return Security(keys_dir, name, own, server, _read_public(keys_dir))


def list_allowed(keys_dir: Path) -> dict[str, Client]:
    """The allow-list by name; SecurityError if there is no such directory, or an entry in it is broken."""
    _check_directory(keys_dir)
    return {path.stem: _read_client(path) for path in sorted((keys_dir / "allowed").glob("*.pub"))}


def create_keys(keys_dir: Path, server: KeyPair, client: KeyPair) -> None:
    """Writes a keys directory with one client, which has all roles; never overwrites (SecurityError)."""
    if keys_dir.is_file():
        raise SecurityError(f"{keys_dir} is a file, not a keys directory.", "Choose another directory.")
    keys_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    _write_new(keys_dir / f"{SERVER}.key", _format_pair(server), 0o600)
    _write_new(keys_dir / f"{SERVER}.pub", server.public + "\n", 0o644)
    add_client(keys_dir, ANY_CLIENT, client, ROLES)


def add_client(
    keys_dir: Path, name: str, client: KeyPair, roles: Sequence[str] = ("worker",), slots: int | None = None
) -> None:
    """Writes `NAME.key` and lists its public half; SecurityError if the name is reserved or taken."""
    if _checked(name) == SERVER:
        raise SecurityError(f"{SERVER!r} is the name of the server key.", "Choose another name.")
    _read_public(keys_dir)
    (keys_dir / "allowed").mkdir(exist_ok=True)
    entry, key = _client(name, roles, slots, client.public), keys_dir / f"{name}.key"
    _write_new(key, _format_pair(client), 0o600)
    try:
        _write_new(keys_dir / "allowed" / f"{name}.pub", entry.model_dump_json() + "\n", 0o644)
    except SecurityError:
        key.unlink()  # the list has another key of this name
        raise


def change_client(keys_dir: Path, name: str, roles: Sequence[str], slots: int | None = None) -> None:
    """Gives a listed client other roles and slots, from its next handshake on; its key stays."""
    path = _allowed_file(keys_dir, name)
    entry = _client(name, roles, slots, _read_client(path).public)
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    _write_new(new, entry.model_dump_json() + "\n", 0o644)
    new.replace(path)  # whole at any moment: handshakes read it


def remove_client(keys_dir: Path, name: str) -> None:
    """Takes a client off the allow-list, from its next handshake on, and deletes its secret if it is here."""
    _allowed_file(keys_dir, name).unlink()
    (keys_dir / f"{name}.key").unlink(missing_ok=True)


def _client(name: str, roles: Sequence[str], slots: int | None, public: str) -> Client:
    fields = {"name": name, "roles": tuple(roles), "slots": slots, "public": public}
    return Client.model_validate(fields)


def _checked(name: str) -> str:
    if not re.fullmatch(_NAME, name):
        raise SecurityError(
            f"{name!r} cannot name a key.", "Use up to 64 letters, digits, '.', '_' or '-', no '/'."
        )
    return name


def _allowed_file(keys_dir: Path, name: str) -> Path:
    path = keys_dir / "allowed" / f"{_checked(name)}.pub"
    if not path.is_file():
        raise SecurityError(f"{name!r} is not an allowed client of {keys_dir}.", "See `distrl keys list`.")
    return path


def _read_client(path: Path) -> Client:
    try:
        client = Client.model_validate_json(_read(path))
    except ValidationError:
        client = None
    if client is None or client.name != path.stem or not client.public:
        raise SecurityError(
            f"{path} is not a client's entry.", "Remove it and the client's key, and run `distrl keys add`."
        )
    return client


@lru_cache(maxsize=2**16)
def _entry(path: Path, inode: int, changed_ns: int, size: int) -> Client:
    """The entry in a file that has not changed since."""
    return _read_client(path)


def _check_directory(keys_dir: Path) -> None:
    if not keys_dir.is_dir():
        raise SecurityError(
            f"The keys directory {keys_dir} does not exist.", "Make it with `distrl keys create`."
        )


def _format_pair(pair: KeyPair) -> str:
    return f"public {pair.public}\nsecret {pair.secret}\n"


def _write_new(path: Path, text: str, mode: int) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError as error:
        raise SecurityError(
            f"{path} already exists. Keys are never overwritten.", "Choose another name or directory."
        ) from error
    except OSError as error:
        raise SecurityError(f"Cannot write {path}: {error.strerror}.") from error
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text)


def _load_optional_pair(path: Path) -> KeyPair | None:
    if not path.exists():
        return None
    mode = stat.S_IMODE(path.stat().st_mode)
    if os.name == "posix" and mode & 0o077:
        raise SecurityError(
            f"The secret key {path} has mode {mode:04o}: others can read it.", f"Run `chmod 600 {path}`."
        )
    found = re.fullmatch(f"public ({_KEY})\nsecret ({_KEY})\n?", _read(path))
    if found is None:
        raise SecurityError(f"{path} is not a key file.", "Make a new one with `distrl keys add`.")
    return KeyPair(found[1], found[2])


def _read_public(keys_dir: Path) -> str:
    path = keys_dir / f"{SERVER}.pub"
    text = _read(path).strip()
    if not re.fullmatch(_KEY, text):
        raise SecurityError(f"{path} is not a public key.", "Copy it again from where it was made.")
    return text


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except FileNotFoundError as error:
        raise SecurityError(f"{path} is missing.", "Make keys with `distrl keys create`.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise SecurityError(f"Cannot read {path}: {error}.") from error
