"""Client of Hansard, the session store for AI agents.

    from hansard import Client, message

    with Client("http://127.0.0.1:4267", token=os.environ["HANSARD_TOKEN"]) as store:
        chat = store.session("demo")
        chat.append(message("user", "Hello"), create=True)
        for event in chat.read():
            print(event.seq, event.role, event.data)

[AsyncClient] is the same for asyncio. `hansard.openai_agents` and `hansard.claude` are the
sessions of the OpenAI Agents SDK and of the Claude Agent SDK.
"""

from .aio import AsyncClient, AsyncSession, AsyncTurn
from .client import Client, Follower, Session, Turn
from .errors import (
    BusyError,
    ClosedError,
    ConflictError,
    DamagedError,
    DeletedError,
    ExistsError,
    FencedError,
    HansardError,
    HeldError,
    IdReusedError,
    InvalidError,
    KeyReusedError,
    MissingRightError,
    NoAttachmentError,
    NoEventError,
    NoSpaceError,
    NotFoundError,
    OutcomeUnknown,
    OverloadedError,
    ReadOnlyError,
    StoreFailedError,
    TimedOut,
    TooLargeError,
    TooManyRequestsError,
    UnauthorizedError,
    UnreachableError,
    UnreadableError,
)
from .types import Attachment, Event, Grant, Hit, Info, Meta, NewEvent, Patch, Receipt, StateOp, message

__all__ = [
    "AsyncClient", "AsyncSession", "AsyncTurn", "Attachment", "BusyError", "Client", "ClosedError", "ConflictError", "DamagedError", "DeletedError",
    "Event", "ExistsError", "FencedError", "Follower", "Grant", "HansardError", "HeldError", "Hit", "IdReusedError", "Info", "InvalidError", "KeyReusedError",
    "Meta", "MissingRightError", "NewEvent", "NoAttachmentError", "NoEventError", "NoSpaceError", "NotFoundError", "OutcomeUnknown", "OverloadedError",
    "Patch", "ReadOnlyError", "Receipt", "Session", "StateOp", "StoreFailedError", "TimedOut", "TooLargeError", "TooManyRequestsError", "Turn",
    "UnauthorizedError", "UnreachableError", "UnreadableError", "message",
]  # fmt: skip
