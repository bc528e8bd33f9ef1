"""An emulator's console for tests: greeting, secret, one answer for each command, as the real one."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

GREETING = (
    b"Android Console: Authentication required\r\n"
    b"Android Console: type 'auth <auth_token>' to authenticate\r\n"
    b"Android Console: you can find your <auth_token> in \r\n"
    b"'/home/me/.emulator_console_auth_token'\r\nOK\r\n"
)
WELCOME = b"Android Console: type 'help' for a list of commands\r\nOK\r\n"
PATIENCE_S = 20.0
Respond = Callable[[str], bytes | None]


class FakeConsole:
    """The console. `respond` gives the bytes for a command; None hangs until the end, b"" hangs up."""

    def __init__(self, respond: Respond, token: str) -> None:
        self.commands: list[str] = []
        self._respond, self._token = respond, token
        self._over = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def stop_listening(self) -> None:
        """As an emulator that ends: connections to its port are refused."""
        if self._listener.fileno() >= 0:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()

    def close(self) -> None:
        self._over.set()
        self.stop_listening()
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self._threads.append(threading.Thread(target=self._serve, args=(sock,), daemon=True))
            self._threads[-1].start()

    def _serve(self, sock: socket.socket) -> None:
        with sock, sock.makefile("rb") as lines, suppress(OSError):
            if self._token:
                sock.sendall(GREETING)
                if lines.readline().decode().strip() != f"auth {self._token}":
                    sock.sendall(
                        b"KO: authentication token does not match ~/.emulator_console_auth_token\r\n"
                    )
                    return
            sock.sendall(WELCOME)
            while line := lines.readline().decode().strip():
                self.commands.append(line)
                answer = self._respond(line)
                if answer is None:
                    self._over.wait(PATIENCE_S)
                    return
                if not answer:
                    return
                sock.sendall(answer)


@contextmanager
def fake_console(respond: Respond, token: str = "secret") -> Iterator[FakeConsole]:
    """A console that wants `token`, or none."""
    console = FakeConsole(respond, token)
    try:
        yield console
    finally:
        console.close()
