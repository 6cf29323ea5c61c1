"""The Claude Agent SDK's SessionStore.

    options = ClaudeAgentOptions(session_store=HansardSessionStore(AsyncClient(address, token)))

A transcript is a session, an entry an event. The entry's uuid is the event's id, so that an
entry that is mirrored, retried or imported again is stored once, however it is batched. The
summary is folded into the session's state in the same commit as the entries. `delete` needs a
token with the right `admin`.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import uuid
from datetime import datetime
from typing import Any, Callable, Mapping, Optional, TypedDict, cast

from . import errors, types
from .aio import AsyncClient, AsyncSession

Entry = dict[str, Any]
Fold = Callable[[Any, Any, Any], Any]

_PLAIN = re.compile(r"[A-Za-z0-9._-]{1,36}")
_LANGUAGE = "python"  # the members of a summary differ between the SDKs
_LOOKUPS = 16
_REMEMBERED = 256


class _Required(TypedDict):
    project_key: str
    session_id: str


class SessionKey(_Required, total=False):
    subpath: str


class _Known:
    """What this process knows of a session after its own last append."""

    def __init__(self, last: int, summary: Any) -> None:
        self.last, self.summary = last, summary


class HansardSessionStore:
    """`prefix` begins the ids of all sessions; `fold` is by default the SDK's
    fold_session_summary, if the SDK is installed. Without it there are no summaries."""

    def __init__(self, client: AsyncClient, prefix: str = "claude", fold: Optional[Fold] = None) -> None:
        self._client, self._prefix, self._fold = client, prefix, fold or _sdk_fold()
        self._locks: dict[str, asyncio.Lock] = {}
        self._known: dict[str, _Known] = {}
        self._open: dict[str, tuple[bytes, str]] = {}

    def _id(self, key: Mapping[str, str]) -> str:
        if key.get("subpath") == "":
            raise ValueError("an empty subpath; leave it out for the main transcript")
        parts = [key["project_key"], key["session_id"], *([key["subpath"]] if key.get("subpath") else [])]
        return ":".join([self._prefix, *map(part_of, parts)])

    def _session(self, key: Mapping[str, str]) -> AsyncSession:
        return self._client.session(self._id(key))

    async def append(self, key: SessionKey, entries: list[Entry]) -> None:
        if not entries:
            return
        id = self._id(key)
        lock = self._locks.setdefault(id, asyncio.Lock())
        async with lock:  # in the order of the calls
            try:
                await self._append(id, key, once(entries))
            except BaseException:
                self._known.pop(id, None)
                raise
        if not lock.locked() and len(self._locks) > _REMEMBERED:
            self._locks = {i: l for i, l in self._locks.items() if l.locked()}

    async def _append(self, id: str, key: SessionKey, entries: list[Entry]) -> None:
        session, folds = self._client.session(id), self._fold is not None and not key.get("subpath")
        meta: types.Meta = {"labels": labels_of(key), "state": {"claude": {"key": dict(key)}}}
        # The SDK resends a batch whose outcome was unknown: then under the same key.
        text = types.dump(entries)
        batch_key = self._open[id][1] if id in self._open and self._open[id][0] == text else "claude-" + str(uuid.uuid4())
        while True:
            known, fresh, summary, patch = self._known.get(id), entries, None, None
            if folds:
                if known is None:
                    known, fresh = await self._look(session, key, entries)
                    if not fresh:
                        self._open.pop(id, None)
                        return
                assert self._fold is not None
                summary = self._fold(known.summary, key, fresh)
                patch = summary_patch(summary)
            try:
                receipt = await session.append(*map(event_of, fresh), patch=patch, expect=known.last if known else None, key=batch_key, create=True, meta=meta)
            except errors.ConflictError:
                self._known.pop(id, None)
                continue
            except errors.IdReusedError as e:
                entries = [entry for entry in entries if id_of(entry) not in e.ids]
                if not entries:
                    return
                continue
            except errors.DeletedError:
                await self._again(id, meta)
                continue
            except errors.KeyReusedError:
                # The try whose outcome was unknown was stored, with a summary that would now be folded differently.
                self._open.pop(id, None)
                return
            except errors.OutcomeUnknown:
                self._open[id] = (text, batch_key)
                raise
            self._open.pop(id, None)
            if known is not None:
                await self._remember(session, key, known, fresh, summary, receipt, len(fresh) == len(entries))
            return

    async def _again(self, id: str, meta: types.Meta) -> None:
        """Makes a new session under a deleted id."""
        self._known.pop(id, None)
        try:
            await self._client.create(id, labels=meta["labels"], state=meta["state"], reuse=True)
        except errors.ExistsError:
            pass  # someone else made it first

    async def _look(self, session: AsyncSession, key: SessionKey, entries: list[Entry]) -> tuple[_Known, list[Entry]]:
        """Looks up the session, and which entries it does not have yet."""
        try:
            info = await session.info()
        except (errors.NotFoundError, errors.DeletedError):
            return _Known(0, None), entries
        summary = summary_of(info)
        if summary is None and info.last_seq > 0:  # written by another SDK, or by one without summaries
            assert self._fold is not None
            there = [e.data async for e in session.read() if is_entry(e) and e.seq <= info.last_seq]
            summary = self._fold(None, key, there) if there else None
        gate = asyncio.Semaphore(_LOOKUPS)

        async def new(entry: Entry) -> bool:
            id = id_of(entry)
            if id is None:
                return True
            async with gate:
                try:
                    await session.event(id)
                    return False
                except errors.NoEventError:
                    return True

        if info.last_seq == 0:
            return _Known(0, summary), entries
        found = await asyncio.gather(*map(new, entries))
        return _Known(info.last_seq, summary), [entry for entry, is_new in zip(entries, found) if is_new]

    async def _remember(self, session: AsyncSession, key: SessionKey, known: _Known, fresh: list[Entry], summary: Any, receipt: types.Receipt, all_new: bool) -> None:
        stored = [entry for entry, seq in zip(fresh, receipt.seqs or range(receipt.first, receipt.last + 1)) if seq >= receipt.first > 0]
        if len(stored) < len(fresh) and receipt.last:  # an earlier process had stored some of them: they must not be folded twice
            assert self._fold is not None
            right = self._fold(known.summary, key, stored) if stored or known.summary is None else known.summary
            try:
                await session.append(patch=summary_patch(right), expect=receipt.last)
            except errors.ConflictError:
                pass  # a later append has continued folding
            all_new = False
        if all_new:
            self._known[session.id] = _Known(receipt.last, summary)
            while len(self._known) > _REMEMBERED:
                self._known.pop(next(iter(self._known)))
        else:
            self._known.pop(session.id, None)

    async def load(self, key: SessionKey) -> Optional[list[Entry]]:
        try:
            return [e.data async for e in self._session(key).read() if is_entry(e)] or None
        except (errors.NotFoundError, errors.DeletedError):
            return None

    async def _keys(self, *parts: str) -> list[tuple[types.Info, dict[str, str]]]:
        prefix = ":".join([self._prefix, *map(part_of, parts)]) + ":"
        return [(i, i.state["claude"]["key"]) async for i in self._client.list(prefix=prefix) if isinstance(i.state, dict) and "claude" in i.state]

    async def list_sessions(self, project_key: str) -> list[dict[str, Any]]:
        return [{"session_id": key["session_id"], "mtime": mtime(i.updated)} for i, key in await self._keys(project_key) if "subpath" not in key]

    async def list_session_summaries(self, project_key: str) -> list[dict[str, Any]]:
        return [{**s, "mtime": mtime(i.updated)} for i, key in await self._keys(project_key) if "subpath" not in key and (s := summary_of(i))]

    async def list_subkeys(self, key: SessionKey) -> list[str]:
        return [k["subpath"] for _, k in await self._keys(key["project_key"], key["session_id"])]

    async def delete(self, key: SessionKey) -> None:
        ids = [self._id(key)]
        if not key.get("subpath"):
            ids += [i.id for i, _ in await self._keys(key["project_key"], key["session_id"])]
        for id in reversed(ids):  # the main transcript last: an interrupted delete is repeated from it
            self._known.pop(id, None)
            try:
                await self._client.session(id).delete()
            except (errors.NotFoundError, errors.DeletedError):
                pass


def part_of(text: str) -> str:
    """A part of an id: the text itself if it fits, else its hash."""
    return text if _PLAIN.fullmatch(text) else "~" + hashlib.sha256(text.encode()).hexdigest()[:32]


def labels_of(key: Mapping[str, str]) -> dict[str, str]:
    """The key for people, as far as it fits in labels."""
    return {"claude." + name: value for name, value in key.items() if value and len(value.encode()) <= 256 and value.isprintable()}


def id_of(entry: Entry) -> Optional[str]:
    id = entry.get("uuid")
    return id if isinstance(id, str) and 0 < len(id.encode()) <= 256 and id.isprintable() else None


def once(entries: list[Entry]) -> list[Entry]:
    """A batch without its duplicate entries."""
    seen: dict[Any, Entry] = {}
    for n, entry in enumerate(entries):
        seen.setdefault(id_of(entry) or n, entry)
    return list(seen.values())


def event_of(entry: Entry) -> types.NewEvent:
    kind, role = str(entry.get("type")), ""
    if kind in ("user", "assistant"):
        kind, role = "message", kind
    e: types.NewEvent = {"kind": "claude." + kind if kind != "message" else kind, "role": role, "raw": types.dump(entry).decode()}
    if (id := id_of(entry)) is not None:
        e["id"] = id
    return e


def is_entry(e: types.Event) -> bool:
    return (e.kind == "message" or e.kind.startswith("claude.")) and isinstance(e.data, dict)


def summary_patch(summary: Any) -> types.Patch:
    """It replaces the whole summary: a merge would keep removed members, and drop those that are null."""
    value = {"language": _LANGUAGE, "summary": dict(summary)}
    return cast(types.Patch, {"state_ops": [{"op": "add", "path": "/claude/fold", "value": value}]})


def summary_of(i: types.Info) -> Any:
    fold = i.state.get("claude", {}).get("fold") if isinstance(i.state, dict) else None
    return fold["summary"] if fold and fold.get("language") == _LANGUAGE else None


def mtime(t: datetime) -> int:
    return int(t.timestamp() * 1000)


def _sdk_fold() -> Optional[Fold]:
    try:
        from claude_agent_sdk import fold_session_summary  # type: ignore[import-not-found]
    except ImportError:
        return None
    return cast(Fold, fold_session_summary)
