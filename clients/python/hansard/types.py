"""The types that the store keeps and returns."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Mapping, Optional, TypedDict, Union

Json = Any


class NewEvent(TypedDict, total=False):
    """An event to append. `data` is any JSON value; `raw` is its text, for exact bytes."""

    kind: str
    role: str
    author: str
    id: str
    at: Union[datetime, str]
    inbox: bool
    attachments: list[dict[str, Any]]
    data: Json
    raw: str


class StateOp(TypedDict, total=False):
    """One operation of JSON Patch: add, replace, remove or test."""

    op: str
    path: str
    value: Json


class Patch(TypedDict, total=False):
    """A change to a session's metadata and state."""

    title: str
    labels: dict[str, Optional[str]]
    state: Json
    state_ops: list[StateOp]


class Meta(TypedDict, total=False):
    """What a session is created with."""

    title: str
    labels: dict[str, str]
    state: Json
    reuse: bool


@dataclass(frozen=True)
class Attachment:
    digest: str
    size: int
    media_type: str = ""
    name: str = ""

    def named(self, name: str = "", media_type: str = "") -> dict[str, Any]:
        """The attachment as an event names it."""
        return {"digest": self.digest, "size": self.size, **({"media_type": media_type} if media_type else {}), **({"name": name} if name else {})}


@dataclass(frozen=True)
class Event:
    seq: int
    time: datetime
    kind: str
    role: str
    author: str
    data: Json
    turn: str = ""
    by: str = ""
    id: str = ""
    at: Optional[datetime] = None
    inbox: bool = False
    patch: Optional[Patch] = None
    attachments: tuple[Attachment, ...] = ()
    redacted: bool = False
    redacts: tuple[int, ...] = ()
    fork: Optional[Mapping[str, Any]] = None


@dataclass(frozen=True)
class Receipt:
    session: str
    first: int
    last: int
    replayed: bool = False
    created: bool = False
    seqs: tuple[int, ...] = ()


@dataclass(frozen=True)
class Grant:
    """The grant of a session's turn, as the server describes it."""

    grant: str
    seq: int
    since: datetime
    ttl: float
    max_hold: float = 0.0
    exclusive: bool = False
    holder: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""
    by: str = ""


@dataclass(frozen=True)
class Info:
    id: str
    title: str
    labels: Mapping[str, str]
    state: Json
    created: datetime
    updated: datetime
    last_seq: int
    bytes: int = 0
    turn: Optional[Grant] = None
    damaged: bool = False
    damage: Optional[Mapping[str, Any]] = None
    unreadable: str = ""
    preview: str = ""
    parent: Optional[Mapping[str, Any]] = None


@dataclass(frozen=True)
class Hit:
    """An event that a search found. `marks` are pairs of byte offsets in the snippet, from and to."""

    session: str
    seq: int
    time: datetime
    kind: str
    role: str
    author: str
    title: str
    snippet: str
    marks: tuple[tuple[int, int], ...]
    score: float
    id: str = ""


_FRACTION = re.compile(r"\.(\d+)")


def when(text: str) -> datetime:
    """Parses a time of the server. Python before 3.11 reads neither Z nor nine digits."""
    text = _FRACTION.sub(lambda m: "." + m[1][:6].ljust(6, "0"), text).replace("Z", "+00:00")
    return datetime.fromisoformat(text)


def event(o: Mapping[str, Any]) -> Event:
    return Event(
        seq=o["seq"],
        time=when(o["time"]),
        kind=o["kind"],
        role=o.get("role", ""),
        author=o.get("author", ""),
        data=json.loads(o["raw"]) if "raw" in o else o.get("data"),
        turn=o.get("turn", ""),
        by=o.get("by", ""),
        id=o.get("id", ""),
        at=when(o["at"]) if o.get("at") else None,
        inbox=o.get("inbox", False),
        patch=o.get("patch"),
        attachments=tuple(attachment(a) for a in o.get("attachments", ())),
        redacted=o.get("redacted", False),
        redacts=tuple(o.get("redacts", ())),
        fork=o.get("fork"),
    )


def attachment(o: Mapping[str, Any]) -> Attachment:
    return Attachment(o["digest"], o["size"], o.get("media_type", ""), o.get("name", ""))


def hit(o: Mapping[str, Any]) -> Hit:
    return Hit(
        o["session"], o["seq"], when(o["time"]), o.get("kind", ""), o.get("role", ""), o.get("author", ""), o.get("title", ""), o.get("snippet", ""),
        tuple((m["start"], m["end"]) for m in o.get("marks") or ()), o.get("score", 0.0), o.get("id", ""),
    )  # fmt: skip


def receipt(o: Mapping[str, Any]) -> Receipt:
    return Receipt(o["session"], o["first"], o["last"], o.get("replayed", False), o.get("created", False), tuple(o.get("seqs", ())))


def grant(o: Mapping[str, Any]) -> Grant:
    return Grant(
        o.get("grant", ""), o["seq"], when(o["since"]), o.get("ttl_ms", 0) / 1000, o.get("max_hold_ms", 0) / 1000,
        o.get("exclusive", False), o.get("holder") or {}, o.get("reason", ""), o.get("by", ""),
    )  # fmt: skip


def info(o: Mapping[str, Any]) -> Info:
    zero = "0001-01-01T00:00:00Z"
    return Info(
        o["id"], o.get("title", ""), o.get("labels") or {}, o.get("state"), when(o.get("created") or zero), when(o.get("updated") or zero),
        o.get("last_seq", 0), o.get("bytes", 0), grant(o["turn"]) if o.get("turn") else None, o.get("damaged", False), o.get("damage"),
        o.get("unreadable", ""), o.get("preview", ""), o.get("parent"),
    )  # fmt: skip


def dump(value: Json) -> bytes:
    """JSON as JavaScript writes it, so that both clients give an event the same bytes."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which only an escape can represent
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def given(e: Mapping[str, Any]) -> dict[str, Any]:
    """An event in the form in which it is sent."""
    out = dict(e)
    at = out.get("at")
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise ValueError("at has no time zone")
        out["at"] = at.astimezone(timezone.utc).isoformat()
    return out


def message(role: str, text: str, **more: Any) -> NewEvent:
    """A message of plain text."""
    out: NewEvent = {"role": role, "data": text}
    out.update(more)  # type: ignore[typeddict-item]
    return out
