"""A Session for the OpenAI Agents SDK.

    session = HansardSession("demo", AsyncClient(address, token))
    await Runner.run(agent, "What is the capital of Peru?", session=session)

An item is an event, in the shape in which the server's Conversations routes keep items, so that
both see the same history. Popping an item and clearing the session append events that hide
items; the log keeps them. Two programs that pop at once never pop the same item.
"""

from __future__ import annotations

from typing import Any, Optional

from . import errors, types
from .aio import AsyncClient

Item = dict[str, Any]

DELETED, CLEARED, OTHER = "item_deleted", "items_cleared", "item"
_RESERVED = (DELETED, CLEARED, OTHER, "turn", "meta", "summary", "redaction", "fork")
_ROLES = {"assistant": "assistant", "agent": "assistant", "model": "assistant", "ai": "assistant", "system": "system", "developer": "developer"}


class HansardSession:
    """The history of one conversation; `session_id` is the id of the session in the store."""

    session_settings: Any = None

    def __init__(self, session_id: str, client: AsyncClient) -> None:
        self.session_id, self._session = session_id, client.session(session_id)

    async def get_items(self, limit: Optional[int] = None) -> list[Item]:
        if limit is None:
            limit = getattr(self.session_settings, "limit", None)
        if limit is not None and limit <= 0:
            return []
        items = [item async for item, _, _ in self._newest(limit)]
        items.reverse()
        return items

    async def add_items(self, items: list[Item]) -> None:
        if items:
            await self._session.append(*map(event_of, items), create=True)

    async def pop_item(self) -> Optional[Item]:
        while True:
            async for item, seq, last in self._newest(1):
                try:
                    await self._session.append({"kind": DELETED, "data": {"seq": seq}}, expect=last)
                    return item
                except errors.ConflictError:
                    break  # something was appended in between
            else:
                return None

    async def clear_session(self) -> None:
        try:
            await self._session.append({"kind": CLEARED, "data": {}})
        except errors.NotFoundError:
            pass  # it has no items

    async def _newest(self, limit: Optional[int]) -> Any:
        """Items that are not hidden, newest first, with their seq and the last seq of the session."""
        hidden: set[int] = set()
        last, given = 0, 0
        events = self._session.read(reverse=True, from_kind=CLEARED)
        try:
            async for e in events:
                last = last or e.seq
                if e.kind == DELETED and isinstance(e.data, dict):
                    hidden.add(e.data.get("seq", 0))
                elif e.seq not in hidden and (item := item_of(e)) is not None:
                    given += 1
                    yield item, e.seq, last
                    if given == limit:
                        return
        except errors.NotFoundError:
            return
        finally:
            await events.aclose()  # type: ignore[attr-defined]


def kind_of(item: Item) -> str:
    kind = item.get("type", "message")
    if not isinstance(kind, str) or kind in _RESERVED or not 0 < len(kind.encode()) <= 256:
        return OTHER
    return "tool_call" if kind.endswith("_call") else "tool_result" if kind.endswith("_output") else kind


def event_of(item: Item) -> types.NewEvent:
    role = item.get("role")
    return {"kind": kind_of(item), "role": role if isinstance(role, str) else "", "raw": types.dump(item).decode()}


def item_of(e: types.Event) -> Optional[Item]:
    """The item that an event is, if any: events of others are items if they have the shape, or are plain text."""
    text = e.data.get("text") if isinstance(e.data, dict) and "type" not in e.data and "content" not in e.data else e.data
    if e.kind == "message" and isinstance(text, str):
        return {"role": _ROLES.get(e.role, "user"), "content": text}
    return e.data if isinstance(e.data, dict) and kind_of(e.data) == e.kind else None
