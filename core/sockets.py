"""The socket factory: the one file that imports zmq.

A `Wire` owns a ZeroMQ context and makes `Channel`s that speak `distrl.core.messages`. CURVE is on for every
socket of a wire that has keys; without keys only loopback, ipc and inproc endpoints are allowed. One extra
thread per securely binding wire answers ZAP requests (may this client key connect?).

    any thread ──Waker.wake()──►  Poller.wait() of the owning thread ──► Channel.recv / send
"""

from __future__ import annotations

import contextlib
import logging
import math
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import zmq
import zmq.utils.z85
from zmq.utils.monitor import recv_monitor_message

from distrl.core.errors import NetworkError, ProtocolError, SecurityError
from distrl.core.messages import MAX_BLOB_BYTES, RejectCode, check_blobs, decode, encode, submitted_id
from distrl.core.rendezvous import find, split_reference
from distrl.core.security import Client, KeyPair, Security
from distrl.core.types import Record


class Waker:
    """Lets any thread wake the thread that waits in a `Poller`."""

    def __init__(self) -> None:
        self.reader, self._writer = socket.socketpair()
        self.reader.setblocking(False)
        self._writer.setblocking(False)

    def wake(self) -> None:
        """Makes the poller return soon. Never blocks."""
        # If it is full of wake-ups, the poller is about to return; if it is closed, no thread waits.
        with contextlib.suppress(OSError):
            self._writer.send(b"!")

    def clear(self) -> None:
        """Forgets all wake-ups so far."""
        with contextlib.suppress(BlockingIOError):
            while self.reader.recv(4096):
                pass

    def close(self) -> None:
        """Closes both ends."""
        self.reader.close()
        self._writer.close()


Blob = bytes | memoryview
HIGH_WATER_MARK = 512  # messages queued per peer; beyond it senders wait
LINGER_MS = 1000  # how long close() lets queued messages leave
HEARTBEAT_MS, SILENCE_MS = 10_000, 60_000  # a connection without signs of life is dropped and re-made
HANDSHAKE_MS = 30_000  # a connection whose keys are neither taken nor refused until then is made again
LOOK_S = 1.0  # between two looks for the learner at a rendezvous, as long as there is no connection
_LOCAL = re.compile(r"(ipc|inproc)://.+|tcp://(127(\.\d{1,3}){3}|localhost|\[::1\]):[\d*]+")
_NAMED = re.compile(r"tcp://([A-Za-z][\w.-]*):([\d*]+)")
_log = logging.getLogger(__name__)


def is_local(endpoint: str) -> bool:
    """Whether `endpoint` cannot be reached from other machines (loopback tcp, ipc, inproc)."""
    return _LOCAL.fullmatch(endpoint) is not None


def unknown_host(endpoint: str) -> str | None:
    """The host of a tcp address, if this machine cannot resolve its name now."""
    if (match := _NAMED.fullmatch(endpoint)) is not None:
        try:
            socket.getaddrinfo(match[1], None)
        except OSError:
            return match[1]
    return None


def new_keypair() -> KeyPair:
    """A fresh CURVE key pair."""
    public, secret = zmq.curve_keypair()
    return KeyPair(public.decode("ascii"), secret.decode("ascii"))


class Received(NamedTuple):
    """A message that arrived: its envelope and byte frames.

    `peer` is its sender, empty unless the channel is a router. The key of `client` authenticated the
    connection; None without keys.
    """

    peer: bytes
    message: Record
    blobs: list[memoryview]
    client: Client | None = None


class PeerError(ProtocolError):
    """A bad frame from `peer`. `ref` is the trajectory or unit it is about, "" if that cannot be read."""

    def __init__(self, error: ProtocolError, peer: bytes, ref: str) -> None:
        super().__init__(error.code, error.message, error.remedy)
        self.peer, self.ref = peer, ref


class Channel:
    """A socket, bound (to the real port) or connected to `endpoint`. Used by one thread.

    Args:
        locate: Finds the address of an endpoint that is a reference; None as long as it is unknown.
    """

    def __init__(
        self, raw: zmq.Socket[bytes], endpoint: str, locate: Callable[[], str | None] | None = None
    ) -> None:
        self.raw = raw
        self.endpoint = endpoint
        self._locate = locate
        self._address: str | None = None  # of the server to which it is connected, or connecting
        self._next_look = 0.0 if locate is not None else math.inf
        self._is_router = raw.type == zmq.ROUTER
        self._has_clients = self._is_router and raw.getsockopt(zmq.CURVE_SERVER) == 1
        self._timeout_ms = -2
        self.monitor: zmq.Socket[bytes] | None = None  # of a connecting channel
        self._was_lost = False
        self._unsendable: set[type[Record]] = set()

    def send(
        self, message: Record, blobs: Sequence[Blob] = (), peer: bytes = b"", timeout_s: float = 5.0
    ) -> None:
        """Sends a message; large blobs leave without being copied, so they must not change afterwards.

        Args:
            peer: The receiver; required for routers. Messages to one that is gone are dropped.
            timeout_s: Longest wait for room, or for the connection.

        Raises:
            NetworkError: There was no room within `timeout_s`.
            ProtocolError: The message cannot be encoded, or is larger than any receiver takes.
        """
        check_blobs(blobs)
        self._heed_monitor()
        frames: list[Any] = [encode(message), *blobs]
        if self._is_router:
            assert peer, "a router needs a peer"
            frames.insert(0, peer)
        self._set_timeout(timeout_s)
        try:
            self.raw.send_multipart(frames, copy=False)
        except zmq.Again as error:
            raise NetworkError(f"{self.endpoint} took no message for {timeout_s:g} s.") from error
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise NetworkError(f"Sending over {self.endpoint} failed: {error}.") from error

    def send_periodic(self, message: Record, blobs: Sequence[Blob] = ()) -> None:
        """Sends a message that is repeated in time, so that losing one is not an error. Never waits.

        Without room it is dropped. One that cannot be encoded is dropped as well, and logged once for each
        kind of message: it must not end the thread that repeats it.
        """
        try:
            self.send(message, blobs, timeout_s=0.0)
        except ProtocolError as error:
            if type(message) not in self._unsendable:
                self._unsendable.add(type(message))
                _log.error("%s: cannot send a %s: %s", self.endpoint, type(message).__name__, error.message)
        except NetworkError:
            return

    def recv(self, timeout_s: float) -> Received | None:
        """The next message, None if none arrived within `timeout_s`.

        Raises:
            PeerError: The frames are not a message of this protocol version; the channel stays usable.
            NetworkError: The channel is closed.
        """
        try:
            self._heed_monitor()
            if not self.raw.poll(max(0, round(timeout_s * 1000))):
                return None
            frames = self.raw.recv_multipart(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return None
        except zmq.ZMQError as error:
            raise NetworkError(f"Receiving over {self.endpoint} failed: {error}.") from error
        peer = frames.pop(0).bytes if self._is_router else b""
        blobs = [frame.buffer for frame in frames[1:]]
        try:
            if not frames:
                raise ProtocolError(RejectCode.MALFORMED.value, "no envelope frame")
            check_blobs(blobs)
            client = Client.of_user_id(frames[0].get("User-Id")) if self._has_clients else None
            return Received(peer, decode(frames[0].buffer), blobs, client)
        except ProtocolError as error:
            raise PeerError(error, peer, submitted_id(frames[0].buffer) if frames else "") from error

    @property
    def is_connected(self) -> bool:
        """Whether a connecting channel has a server that takes messages now."""
        self._heed_monitor()
        return bool(self.raw.poll(0, zmq.POLLOUT))

    def lost_connection(self) -> bool:
        """Whether a connecting channel lost its connection since the last call, however short."""
        self._heed_monitor()
        was_lost, self._was_lost = self._was_lost, False
        return was_lost

    def look_again(self) -> None:
        """Looks for the server at the rendezvous, if there is one: it does not answer at its address."""
        if self._locate is not None:
            self._next_look = min(self._next_look, time.monotonic() + LOOK_S)

    def connect(self, address: str) -> None:
        """Connects to a server, in place of the one before."""
        if self._address is not None:
            self.raw.disconnect(self._address)
        self.raw.setsockopt(zmq.IPV6, "[" in address)
        self.raw.connect(address)
        self._address = address

    def _heed_monitor(self) -> None:
        """Connects again after a server with keys where none are set, or without where some are.

        libzmq never does, and the next server at that address may be the right one. A lost server with a
        rendezvous may have another address by now.
        """
        while self.monitor is not None and self.monitor.poll(0):
            event = recv_monitor_message(self.monitor)["event"]
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._next_look = math.inf
                continue
            self._was_lost = True
            self.look_again()
            if event == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL and self._address is not None:
                self.connect(self._address)
        if self._locate is not None and time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + LOOK_S
            found = self._locate()
            if found is not None and found != self._address:
                self.connect(found)
                _log.info("%s is %s", self.endpoint, found)

    def close(self) -> None:
        """Closes the socket; what is queued has a second to leave."""
        if self.monitor is not None:
            self.raw.disable_monitor()
            self.monitor.close()
        self.raw.close()

    def _set_timeout(self, timeout_s: float) -> None:
        timeout_ms = max(0, round(timeout_s * 1000))
        if timeout_ms != self._timeout_ms:
            self.raw.setsockopt(zmq.SNDTIMEO, timeout_ms)
            self._timeout_ms = timeout_ms


class Poller:
    """Waits for several channels (and a waker) at once."""

    def __init__(self, channels: Sequence[Channel] = (), waker: Waker | None = None) -> None:
        self._poller = zmq.Poller()
        self._channels: dict[object, Channel] = {}
        self._waker = waker
        if waker is not None:
            self._poller.register(waker.reader.fileno(), zmq.POLLIN)
        for channel in channels:
            self._poller.register(channel.raw, zmq.POLLIN)
            self._channels[channel.raw] = channel

    def wait(self, timeout_s: float) -> list[Channel]:
        """The channels that have something to receive; empty at the deadline or after a wake-up."""
        ready = dict(self._poller.poll(max(0, round(timeout_s * 1000))))
        if self._waker is not None:
            self._waker.clear()
        return [channel for raw, channel in self._channels.items() if raw in ready]


class Wire:
    """Makes channels; owns the context and, for secure servers, the thread that checks client keys."""

    def __init__(self, security: Security | None = None, io_threads: int = 1) -> None:
        self._security = security
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(io_threads)
        self._gate: _Gatekeeper | None = None

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def full_name(self, name: str) -> str:
        """The name of a process with these sockets: with keys, it begins with the name of its key."""
        return name if self._security is None else f"{self._security.name}/{name}"

    def bind_router(self, endpoint: str) -> Channel:
        """A ROUTER bound to `endpoint`; a port of 0 or * picks a free one. Raises as `bind_pub`."""
        raw = self._socket(zmq.ROUTER)
        raw.setsockopt(zmq.ROUTER_MANDATORY, 1)
        return self._bind(raw, endpoint)

    def bind_pub(self, endpoint: str) -> Channel:
        """A PUB bound to `endpoint`; SecurityError if it is public without keys, NetworkError if in use."""
        return self._bind(self._socket(zmq.PUB), endpoint)

    def connect_dealer(self, endpoint: str) -> Channel:
        """A DEALER that connects (and reconnects) to `endpoint`, an address or a reference to a rendezvous.

        It queues nothing for a server that is not there: `send` waits for the connection instead.

        Raises:
            SecurityError: The endpoint is public and this wire has no keys, or no client key.
        """
        raw = self._socket(zmq.DEALER)
        raw.setsockopt(zmq.IMMEDIATE, 1)
        return self._connect(raw, endpoint)

    def connect_sub(self, endpoint: str) -> Channel:
        """A SUB that receives everything from the PUB at `endpoint`. Raises as `connect_dealer`."""
        raw = self._socket(zmq.SUB)
        raw.setsockopt(zmq.SUBSCRIBE, b"")
        return self._connect(raw, endpoint)

    def close(self) -> None:
        """Closes whatever is left. The threads that use the channels must have ended."""
        if self._gate is not None:
            self._gate.stop()
        self._context.destroy(linger=LINGER_MS)

    def _socket(self, kind: int) -> zmq.Socket[bytes]:
        raw = self._context.socket(kind)
        raw.set_hwm(HIGH_WATER_MARK)
        for option, value in (
            (zmq.LINGER, LINGER_MS),
            (zmq.MAXMSGSIZE, MAX_BLOB_BYTES),
            (zmq.HEARTBEAT_IVL, HEARTBEAT_MS),
            (zmq.HEARTBEAT_TIMEOUT, SILENCE_MS),
            (zmq.HANDSHAKE_IVL, HANDSHAKE_MS),
            (zmq.RECONNECT_IVL, 100),
            (zmq.RECONNECT_IVL_MAX, 2000),
        ):
            raw.setsockopt(option, value)
        return raw

    def _bind(self, raw: zmq.Socket[bytes], endpoint: str) -> Channel:
        with _closed_if_refused(raw, "bind", endpoint):
            if self._security is not None:
                secret = self._security.server_pair().secret
                if self._gate is None:
                    self._gate = _Gatekeeper(self._context, self._security)
                raw.setsockopt(zmq.CURVE_SERVER, 1)
                raw.setsockopt(zmq.CURVE_SECRETKEY, secret.encode())
                raw.setsockopt(zmq.ZAP_DOMAIN, b"distrl")
                # Without a running gatekeeper no client is admitted, instead of every client.
                raw.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
            elif not is_local(endpoint):
                raise _no_keys("Binding", endpoint)
            raw.setsockopt(zmq.IPV6, "[" in endpoint)
            raw.bind(_resolve(endpoint))
        bound = raw.getsockopt(zmq.LAST_ENDPOINT)
        assert isinstance(bound, bytes)
        return Channel(raw, bound.rstrip(b"\0").decode())

    def _connect(self, raw: zmq.Socket[bytes], endpoint: str) -> Channel:
        with _closed_if_refused(raw, "connect to", endpoint):
            if self._security is not None:
                pair = self._security.client_pair()
                raw.setsockopt(zmq.CURVE_SERVERKEY, self._security.server_public.encode())
                raw.setsockopt(zmq.CURVE_PUBLICKEY, pair.public.encode())
                raw.setsockopt(zmq.CURVE_SECRETKEY, pair.secret.encode())
            events = zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
            if (reference := split_reference(endpoint)) is not None:
                channel = Channel(raw, endpoint, lambda: self._find(*reference))
                channel.monitor = raw.get_monitor_socket(events | zmq.EVENT_HANDSHAKE_SUCCEEDED)
                return channel
            self._check_reachable(endpoint)
            channel = Channel(raw, endpoint)
            channel.monitor = raw.get_monitor_socket(events)
            channel.connect(endpoint)
        return channel

    def _find(self, place: str, name: str) -> str | None:
        """The address that a rendezvous has now; None without one, or if it is that of another run."""
        meeting = find(place)
        expected = self._security.server_public if self._security is not None else ""
        if meeting is None or meeting.public != expected:
            return None
        address: str = getattr(meeting, name)
        self._check_reachable(address)
        return address

    def _check_reachable(self, endpoint: str) -> None:
        if not endpoint.startswith(("tcp://", "ipc://", "inproc://")):
            other = "; --http is for other clients" if endpoint.startswith("http") else ""
            raise NetworkError(f"{endpoint!r} is not a ZeroMQ address.", f"Use tcp://HOST:PORT{other}.")
        if self._security is None and not is_local(endpoint):
            raise _no_keys("Connecting to", endpoint)


@contextlib.contextmanager
def _closed_if_refused(raw: zmq.Socket[bytes], verb: str, endpoint: str) -> Iterator[None]:
    """Closes a socket that cannot be bound or connected, and says why."""
    try:
        yield
    except zmq.ZMQError as error:
        raw.close()
        if error.errno == zmq.EADDRINUSE:
            remedy = "Stop the other process or choose another port."
            raise NetworkError(f"The address {endpoint} is in use.", remedy) from error
        raise NetworkError(f"Cannot {verb} {endpoint!r}: {error}.", "Use tcp://HOST:PORT.") from error
    except NetworkError:
        raw.close()
        raise


def _resolve(endpoint: str) -> str:
    """`endpoint` with the number of a host that is given by name: sockets are bound to numbers."""
    match = _NAMED.fullmatch(endpoint)
    if match is None:
        return endpoint
    host, port = match.groups()
    try:
        address = socket.gethostbyname(host)
    except OSError as error:
        raise NetworkError(f"The host of {endpoint} is unknown: {error}.", "Use tcp://HOST:PORT.") from error
    if address.startswith("127.") and host != "localhost":  # Debian's /etc/hosts does so
        raise NetworkError(
            f"{host} is {address} on this machine, so no other machine could connect.",
            f"Bind tcp://0.0.0.0:{port} here, or correct /etc/hosts.",
        )
    return f"tcp://{address}:{port}"


def _no_keys(verb: str, endpoint: str) -> SecurityError:
    return SecurityError(
        f"{verb} {endpoint}, which is not loopback, needs keys.",
        "Make them with `distrl keys create DIR` and name that directory as network.keys_dir.",
    )


class _Gatekeeper:
    """The ZAP handler of one context: a thread that lets in listed client keys only."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], security: Security) -> None:
        self._security = security
        self._stopping = threading.Event()
        self._raw = context.socket(zmq.REP)
        self._raw.setsockopt(zmq.LINGER, 0)
        self._raw.bind("inproc://zeromq.zap.01")
        self._thread = threading.Thread(target=self._run, name="gatekeeper", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(timeout=5.0)

    def _run(self) -> None:
        while not self._stopping.is_set():
            if self._raw.poll(100):
                self._raw.send_multipart(self._answer(self._raw.recv_multipart()))
        self._raw.close()

    def _answer(self, request: list[bytes]) -> list[bytes]:
        """One ZAP 1.0 exchange (ZeroMQ RFC 27)."""
        request_id = request[1] if len(request) > 1 else b""
        if len(request) == 7 and request[5] == b"CURVE":
            public = zmq.utils.z85.encode(request[6]).decode("ascii")
            try:
                client = self._security.find_client(public)
            except (SecurityError, OSError) as error:
                _log.error("the allow-list cannot be read: %s", error)
                return [b"1.0", request_id, b"300", b"try again", b"", b""]  # to "400" it gives up for good
            if client is not None:
                return [b"1.0", request_id, b"200", b"OK", client.user_id.encode(), b""]
            _log.warning("refused the client key %s from %s", public, request[3].decode("ascii", "replace"))
        return [b"1.0", request_id, b"400", b"not allowed", b"", b""]
