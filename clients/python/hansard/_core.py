"""What both clients share: retries, unknown outcomes, resuming.

An append always has a key, the caller's or a generated one, so that it is stored once
however often it is sent. A read continues after the last event it returned. A server that
was never reached is an error at once; for one that was reached before, requests are
retried for `patience` seconds.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import random
import ssl
import time
import uuid
from datetime import datetime
from typing import Any, AsyncIterator, BinaryIO, Callable, Iterable, Mapping, Optional, Sequence, Union
from urllib.parse import quote, urlencode

from . import _http, errors, types
from ._http import Scope

PAUSE_MIN, PAUSE_MAX = 0.02, 1.0
# The server sends a sign of life on a stream every 15 seconds.
STREAM_SILENCE = 45.0
POLL_SECONDS = 25.0
# The minimum time between two checks of the turn that are prompted by a change of the session.
NOTICE = 0.1

Query = Sequence[tuple[str, Any]]
Body = Union[bytes, BinaryIO, Iterable[bytes]]


class Request:
    def __init__(self, method: str, path: str, query: Query = (), body: Optional[Any] = None, *, accept: str = "application/json",
                 headers: Mapping[str, str] = {}, data: Optional[bytes] = None, stream: Optional[Callable[[], Iterable[bytes]]] = None,
                 silence: float = 0.0, fresh: Optional[Callable[[], Any]] = None) -> None:  # fmt: skip
        self.method, self.path, self.accept, self.headers, self.stream, self.silence = method, path, accept, dict(headers), stream, silence
        self.fresh = fresh  # makes the body of each attempt, if it is not the same
        pairs = [(k, str(v)) for k, v in query if v is not None and v != "" and v is not False]
        if pairs:
            self.path += "?" + urlencode(pairs)
        self.body = data
        if body is not None or fresh is not None:
            self.body = types.dump(body)
            self.headers["Content-Type"] = "application/json"


def path_of(session: str, more: str = "") -> str:
    return "/v1/sessions/" + quote(session, safe="") + more


class Core:
    def __init__(self, io_class: Callable[[_http.Address], Any], address: str, token: str, patience: float, timeout: float, tls: Optional[ssl.SSLContext]) -> None:
        self.address = _http.Address(address, tls)
        self.token = token or self.address.token
        if any(ord(c) < 33 or ord(c) > 126 for c in self.token):
            raise ValueError("the token has characters that no token has")
        self.patience, self.timeout = patience, timeout
        self.io = io_class(self.address)
        self.pool = _http.Pool(self.io)
        self.reached = False
        self.closing = Scope()  # everything but writes ends with it

    def close(self) -> None:
        self.closing.end()
        self.pool.close()

    # -- requests ------------------------------------------------------------------

    def _head(self, q: Request) -> bytes:
        lines = [f"{q.method} {self.address.path}{q.path} HTTP/1.1", f"Host: {self.address.host_header}", f"Accept: {q.accept}"]
        if self.token:
            lines.append(f"Authorization: Bearer {self.token}")
        lines += [f"{k}: {v}" for k, v in q.headers.items()]
        if q.stream is not None:
            lines += ["Transfer-Encoding: chunked", "Expect: 100-continue"]
        elif q.body is not None or q.method in ("POST", "PUT"):
            lines.append(f"Content-Length: {len(q.body or b'')}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    async def _once(self, q: Request, scope: Scope, until: float, sent: _http.Sent) -> _http.Response:
        """Sends a request once. `sent` says whether the server may have acted on it."""
        sent.sent = False
        if q.fresh is not None:
            q.body = types.dump(q.fresh())
        try:
            res = await _http.send(self.pool, scope, self._head(q), q.body or b"", q.stream() if q.stream else None,
                                   until, q.silence or self.timeout, sent, q.method == "HEAD")  # fmt: skip
            self.reached = True
            if res.status < 300:
                sent.sent = False
                return res
            text = await res.all()
        except ssl.SSLError as e:
            raise errors.UnreachableError(f"{self.address.name}: {e}") from e
        except OSError as e:
            self.reached = self.reached or sent.sent
            raise errors.UnreachableError(f"the server at {self.address.name} can't be reached: {e}") from e
        error = self._refusal(res, text)
        sent.sent = isinstance(error, (errors.UnreachableError, errors.OutcomeUnknown))
        raise error

    def _refusal(self, res: _http.Response, text: bytes) -> errors.HansardError:
        if res.headers.get("content-type", "").startswith("application/problem+json"):
            try:
                problem = json.loads(text)
                if problem.get("type"):
                    return errors.from_problem(problem)
            except (ValueError, AttributeError):
                pass
        if res.status in (502, 503, 504):
            return errors.UnreachableError(f"something in front of {self.address.name} answers {res.status}")
        return errors.HansardError(f"{self.address.name} answers {res.status}, and not like a Hansard server: check the address")

    async def _do(self, q: Request, scope: Scope, until: float, again: bool = True) -> tuple[_http.Response, bool]:
        """Sends a request until it is answered, as long as a retry may help."""
        tries, uncertain, sent = _Tries(self), False, _http.Sent()
        while True:
            try:
                return await self._once(q, scope, until, sent), uncertain
            except errors.HansardError as e:
                uncertain = uncertain or sent.sent
                e.uncertain = uncertain  # type: ignore[attr-defined]
                if scope.ended:
                    closed = errors.ClosedError("it was closed")
                    closed.uncertain = uncertain  # type: ignore[attr-defined]
                    raise closed from e
                if time.monotonic() >= until:
                    late = errors.TimedOut("there was no answer in time")
                    late.uncertain = uncertain  # type: ignore[attr-defined]
                    raise late from e
                passing = isinstance(e, (errors.UnreachableError, errors.OutcomeUnknown, errors.ServerClosing))
                if isinstance(e.__cause__, ssl.SSLError):
                    passing = False
                unknown_place = not self.reached and e.__cause__ is not None and _http.nobody_there(e.__cause__)
                if not again or not passing or unknown_place or not tries.again():
                    raise
            await tries.pause(scope, until)

    async def answer(self, q: Request, *, scope: Optional[Scope] = None, until: float = math.inf, again: bool = True) -> tuple[Any, bool]:
        """Sends a request and reads its answer. The second value says whether an earlier try may have been executed."""
        tries, uncertain, scope = _Tries(self), False, scope or Scope()
        if self.closing.ended:
            raise errors.ClosedError("the client was closed")
        while True:
            try:
                res, unclear = await self._do(q, scope, until, again)
            except errors.HansardError as e:
                e.uncertain = uncertain or getattr(e, "uncertain", False)  # type: ignore[attr-defined]
                raise
            uncertain = uncertain or unclear
            try:
                text = await res.all()
            except OSError as e:
                uncertain = True
                if not again or scope.ended or time.monotonic() >= until or not tries.again():
                    away = errors.UnreachableError(f"the answer of {self.address.name} broke off: {e}")
                    away.uncertain = True  # type: ignore[attr-defined]
                    raise away from e
                await tries.pause(scope, until)
                continue
            if not text:
                return None, uncertain
            try:
                return json.loads(text), uncertain
            except ValueError as e:
                raise errors.OutcomeUnknown(f"{self.address.name} answers with something that is not JSON") from e

    def _until(self, timeout: Optional[float]) -> float:
        return math.inf if timeout is None else time.monotonic() + timeout

    # -- writes --------------------------------------------------------------------

    async def create(self, id: str, meta: Mapping[str, Any], timeout: Optional[float]) -> types.Info:
        # Without an id, a retry would make a second session.
        name = id or str(uuid.uuid4())
        return await self._make("/v1/sessions", {"id": name, **meta}, name, not id, timeout)

    async def fork(self, session: str, given: Mapping[str, Any], timeout: Optional[float]) -> types.Info:
        name = str(given.get("as") or uuid.uuid4())
        return await self._make(path_of(session, "/fork"), {**given, "as": name}, name, not given.get("as"), timeout)

    async def _make(self, path: str, body: Mapping[str, Any], name: str, own: bool, timeout: Optional[float]) -> types.Info:
        """Makes a session. One that exists may have been made by a try whose answer was lost; with a generated name it was."""
        until = self._until(timeout)
        try:
            return types.info((await self.answer(Request("POST", path, body=body), until=until))[0])
        except errors.ExistsError as e:
            if not own or not getattr(e, "uncertain", False):
                raise open_outcome(e, errors.ExistsError) from e.__cause__
            return types.info((await self.answer(Request("GET", path_of(name)), until=until))[0])
        except errors.HansardError as e:
            raise open_outcome(e) from e.__cause__

    async def append(self, session: str, events: Sequence[Mapping[str, Any]], *, patch: Optional[Mapping[str, Any]] = None, expect: Optional[int] = None,
                     turn: str = "", key: str = "", create: bool = False, meta: Optional[Mapping[str, Any]] = None,
                     timeout: Optional[float] = None) -> types.Receipt:  # fmt: skip
        body: dict[str, Any] = {"key": key or "auto-" + str(uuid.uuid4()), "create": create}
        if events:
            body["events"] = [types.given(e) for e in events]
        for name, value in (("patch", patch), ("expect", expect), ("turn", turn or None), ("meta", meta or None)):
            if value is not None:
                body[name] = value
        try:
            o, _ = await self.answer(Request("POST", path_of(session, "/events"), body=body), until=self._until(timeout))
        except errors.HansardError as e:
            refusals: list[type[errors.HansardError]] = [errors.HeldError, errors.BusyError, errors.NoSpaceError, errors.NotFoundError, errors.StoreFailedError]
            if patch and patch.get("state_ops"):
                # They can't be applied to the current state. An earlier try that is still under way may meet a different one.
                refusals += [errors.ConflictError, errors.InvalidError]
            raise open_outcome(e, *refusals) from e.__cause__
        r = types.receipt(o)
        if not key and r.first > 0 and r.replayed:
            r = types.Receipt(r.session, r.first, r.last, False, r.created, r.seqs)  # by the generated key: to the caller it is one append
        return r

    async def delete(self, session: str, turn: str, timeout: Optional[float]) -> None:
        try:
            await self.answer(Request("DELETE", path_of(session), [("turn", turn)]), until=self._until(timeout))
        except errors.DeletedError as e:
            if not getattr(e, "uncertain", False):
                raise
            # deleted by the try whose answer was lost, or by someone else: either way it is
        except errors.HansardError as e:
            raise open_outcome(e) from e.__cause__

    async def redact(self, session: str, seqs: Sequence[int], reason: str, turn: str, timeout: Optional[float]) -> types.Receipt:
        body = {"seqs": list(seqs), "reason": reason, "turn": turn}
        try:
            o, _ = await self.answer(Request("POST", path_of(session, "/redact"), body=body), until=self._until(timeout))
        except errors.HansardError as e:
            raise open_outcome(e, errors.HeldError, errors.BusyError, errors.NoSpaceError, errors.StoreFailedError) from e.__cause__
        return types.receipt(o)

    async def prune(self, scrub: bool, timeout: Optional[float]) -> Any:
        return (await self.answer(Request("POST", "/v1/prune", body={"scrub": scrub}), until=self._until(timeout)))[0]

    # -- reads ---------------------------------------------------------------------

    async def export(self, session: str, format: str) -> AsyncIterator[bytes]:
        """A session as a file. If the connection breaks it fails: a part must not be taken for the whole."""
        if self.closing.ended:
            raise errors.ClosedError("the client was closed")
        res, _ = await self._do(Request("GET", path_of(session, "/export"), [("format", format)], accept="*/*"), self.closing, math.inf)
        pieces = res.pieces()
        try:
            async for piece in pieces:
                yield piece
        except OSError as e:
            raise errors.UnreachableError(f"the export broke off: {e}") from e
        finally:
            await pieces.aclose()
            res.close()

    async def get(self, path: str, query: Query = (), timeout: Optional[float] = None) -> Any:
        return (await self.answer(Request("GET", path, query), scope=self.closing, until=self._until(timeout)))[0]

    async def _lines(self, next_request: Callable[[], Optional[Request]], scope: Scope) -> AsyncIterator[dict[str, Any]]:
        """The objects of a response, one per line. When the connection breaks, or the server shuts down, it asks again."""
        tries = _Tries(self)
        while True:
            q = next_request()
            if q is None:
                return
            if self.closing.ended:
                raise errors.ClosedError("the client was closed")
            res, _ = await self._do(q, scope, math.inf)
            try:
                lines = res.lines()
                async for line in lines:
                    o = json.loads(line or b"{}")
                    if set(o) == {"problem"}:
                        error = errors.from_problem(o["problem"])
                        if isinstance(error, errors.ServerClosing):
                            raise _http.BrokenOff(str(error)) from error  # another server, or the same one later, has the rest
                        raise error
                    tries = _Tries(self)
                    if line:
                        yield o
                return
            except OSError as e:
                if scope.ended:
                    raise errors.ClosedError("it was closed") from e
                if next_request() is None:
                    raise errors.UnreachableError(f"the answer of {self.address.name} broke off: {e}") from e
                if not tries.again():
                    raise errors.UnreachableError(f"the answers of {self.address.name} break off: {e}") from e
            finally:
                await lines.aclose()
                res.close()
            await tries.pause(scope, math.inf)

    async def read(self, session: str, r: dict[str, Any]) -> AsyncIterator[types.Event]:
        """Events of a range; a connection that continues it begins after the last one."""
        rest: Optional[dict[str, Any]] = dict(r)
        kinds = rest.pop("kinds", ()) if rest else ()

        def ask() -> Optional[Request]:
            if rest is None:
                return None
            q: list[tuple[str, Any]] = [(k, "true" if v is True else v) for k, v in rest.items() if v]
            return Request("GET", path_of(session, "/events"), q + [("kind", k) for k in kinds], accept="application/x-ndjson")

        objects = self._lines(ask, self.closing)
        try:
            async for o in objects:
                e = types.event(o)
                rest = rest_of(rest, e) if rest is not None else None
                yield e
        except errors.UnreachableError:
            if rest is not None:
                raise
            # all of it had arrived
        finally:
            await objects.aclose()  # type: ignore[attr-defined]

    async def list(self, query: Query) -> AsyncIterator[types.Info]:
        async for o in self._whole("/v1/sessions", query):
            yield types.info(o)

    async def search(self, query: Query) -> AsyncIterator[types.Hit]:
        async for o in self._whole("/v1/search", query):
            yield types.hit(o)

    async def _whole(self, path: str, query: Query) -> AsyncIterator[dict[str, Any]]:
        given = False

        def ask() -> Optional[Request]:
            # The rest of a list that was cut off may have changed.
            return None if given else Request("GET", path, query, accept="application/x-ndjson")

        objects = self._lines(ask, self.closing)
        try:
            async for o in objects:
                given = True
                yield o
        finally:
            await objects.aclose()  # type: ignore[attr-defined]

    async def follow(self, session: str, after: int, scope: Scope) -> AsyncIterator[types.Event]:
        """Events as they arrive, each once and in order, over one connection after another."""
        pause, created = PAUSE_MIN, ""
        while not scope.ended:
            if self.closing.ended:
                raise errors.ClosedError("the client was closed")
            q = Request("GET", path_of(session, "/events/stream"), [("after", after), ("created", created)], accept="text/event-stream", silence=STREAM_SILENCE)
            self.closing.add(scope_wire := _Ender(scope))
            try:
                res, _ = await self._do(q, scope, math.inf)
                # A reconnect must get this session, and not another one that has its id by then.
                created = created or res.headers.get("hansard-created", "")
                frames = _frames(res)
                try:
                    async for name, data in frames:
                        if name == "message":
                            e = types.event(json.loads(data))
                            if e.seq <= after:
                                continue
                            after, pause = e.seq, PAUSE_MIN
                            yield e
                        elif name == "problem":
                            error = errors.from_problem(json.loads(data))
                            if not isinstance(error, errors.ServerClosing):
                                raise error
                        elif name == "dropped":
                            break  # too slow: continue after the last event
                except OSError:
                    pass  # reconnect
                finally:
                    await frames.aclose()
                    res.close()
            except errors.ClosedError:
                if self.closing.ended:
                    raise
                return
            finally:
                self.closing.drop(scope_wire)
            if scope.ended:
                break
            await self.io.sleep(pause * (0.5 + random.random()), scope)
            pause = min(2 * pause, PAUSE_MAX)
        if self.closing.ended:
            raise errors.ClosedError("the client was closed")

    async def wait(self, session: str, after: int, scope: Scope, until: float) -> None:
        """Returns when the session has an event past `after`."""
        pause = PAUSE_MIN
        while True:
            asked = time.monotonic()
            left = min(POLL_SECONDS, until - asked)
            if left <= 0:
                raise errors.TimedOut("nothing happened in time")
            q = Request("GET", path_of(session, "/events"), [("after", after), ("limit", 1), ("wait_ms", int(left * 1000) + 1)], silence=POLL_SECONDS + self.timeout)
            page, _ = await self.answer(q, scope=scope, until=until + 1)
            if page["last_seq"] > after:
                return
            if time.monotonic() - asked > PAUSE_MAX:
                pause = PAUSE_MIN
                continue
            # It did not wait: it is about to shut down.
            await self.io.sleep(min(pause, max(0.0, until - time.monotonic())), scope)
            pause = min(2 * pause, PAUSE_MAX)

    # -- turns ---------------------------------------------------------------------

    async def acquire(self, session: str, claim: Mapping[str, Any], scope: Optional[Scope] = None) -> types.Grant:
        name, began, wait = str(uuid.uuid4()), time.monotonic(), claim.get("wait_ms", 0)

        def fresh() -> Mapping[str, Any]:
            # A claim that is sent again has waited before.
            left = wait if wait <= 0 else max(0, wait - int((time.monotonic() - began) * 1000))
            return {**claim, "claim": name, "wait_ms": left}

        q = Request("POST", path_of(session, "/turn"), fresh=fresh, silence=math.inf if wait < 0 else wait / 1000 + self.timeout)
        try:
            return types.grant((await self.answer(q, scope=scope or self.closing))[0])
        except errors.HansardError as e:
            if not isinstance(e, errors.ClosedError):
                raise open_outcome(e) from e.__cause__
            await self._withdraw(session, name)
            raise
        except BaseException:  # cancelled, or interrupted: a grant that is under way must not be left behind
            await self._withdraw(session, name)
            raise

    async def _withdraw(self, session: str, name: str) -> None:
        q = Request("DELETE", path_of(session, "/turn"), body={"claim": name})
        try:
            res, _ = await self._do(q, Scope(), time.monotonic() + 2)  # also if the client is closed
            await res.all()
        except (errors.HansardError, OSError):
            pass  # the grant is left to its TTL

    async def renew(self, session: str, grant: str, scope: Optional[Scope] = None, until: float = math.inf) -> None:
        await self.answer(Request("PUT", path_of(session, "/turn"), body={"grant": grant}), scope=scope, until=until)

    async def release(self, session: str, grant: str, timeout: Optional[float] = 30.0) -> None:
        try:
            await self.answer(Request("DELETE", path_of(session, "/turn"), body={"grant": grant}), until=self._until(timeout))
        except errors.FencedError as e:
            if not getattr(e, "uncertain", False):
                raise
            # released by the try whose answer was lost, or taken by someone else: either way it is given up
        except errors.HansardError as e:
            raise open_outcome(e) from e.__cause__

    async def keep(self, session: str, t: types.Grant, scope: Scope, asked: float) -> errors.HansardError:
        """Renews a turn until the scope ends or the turn is lost; returns the reason.

        The session's own events wake it, so that a stolen turn is noticed at once and not at
        the next renewal.
        """
        every, began, renewed, seen, watch = t.ttl / 3, asked, asked, t.seq, True
        while not scope.ended:
            due = renewed + every
            if t.max_hold:
                due = min(due, began + t.max_hold)
            changed = await self._pause(session, due, seen if watch else 0, scope)
            if scope.ended:
                break
            now = time.monotonic()
            if t.max_hold and now >= began + t.max_hold:
                return errors.FencedError("the turn was held for its whole max_hold")
            # A server that does not answer must not let the holder believe that it still has the turn.
            until = renewed + t.ttl
            try:
                if changed:
                    o, _ = await self.answer(Request("GET", path_of(session)), scope=scope, until=until)
                    if not o.get("turn") or o["turn"].get("grant") != t.grant:
                        return errors.FencedError("somebody else has the turn", {"type": "/problems/fenced", "holder": o.get("turn")})
                    seen = o["last_seq"]
                now = time.monotonic()
                if now >= renewed + every:
                    await self.renew(session, t.grant, scope, until)
                    renewed = now
            except (errors.FencedError, errors.DeletedError, errors.NotFoundError) as e:
                return e
            except Exception as e:  # also an answer that is not the server's: it must not end the renewals in silence
                if scope.ended:
                    break
                if isinstance(e, (errors.MissingRightError, errors.UnauthorizedError)):
                    watch = False  # a token that can't read can still renew
                if self.closing.ended or time.monotonic() >= until:
                    lost = errors.FencedError(f"the turn could not be renewed for {t.ttl:g} s: {e}")
                    lost.__cause__ = e
                    return lost
                await self.io.sleep(min(every / 4, 1.0), scope)
        return errors.ClosedError("the turn was released")

    async def _pause(self, session: str, due: float, seen: int, scope: Scope) -> bool:
        """Waits for a time or, if `seen` is not 0, until the session changes or is gone."""
        left = due - time.monotonic()
        if not seen or left <= NOTICE:
            await self.io.sleep(max(0.0, left), scope)
            return False
        await self.io.sleep(NOTICE, scope)
        try:
            if not scope.ended:
                await self.wait(session, seen, scope, due)
        except errors.TimedOut:
            return False
        except Exception:
            pass  # a change, too: the session was deleted, for example
        return time.monotonic() < due

    # -- attachments ---------------------------------------------------------------

    async def attach(self, session: str, body: Body, timeout: Optional[float]) -> types.Attachment:
        path, headers, sum = path_of(session, "/attachments"), {"Content-Type": "application/octet-stream"}, hashlib.sha256()
        if isinstance(body, (bytes, bytearray, memoryview)):
            data = bytes(body)
            sum.update(data)
            headers["Repr-Digest"] = "sha-256=:" + base64.b64encode(sum.digest()).decode() + ":"
            q = Request("POST", path, data=data, headers=headers)  # sent again, it is the same attachment
        else:
            given = body
            q = Request("POST", path, headers=headers, stream=lambda: _hashed(given, sum))
        # What was read from a stream can't be read again.
        o, _ = await self.answer(q, until=self._until(timeout), again=q.stream is None)
        if o["digest"] != "sha256:" + sum.hexdigest():
            raise errors.HansardError(f"{self.address.name} has stored something else than was sent")
        return types.attachment(o)

    async def attachment(self, session: str, digest: str) -> AsyncIterator[bytes]:
        """The bytes of an attachment. If the connection breaks, a new one continues where it stopped."""
        at, size, tries, sum = 0, -1, 0, hashlib.sha256()
        while size < 0 or at < size:
            q = Request("GET", path_of(session, "/attachments/" + quote(digest, safe=":")), accept="*/*", headers={"Range": f"bytes={at}-"} if at else {})
            if self.closing.ended:
                raise errors.ClosedError("the client was closed")
            res, _ = await self._do(q, self.closing, math.inf)
            pieces = res.pieces()
            try:
                if at and res.status != 206:
                    raise errors.HansardError(f"{self.address.name} does not give parts")
                if size < 0:
                    size = int(res.headers.get("content-length", "0"))
                async for piece in pieces:
                    at, tries = at + len(piece), 0
                    sum.update(piece)
                    yield piece
            except OSError as e:
                tries += 1
                if tries > 5 or self.closing.ended:
                    raise errors.UnreachableError(f"the attachment broke off: {e}") from e
            finally:
                await pieces.aclose()
                res.close()
        if "sha256:" + sum.hexdigest() != digest:
            raise errors.DamagedError("the attachment is not what its digest says")

    async def attachments(self, session: str) -> AsyncIterator[types.Attachment]:
        async for o in self._whole(path_of(session, "/attachments"), ()):
            yield types.attachment(o)


class _Tries:
    """Attempts at one thing. Patience begins with the first failure: how long it took until then does not count."""

    def __init__(self, core: Core) -> None:
        self._core, self._since, self._pause = core, math.inf, PAUSE_MIN

    def again(self) -> bool:
        """Whether there is to be another attempt after one has failed."""
        self._since = min(self._since, time.monotonic())
        return time.monotonic() - self._since <= self._core.patience and not self._core.closing.ended

    async def pause(self, scope: Scope, until: float) -> None:
        await self._core.io.sleep(min(self._pause * (0.5 + random.random()), max(0.0, until - time.monotonic())), scope)
        self._pause = min(2 * self._pause, PAUSE_MAX)


class _Ender:
    """Lets the end of one scope end another."""

    def __init__(self, scope: Scope) -> None:
        self.shut = scope.end


def _hashed(body: Union[BinaryIO, Iterable[bytes]], sum: Any) -> Iterable[bytes]:
    """The pieces of a body, small ones joined."""
    read, held = getattr(body, "read", None), bytearray()
    for piece in iter(lambda: read(1 << 16), b"") if read else body:
        sum.update(piece)
        held += piece
        if len(held) >= 1 << 16:
            yield bytes(held)
            held.clear()
    yield bytes(held)


def open_outcome(e: errors.HansardError, *refusals: type[errors.HansardError]) -> errors.HansardError:
    """The error of a write. It is OutcomeUnknown if a try may have been, or may still be, executed:
    when no answer arrived, and for those refusals of a retry that say nothing about the first try."""
    if not getattr(e, "uncertain", False) or isinstance(e, errors.OutcomeUnknown):
        return e
    unclear = (
        errors.UnreachableError, errors.TimedOut, errors.ClosedError, errors.ServerClosing, errors.UnauthorizedError, errors.MissingRightError,
        errors.OverloadedError, errors.TooManyRequestsError, *refusals,
    )  # fmt: skip
    if isinstance(e, unclear) or type(e) is errors.HansardError:
        unknown = errors.OutcomeUnknown(f"it may or may not be stored: {e}", e.problem)
        unknown.__cause__ = e
        return unknown
    return e


def rest_of(r: dict[str, Any], e: types.Event) -> Optional[dict[str, Any]]:
    """What is left of a range after an event; None if nothing is."""
    if r.get("id"):
        return None
    r = dict(r)
    if r.get("reverse"):
        r["before"] = e.seq
        from_kind = "summary" if r.get("from_summary") else r.get("from_kind")
        if e.seq <= 1 or from_kind and e.kind == from_kind:
            return None
    else:
        r["after"] = e.seq
        for name in ("last", "from_kind", "from_summary", "after_id"):
            r.pop(name, None)
    for name in ("limit", "last"):
        if r.get(name):
            r[name] -= 1
            if r[name] == 0:
                return None
    return r


async def _frames(res: _http.Response) -> AsyncIterator[tuple[str, str]]:
    """Server-sent events: their names and data."""
    name, data = "message", []
    lines = res.lines()
    try:
        async for line in lines:
            text = line.rstrip(b"\r").decode()
            if not text:
                if data:
                    yield name, "\n".join(data)
                name, data = "message", []
                continue
            field, _, value = text.partition(":")
            value = value.removeprefix(" ")
            if field == "event":
                name = value
            elif field == "data":
                data.append(value)
    finally:
        await lines.aclose()


def parameters(plain: Mapping[str, Any], *, flags: Mapping[str, bool] = {}, times: Mapping[str, Optional[datetime]] = {}, ids: Sequence[str] = (),
               labels: Mapping[str, str] = {}) -> Query:  # fmt: skip
    """Parameters of a route; what says nothing is left out."""
    q: list[tuple[str, Any]] = [(k, v) for k, v in plain.items() if v]
    q += [(k, "true") for k, v in flags.items() if v]
    q += [(k, t.isoformat()) for k, t in times.items() if t is not None]
    return q + [("id", i) for i in ids] + [("label", f"{k}={v}") for k, v in labels.items()]
