"""Keys of the wire: CURVE key pairs in files, and the list of clients that a server lets in.

A keys directory holds

    server.key          secret of every binding process (learner, inference servers)      mode 0600
    server.pub          its public half; every connecting process checks it
    NAME.key            secret of the client NAME (`client.key` serves any client)         mode 0600
    allowed/NAME.pub    the clients that binding processes let in, read anew at each handshake

and each machine gets only the files that its roles need: docs/protocol.md says which.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path

from distrl.core.errors import SecurityError

SERVER = "server"
ANY_CLIENT = "client"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_Z85_KEY = re.compile(r"[0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}")


@dataclass(frozen=True)
class KeyPair:
    """A CURVE key pair, both halves as 40 characters of Z85."""

    public: str
    secret: str = field(repr=False)


@dataclass(frozen=True)
class Security:
    """What one process needs for CURVE.

    Attributes:
        keys_dir: Where the keys were read.
        own: The client pair of this process; None on a machine that only binds.
        server: The server pair; None on a machine that only connects.
        server_public: The public key that servers must have.
    """

    keys_dir: Path
    own: KeyPair | None
    server: KeyPair | None
    server_public: str

    @property
    def allowed(self) -> frozenset[str]:
        """Public keys of the clients that may connect, read from the directory at this moment."""
        return frozenset(list_allowed(self.keys_dir).values())

    def client_pair(self) -> KeyPair:
        """The pair that authenticates connecting sockets.

        Raises:
            SecurityError: This machine has no client key.
        """
        if self.own is None:
            raise SecurityError(
                f"No client key in {self.keys_dir}.",
                "Make one with `distrl keys add` where the server key is and copy it here.",
            )
        return self.own

    def server_pair(self) -> KeyPair:
        """The pair that authenticates binding sockets.

        Raises:
            SecurityError: This machine has no server key.
        """
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
        name: The client key to use is `NAME.key`, or `client.key` when there is none of that name.

    Raises:
        SecurityError: Keys are missing, broken, or readable by others.
    """
    if keys_dir is None:
        return None
    if not keys_dir.is_dir():
        raise _no_directory(keys_dir)
    own = _load_optional_pair(keys_dir / f"{check_name(name)}.key") if name != SERVER else None
    if own is None:
        own = _load_optional_pair(keys_dir / f"{ANY_CLIENT}.key")
    server = _load_optional_pair(keys_dir / f"{SERVER}.key")
    if own is None and server is None:
        raise SecurityError(
            f"{keys_dir} has neither {name}.key, {ANY_CLIENT}.key nor {SERVER}.key.",
            "Make keys with `distrl keys create` or `distrl keys add`.",
        )
    return Security(keys_dir, own, server, _read_public(keys_dir / f"{SERVER}.pub"))


def check_name(name: str) -> str:
    """Returns `name` if it can name a key file.

    Raises:
        SecurityError: It cannot.
    """
    if not _NAME.fullmatch(name):
        raise SecurityError(
            f"{name!r} cannot name a key.", "Use up to 64 letters, digits, '.', '_' or '-', no '/'."
        )
    return name


def list_allowed(keys_dir: Path) -> dict[str, str]:
    """The allow-list: client name → public key.

    Raises:
        SecurityError: There is no such directory, or a key in it is broken.
    """
    if not keys_dir.is_dir():
        raise _no_directory(keys_dir)
    return {path.stem: _read_public(path) for path in sorted((keys_dir / "allowed").glob("*.pub"))}


def create_keys(keys_dir: Path, server: KeyPair, client: KeyPair) -> None:
    """Writes a new keys directory with one allowed client, `client`.

    Raises:
        SecurityError: There are keys already; they are never overwritten. Or a file is in the way.
    """
    try:
        keys_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    except FileExistsError as error:
        raise SecurityError(
            f"{keys_dir} is a file, no keys directory.", "Choose another directory."
        ) from error
    _write_new(keys_dir / f"{SERVER}.key", _format_pair(server), 0o600)
    _write_new(keys_dir / f"{SERVER}.pub", server.public + "\n", 0o644)
    add_client(keys_dir, ANY_CLIENT, client)


def add_client(keys_dir: Path, name: str, client: KeyPair) -> None:
    """Writes `NAME.key` and puts its public half on the allow-list.

    Raises:
        SecurityError: The name is reserved or taken, or this is no keys directory.
    """
    if check_name(name) == SERVER:
        raise SecurityError(f"{SERVER!r} is the name of the server key.", "Choose another name.")
    _read_public(keys_dir / f"{SERVER}.pub")
    (keys_dir / "allowed").mkdir(exist_ok=True)
    _write_new(keys_dir / f"{name}.key", _format_pair(client), 0o600)
    _write_new(keys_dir / "allowed" / f"{name}.pub", client.public + "\n", 0o644)


def remove_client(keys_dir: Path, name: str) -> None:
    """Takes a client off the allow-list (from its next handshake on) and deletes its secret here, if any.

    Raises:
        SecurityError: No such client is allowed.
    """
    public = keys_dir / "allowed" / f"{check_name(name)}.pub"
    if not public.is_file():
        raise SecurityError(f"{name!r} is not allowed in {keys_dir}.", "`distrl keys list` shows who is.")
    public.unlink()
    (keys_dir / f"{name}.key").unlink(missing_ok=True)


def _format_pair(pair: KeyPair) -> str:
    return f"public {pair.public}\nsecret {pair.secret}\n"


def _no_directory(keys_dir: Path) -> SecurityError:
    return SecurityError(
        f"The keys directory {keys_dir} does not exist.", "Make it with `distrl keys create`."
    )


def _write_new(path: Path, text: str, mode: int) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError as error:
        raise SecurityError(
            f"{path} exists already; keys are never overwritten.", "Choose another name or directory."
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
    fields = dict(line.split(maxsplit=1) for line in _read(path).splitlines() if " " in line)
    public, secret = fields.get("public", "").strip(), fields.get("secret", "").strip()
    if not _Z85_KEY.fullmatch(public) or not _Z85_KEY.fullmatch(secret):
        raise SecurityError(f"{path} is not a key file.", "Make a new one with `distrl keys add`.")
    return KeyPair(public, secret)


def _read_public(path: Path) -> str:
    text = _read(path).strip()
    if not _Z85_KEY.fullmatch(text):
        raise SecurityError(f"{path} is not a public key.", "Copy it again from where it was made.")
    return text


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except FileNotFoundError as error:
        raise SecurityError(f"{path} is missing.", "Make keys with `distrl keys create`.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise SecurityError(f"Cannot read {path}: {error}.") from error
