"""How a shell program leaves where it is: exit, return, break, continue, or an error that ends it."""

from __future__ import annotations

UNSUPPORTED = "not supported by the simulated phone's shell"
MAX_DEPTH = 60
"""How deep functions, eval and scripts may call each other."""


class Leave(Exception):
    """Ends the shell (exit), a function (return) or a loop (break, continue).

    Args:
        kind: "exit", "return", "break" or "continue"; "error" ends a script as "exit" does, and of an
            interactive shell the line.
        status: The exit status, or how many loops are left.
    """

    def __init__(self, kind: str, status: int = 0) -> None:
        super().__init__(kind)
        self.kind = kind
        self.status = status
