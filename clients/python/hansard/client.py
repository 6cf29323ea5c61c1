"""The blocking client."""

from __future__ import annotations

import math
import ssl
import threading
import time
from datetime import datetime
from types import TracebackType
from typing import Any, AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Optional, Sequence, TypeVar, Union, cast

from . import _core, _http, errors, types
from ._http import Scope, run

T = TypeVar("T")


def grant_of(turn: Any) -> str:
    return str(getattr(turn, "grant", turn) or "")


def claim_of(wait: float, ttl: float, max_hold: float, exclusive: bool, label: str, steal: str) -> dict[str, Any]:
    return {
        "wait_ms": -1 if wait == math.inf else math.ceil(wait * 1000), "ttl_ms": round(ttl * 1000), "max_hold_ms": round(max_hold * 1000),
        "exclusive": exclusive, "label": label, "steal": steal,
    }  # fmt: skip


def range_of(after: int, before: int, limit: int, last: int, kinds: Sequence[str], from_kind: str, reverse: bool, after_id: str) -> dict[str, Any]:
    return {"after": after, "before": before, "limit": limit, "last": last, "kinds": tuple(kinds), "from_kind": from_kind, "reverse": reverse, "after_id": after_id}


def _each(items: AsyncIterator[T]) -> Iterator[T]:
    try:
        while True:
            try:
                item = run(items.__anext__())  # type: ignore[arg-type]
            except StopAsyncIteration:
                return
            yield item
    finally:
        if isinstance(items, AsyncGenerator):
            run(items.aclose())  # type: ignore[arg-type]


class Client:
    """A store on a server: http://HOST:PORT, https://HOST or unix:PATH. Many threads may use it.

    `patience` is how many seconds to keep trying when a server that was reached before does
    not answer; `timeout` how many seconds a connection may be silent during a request.
    """

    def __init__(self, address: str, token: str = "", *, patience: float = 15.0, timeout: float = 60.0, tls: Optional[ssl.SSLContext] = None) -> None:
        self._core = _core.Core(_http.Blocking, address, token, patience, timeout, tls)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends reads, followers and waits. Writes under way are finished."""
        self._core.close()

    def session(self, id: str) -> "Session":
        """The session with this id, whether it exists or not; it sends no request."""
        return Session(self._core, id)

    def create(self, id: str = "", *, title: str = "", labels: Optional[Mapping[str, str]] = None, state: types.Json = None, reuse: bool = False,
               timeout: Optional[float] = None) -> "Session":  # fmt: skip
        """Creates a session; without an id it gets a new one. `reuse` allows the id of a deleted session."""
        made = run(self._core.create(id, types_meta(title, labels, state, reuse), timeout))
        return Session(self._core, made.id)

    def list(self, *, prefix: str = "", ids: Sequence[str] = (), parent: str = "", labels: Mapping[str, str] = {}, text: str = "",
             since: Optional[datetime] = None, before: Optional[datetime] = None, created_since: Optional[datetime] = None,
             created_before: Optional[datetime] = None, held: bool = False, damaged: bool = False, archived: str = "", order: str = "",
             limit: int = 0, cursor: str = "", preview: bool = False) -> Iterator[types.Info]:  # fmt: skip
        """Sessions, newest first. `parent` lists the forks of one; `archived` is "no" or "only"."""
        times = {"since": since, "before": before, "created_since": created_since, "created_before": created_before}
        plain = {"prefix": prefix, "parent": parent, "q": text, "archived": archived, "order": order, "limit": limit, "cursor": cursor}
        q = _core.parameters(plain, flags={"held": held, "damaged": damaged, "preview": preview}, times=times, ids=ids, labels=labels)
        return _each(self._core.list(q))

    def search(self, text: str, *, role: str = "", kind: str = "", labels: Mapping[str, str] = {}, since: Optional[datetime] = None,
               before: Optional[datetime] = None, session: str = "", prefix: str = "", limit: int = 0, offset: int = 0) -> Iterator[types.Hit]:  # fmt: skip
        """Events with all these words, the best first, in all sessions or in one."""
        plain = {"q": text, "role": role, "kind": kind, "in": session, "prefix": prefix, "limit": limit, "offset": offset}
        q = _core.parameters(plain, times={"since": since, "before": before}, labels=labels)
        return _each(self._core.search(q))

    def prune(self, *, scrub: bool = False, timeout: Optional[float] = None) -> Mapping[str, Any]:
        """Removes what is left of deleted sessions now; with `scrub` also what is left of them elsewhere in the store's files."""
        return cast(Mapping[str, Any], run(self._core.prune(scrub, timeout)))


def types_meta(title: str, labels: Optional[Mapping[str, str]], state: types.Json, reuse: bool) -> dict[str, Any]:
    given = {"title": title, "labels": dict(labels or {}), "state": state, "reuse": reuse}
    return {k: v for k, v in given.items() if v is not None and v != "" and v != {} and v is not False}


class Session:
    """One session of a store."""

    def __init__(self, core: _core.Core, id: str) -> None:
        self._core, self.id = core, id

    def append(self, *events: types.NewEvent, patch: Optional[types.Patch] = None, expect: Optional[int] = None, turn: Union[str, "Turn", None] = None,
               key: str = "", create: bool = False, meta: Optional[types.Meta] = None, timeout: Optional[float] = None) -> types.Receipt:  # fmt: skip
        """Stores events and a patch, all or none. When it returns, they are durable.

        It is sent again while its outcome is unknown, under its key or a generated one,
        and stored once. [OutcomeUnknown] is raised if the server stays unreachable.
        """
        return run(self._core.append(self.id, events, patch=patch, expect=expect, turn=grant_of(turn), key=key, create=create, meta=meta, timeout=timeout))

    def read(self, *, after: int = 0, before: int = 0, limit: int = 0, last: int = 0, kinds: Sequence[str] = (), from_kind: str = "",
             reverse: bool = False, after_id: str = "") -> Iterator[types.Event]:  # fmt: skip
        """Events, oldest first, or newest first with `reverse`."""
        return _each(self._core.read(self.id, range_of(after, before, limit, last, kinds, from_kind, reverse, after_id)))

    def event(self, id: str) -> types.Event:
        """The event with this id; [NoEventError] if there is none."""
        return types.event(run(self._core.get(_core.path_of(self.id, "/events/" + _core.quote(id, safe="")))))

    def follow(self, after: int = 0) -> "Follower":
        """Events past `after`, and new ones as they arrive, across reconnects."""
        return Follower(self._core, self.id, after)

    def wait(self, after: int, timeout: float = math.inf) -> None:
        """Returns when the session has an event past `after`."""
        run(self._core.wait(self.id, after, self._core.closing, time.monotonic() + timeout))

    def info(self, timeout: Optional[float] = None) -> types.Info:
        return types.info(run(self._core.get(_core.path_of(self.id), timeout=timeout)))

    def delete(self, *, turn: Union[str, "Turn", None] = None, timeout: Optional[float] = None) -> None:
        run(self._core.delete(self.id, grant_of(turn), timeout))

    def fork(self, *, at: int = 0, id: str = "", title: str = "", labels: Optional[Mapping[str, str]] = None, state: types.Json = None,
             timeout: Optional[float] = None) -> "Session":  # fmt: skip
        """Makes a new session with this one's history up to `at`, its last event if that is 0. It inherits title, labels and
        state; those given here replace them."""
        given = {**types_meta(title, labels, state, False), **({"at": at} if at else {}), **({"as": id} if id else {})}
        return Session(self._core, (run(self._core.fork(self.id, given, timeout))).id)

    def redact(self, *seqs: int, reason: str = "", turn: Union[str, "Turn", None] = None, timeout: Optional[float] = None) -> types.Receipt:
        """Removes the content of events, their data and attachments, for good, and records it.

        Events that are already redacted stay so: it may be repeated.
        """
        return run(self._core.redact(self.id, seqs, reason, grant_of(turn), timeout))

    def export(self, format: str = "jsonl") -> Iterator[bytes]:
        """The session as a file, in pieces: "jsonl", which has everything, "md", "html" and others."""
        return _each(self._core.export(self.id, format))

    def holder(self) -> Optional[types.Grant]:
        """Who holds the turn; None if it is free."""
        found = run(self._core.get(_core.path_of(self.id, "/turn")))["turn"]
        return types.grant(found) if found else None

    def turn(self, *, wait: float = 0.0, ttl: float = 0.0, max_hold: float = 0.0, exclusive: bool = False, label: str = "", steal: str = "") -> "Turn":
        """Takes the turn, and keeps renewing it until it is released: `with session.turn() as turn:`.

        `wait` is how many seconds to wait for it, math.inf for ever; [HeldError] if it is held.
        """
        asked = time.monotonic()
        granted = run(self._core.acquire(self.id, claim_of(wait, ttl, max_hold, exclusive, label, steal)))
        return Turn(self._core, self.id, granted, time.monotonic() if wait else asked)

    def attach(self, body: _core.Body, timeout: Optional[float] = None) -> types.Attachment:
        """Stores bytes, a file or pieces beside the log; events name the attachment (see [Attachment.named])."""
        return run(self._core.attach(self.id, body, timeout))

    def attachment(self, digest: str) -> Iterator[bytes]:
        """The bytes of an attachment, in pieces; compared with the digest at the end."""
        return _each(self._core.attachment(self.id, digest))

    def attachments(self) -> Iterator[types.Attachment]:
        return _each(self._core.attachments(self.id))


class Follower:
    """An iterator over events that waits for the next one. `close`, from any thread, ends it."""

    def __init__(self, core: _core.Core, session: str, after: int) -> None:
        self._scope = Scope()
        self._events = _each(core.follow(session, after, self._scope))

    def __iter__(self) -> Iterator[types.Event]:
        return self

    def __next__(self) -> types.Event:
        return next(self._events)

    def close(self) -> None:
        self._scope.end()

    def __enter__(self) -> "Follower":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Turn:
    """A turn that renews itself in a thread of its own. Pass it to `append` as `turn`."""

    def __init__(self, core: _core.Core, session: str, granted: types.Grant, asked: float) -> None:
        self.info, self.session = granted, session
        self._core, self._scope, self._lost, self._released = core, Scope(), threading.Event(), False
        self._reason: Optional[errors.HansardError] = None
        self._callbacks: list[Callable[[errors.HansardError], None]] = []
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._keep, args=(asked,), name=f"hansard turn {granted.grant}", daemon=True)
        self._thread.start()

    def _keep(self, asked: float) -> None:
        reason = run(self._core.keep(self.session, self.info, self._scope, asked))
        if self._scope.ended:
            return
        with self._lock:
            self._reason = reason
            self._lost.set()
            callbacks = list(self._callbacks)
        for call in callbacks:
            call(reason)

    @property
    def grant(self) -> str:
        return self.info.grant

    @property
    def lost(self) -> bool:
        return self._lost.is_set()

    @property
    def reason(self) -> Optional[errors.HansardError]:
        """Why it was lost."""
        return self._reason

    def check(self) -> None:
        """Raises the reason if the turn was lost. Call it between steps of the work."""
        if self._reason is not None:
            raise self._reason

    def wait_lost(self, timeout: Optional[float] = None) -> bool:
        return self._lost.wait(timeout)

    def on_lost(self, call: Callable[[errors.HansardError], None]) -> None:
        """Makes one call when the turn is lost, from the thread that renews it; at once if it is lost already."""
        with self._lock:
            if self._reason is None:
                self._callbacks.append(call)
                return
            reason = self._reason
        call(reason)

    def release(self) -> None:
        """Gives the turn up. [FencedError] if it was lost, or released before."""
        self._scope.end()
        if self._thread is not threading.current_thread():
            self._thread.join()
        self._released = True
        run(self._core.release(self.session, self.grant))

    def __enter__(self) -> "Turn":
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException], _: Optional[TracebackType]) -> None:
        if self._released:
            return
        try:
            self.release()
        except errors.HansardError:
            # An error of the work says more; without one, the lost turn must not go unnoticed.
            if error is None:
                raise
