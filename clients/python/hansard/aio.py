"""The client for asyncio: the same, with await."""

from __future__ import annotations

import asyncio
import math
import ssl
import time
from datetime import datetime
from typing import Any, AsyncIterator, Callable, Coroutine, Mapping, Optional, Sequence, TypeVar, Union, cast

from . import _core, _http, errors, types
from ._http import Scope
from .client import claim_of, grant_of, range_of, types_meta

T = TypeVar("T")


class AsyncClient:
    """See [Client]. Cancelling a task ends what it does; an append that was cancelled may be stored."""

    def __init__(self, address: str, token: str = "", *, patience: float = 15.0, timeout: float = 60.0, tls: Optional[ssl.SSLContext] = None) -> None:
        self._core = _core.Core(_http.Asyncio, address, token, patience, timeout, tls)

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        self._core.close()
        await asyncio.sleep(0)  # connections close in the next iteration of the loop

    def session(self, id: str) -> "AsyncSession":
        return AsyncSession(self._core, id)

    async def create(self, id: str = "", *, title: str = "", labels: Optional[Mapping[str, str]] = None, state: types.Json = None, reuse: bool = False,
                     timeout: Optional[float] = None) -> "AsyncSession":  # fmt: skip
        made = await self._core.create(id, types_meta(title, labels, state, reuse), timeout)
        return AsyncSession(self._core, made.id)

    def list(self, *, prefix: str = "", ids: Sequence[str] = (), parent: str = "", labels: Mapping[str, str] = {}, text: str = "",
             since: Optional[datetime] = None, before: Optional[datetime] = None, created_since: Optional[datetime] = None,
             created_before: Optional[datetime] = None, held: bool = False, damaged: bool = False, archived: str = "", order: str = "",
             limit: int = 0, cursor: str = "", preview: bool = False) -> AsyncIterator[types.Info]:  # fmt: skip
        times = {"since": since, "before": before, "created_since": created_since, "created_before": created_before}
        plain = {"prefix": prefix, "parent": parent, "q": text, "archived": archived, "order": order, "limit": limit, "cursor": cursor}
        q = _core.parameters(plain, flags={"held": held, "damaged": damaged, "preview": preview}, times=times, ids=ids, labels=labels)
        return self._core.list(q)

    def search(self, text: str, *, role: str = "", kind: str = "", labels: Mapping[str, str] = {}, since: Optional[datetime] = None,
               before: Optional[datetime] = None, session: str = "", prefix: str = "", limit: int = 0, offset: int = 0) -> AsyncIterator[types.Hit]:  # fmt: skip
        plain = {"q": text, "role": role, "kind": kind, "in": session, "prefix": prefix, "limit": limit, "offset": offset}
        q = _core.parameters(plain, times={"since": since, "before": before}, labels=labels)
        return self._core.search(q)

    async def prune(self, *, scrub: bool = False, timeout: Optional[float] = None) -> Mapping[str, Any]:
        return cast(Mapping[str, Any], await self._core.prune(scrub, timeout))


class AsyncSession:
    """See [Session]."""

    def __init__(self, core: _core.Core, id: str) -> None:
        self._core, self.id = core, id

    async def append(self, *events: types.NewEvent, patch: Optional[types.Patch] = None, expect: Optional[int] = None,
                     turn: Union[str, "AsyncTurn", None] = None, key: str = "", create: bool = False, meta: Optional[types.Meta] = None,
                     timeout: Optional[float] = None) -> types.Receipt:  # fmt: skip
        return await self._core.append(self.id, events, patch=patch, expect=expect, turn=grant_of(turn), key=key, create=create, meta=meta, timeout=timeout)

    def read(self, *, after: int = 0, before: int = 0, limit: int = 0, last: int = 0, kinds: Sequence[str] = (), from_kind: str = "",
             reverse: bool = False, after_id: str = "") -> AsyncIterator[types.Event]:  # fmt: skip
        return self._core.read(self.id, range_of(after, before, limit, last, kinds, from_kind, reverse, after_id))

    async def event(self, id: str) -> types.Event:
        return types.event(await self._core.get(_core.path_of(self.id, "/events/" + _core.quote(id, safe=""))))

    def follow(self, after: int = 0) -> AsyncIterator[types.Event]:
        """Events past `after`, and new ones as they arrive. It ends with its task, or with `aclose`."""
        return self._core.follow(self.id, after, Scope())

    async def wait(self, after: int, timeout: float = math.inf) -> None:
        await self._core.wait(self.id, after, self._core.closing, time.monotonic() + timeout)

    async def info(self, timeout: Optional[float] = None) -> types.Info:
        return types.info(await self._core.get(_core.path_of(self.id), timeout=timeout))

    async def delete(self, *, turn: Union[str, "AsyncTurn", None] = None, timeout: Optional[float] = None) -> None:
        await self._core.delete(self.id, grant_of(turn), timeout)

    async def fork(self, *, at: int = 0, id: str = "", title: str = "", labels: Optional[Mapping[str, str]] = None, state: types.Json = None,
                   timeout: Optional[float] = None) -> "AsyncSession":  # fmt: skip
        given = {**types_meta(title, labels, state, False), **({"at": at} if at else {}), **({"as": id} if id else {})}
        return AsyncSession(self._core, (await self._core.fork(self.id, given, timeout)).id)

    async def redact(self, *seqs: int, reason: str = "", turn: Union[str, "AsyncTurn", None] = None, timeout: Optional[float] = None) -> types.Receipt:
        return await self._core.redact(self.id, seqs, reason, grant_of(turn), timeout)

    def export(self, format: str = "jsonl") -> AsyncIterator[bytes]:
        return self._core.export(self.id, format)

    async def holder(self) -> Optional[types.Grant]:
        found = (await self._core.get(_core.path_of(self.id, "/turn")))["turn"]
        return types.grant(found) if found else None

    def turn(self, *, wait: float = 0.0, ttl: float = 0.0, max_hold: float = 0.0, exclusive: bool = False, label: str = "", steal: str = "") -> "AsyncTurn":
        """The turn, to be taken: `async with session.turn() as turn:`."""
        return AsyncTurn(self._core, self.id, claim_of(wait, ttl, max_hold, exclusive, label, steal))

    async def attach(self, body: _core.Body, timeout: Optional[float] = None) -> types.Attachment:
        return await self._core.attach(self.id, body, timeout)

    def attachment(self, digest: str) -> AsyncIterator[bytes]:
        return self._core.attachment(self.id, digest)

    def attachments(self) -> AsyncIterator[types.Attachment]:
        return self._core.attachments(self.id)


class AsyncTurn:
    """A turn that renews itself in a task of its own."""

    def __init__(self, core: _core.Core, session: str, claim: Mapping[str, Any]) -> None:
        self._core, self.session, self._claim, self._scope = core, session, claim, Scope()
        self._lost: Optional[asyncio.Event] = None
        self._keeper: Optional[asyncio.Task[None]] = None
        self._released = False
        self._callbacks: list[Callable[[errors.HansardError], None]] = []
        self.info: Optional[types.Grant] = None
        self.reason: Optional[errors.HansardError] = None

    async def acquire(self) -> "AsyncTurn":
        asked = time.monotonic()
        self.info = await self._core.acquire(self.session, self._claim)
        self._lost = asyncio.Event()
        if self._claim["wait_ms"]:
            asked = time.monotonic()
        self._keeper = asyncio.create_task(self._keep(self.info, asked))
        return self

    async def _keep(self, granted: types.Grant, asked: float) -> None:
        reason = await self._core.keep(self.session, granted, self._scope, asked)
        if self._scope.ended:
            return
        self.reason = reason
        assert self._lost is not None
        self._lost.set()
        for call in self._callbacks:
            call(reason)

    @property
    def grant(self) -> str:
        return self.info.grant if self.info else ""

    @property
    def lost(self) -> bool:
        return self.reason is not None

    def check(self) -> None:
        if self.reason is not None:
            raise self.reason

    async def wait_lost(self) -> errors.HansardError:
        assert self._lost is not None, "the turn was not acquired"
        await self._lost.wait()
        assert self.reason is not None
        return self.reason

    def on_lost(self, call: Callable[[errors.HansardError], None]) -> None:
        self._callbacks.append(call) if self.reason is None else call(self.reason)

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs work, and cancels it when the turn is lost; then the reason is raised."""
        task, lost = asyncio.ensure_future(work), asyncio.ensure_future(self.wait_lost())
        try:
            await asyncio.wait((task, lost), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise lost.result()
        finally:
            for t in (task, lost):
                if not t.done():
                    t.cancel()
            await asyncio.gather(task, lost, return_exceptions=True)

    async def release(self) -> None:
        self._released = True
        self._scope.end()
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        await self._core.release(self.session, self.grant)

    async def __aenter__(self) -> "AsyncTurn":
        return await self.acquire()

    async def __aexit__(self, kind: object, error: Optional[BaseException], _: object) -> None:
        if self._released:
            return
        try:
            await self.release()
        except errors.HansardError:
            if error is None:
                raise
