"""Errors. The server's problems have a stable type, and each has a class here."""

from __future__ import annotations

from typing import Any, Mapping, Optional


class HansardError(Exception):
    """The base of all errors. `type` is the name of the server's problem, `problem` all its members."""

    type = "error"

    def __init__(self, message: str, problem: Optional[Mapping[str, Any]] = None) -> None:
        super().__init__(message)
        self.problem: Mapping[str, Any] = problem or {}

    @property
    def hint(self) -> str:
        """What to do next."""
        return str(self.problem.get("hint", ""))


class UnreachableError(HansardError):
    """The server did not answer."""

    type = "unreachable"


class OutcomeUnknown(HansardError):
    """A write may or may not be stored. The same write with its key or its event ids settles it."""

    type = "outcome-unknown"


class TimedOut(HansardError):
    """The caller's timeout is over."""

    type = "timed-out"


class ClosedError(HansardError):
    """The client was closed."""

    type = "closed"


class InvalidError(HansardError):
    type = "invalid"

    @property
    def field(self) -> str:
        """The part of the input that was refused."""
        return str(self.problem.get("field", ""))


class TooLargeError(InvalidError):
    type = "too-large"


class NotFoundError(HansardError):
    type = "not-found"


class DeletedError(HansardError):
    """The session was deleted."""

    type = "deleted"


class ExistsError(HansardError):
    type = "exists"


class ConflictError(HansardError):
    """The session is not as expected; nothing was stored."""

    type = "conflict"

    @property
    def last_seq(self) -> Optional[int]:
        return self.problem.get("last_seq")


class KeyReusedError(HansardError):
    """The key was used for other content."""

    type = "key-reused"


class IdReusedError(HansardError):
    """Event ids were used for other content; nothing was stored."""

    type = "id-reused"

    @property
    def ids(self) -> list[str]:
        return list(self.problem.get("ids", ()))


class NoEventError(HansardError):
    type = "no-event"


class NoAttachmentError(HansardError):
    type = "no-attachment"


class HeldError(HansardError):
    """Another holder has the turn."""

    type = "held"

    @property
    def holder(self) -> Optional[Mapping[str, Any]]:
        return self.problem.get("holder")


class FencedError(HansardError):
    """The turn is no longer held."""

    type = "fenced"


class DamagedError(HansardError):
    """The session's log is damaged; `safe_seq` is the last event that is safe."""

    type = "damaged"

    @property
    def safe_seq(self) -> int:
        return int((self.problem.get("damage") or {}).get("safe_seq", 0))


class UnreadableError(HansardError):
    type = "unreadable"


class BusyError(HansardError):
    type = "busy"


class NoSpaceError(HansardError):
    type = "no-space"


class ReadOnlyError(HansardError):
    type = "read-only"


class StoreFailedError(HansardError):
    type = "store-failed"


class UnauthorizedError(HansardError):
    """The token is missing or unknown."""

    type = "unauthorized"


class MissingRightError(HansardError):
    """The token lacks a right."""

    type = "missing-right"


class OverloadedError(HansardError):
    type = "overloaded"


class TooManyRequestsError(HansardError):
    type = "too-many-requests"


class ServerClosing(HansardError):
    """The server is shutting down; another one, or the same one later, will take the request."""

    type = "closing"


def _classes(base: type[HansardError]) -> dict[str, type[HansardError]]:
    found = {base.type: base}
    for c in base.__subclasses__():
        found.update(_classes(c))
    return found


_BY_TYPE = _classes(HansardError)


def from_problem(problem: Mapping[str, Any]) -> HansardError:
    """The error for a problem of the server."""
    name = str(problem.get("type", "")).removeprefix("/problems/")
    text = str(problem.get("detail") or problem.get("title") or name)
    if name == "invalid" and problem.get("field"):
        text = f"{problem['field']}: {text}"
    error = _BY_TYPE.get(name, HansardError)(text, problem)
    error.type = name
    return error
