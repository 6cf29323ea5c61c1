"""HTTP/1.1 for both clients, the blocking and the asyncio one.

All code above the sockets is written once, as coroutines. With [Blocking] underneath,
no coroutine ever suspends, so [run] can finish it without an event loop.
"""

from __future__ import annotations

import asyncio
import errno
import math
import select
import socket
import ssl
import threading
import time
from typing import Any, AsyncIterator, Coroutine, Iterable, Optional, TypeVar
from urllib.parse import urlsplit

T = TypeVar("T")

CONNECT_SECONDS = 5.0
IDLE_SECONDS = 60.0
MAX_HEAD = 64 << 10


def run(work: Coroutine[Any, Any, T]) -> T:
    """Finishes a coroutine that never suspends."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    work.close()
    raise RuntimeError("a coroutine of the blocking client was suspended")


class BrokenOff(ConnectionError):
    """A response that was cut off."""


class Scope:
    """Something that may be ended from outside: a follower, the renewals of a turn."""

    def __init__(self) -> None:
        self.ended = False
        self.wake = threading.Event()
        self._wires: set[Any] = set()
        self._lock = threading.Lock()

    def add(self, wire: Any) -> None:
        with self._lock:
            self._wires.add(wire)
            late = self.ended
        if late:
            wire.shut()

    def drop(self, wire: Any) -> None:
        with self._lock:
            self._wires.discard(wire)

    def end(self) -> None:
        with self._lock:
            self.ended = True
            wires = list(self._wires)
        self.wake.set()
        for wire in wires:
            wire.shut()


class Address:
    """Where a server is: http://HOST:PORT, https://HOST or unix:PATH, perhaps with #token=."""

    def __init__(self, address: str, tls: Optional[ssl.SSLContext]) -> None:
        self.path, self.token, self.unix, self.tls = "", "", "", tls
        if address.startswith("unix:"):
            self.unix, self.name, self.host_header = address[5:], address, "localhost"
            if not self.unix:
                raise ValueError("the address names no socket")
            return
        u = urlsplit(address)
        if u.scheme not in ("http", "https") or not u.hostname:
            raise ValueError("the address is not http://HOST, https://HOST or unix:PATH")
        if u.username or u.password or u.query:
            raise ValueError("the address has a user, a password or a query; a token is what a server wants")
        if u.fragment.startswith("token="):
            self.token = u.fragment[6:]
        self.host, self.port = u.hostname, u.port or (443 if u.scheme == "https" else 80)
        self.host_header, self.path = u.netloc, u.path.rstrip("/")
        self.name = f"{u.scheme}://{u.netloc}{self.path}"
        if u.scheme == "https":
            self.tls = tls or ssl.create_default_context()
        else:
            self.tls = None


def _left(until: float) -> Optional[float]:
    if until == math.inf:
        return None
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError("no answer in time")
    return left


class BlockingWire:
    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    async def read(self, until: float) -> bytes:
        self.sock.settimeout(_left(until))
        return self.sock.recv(65536)

    async def write(self, data: bytes, until: float) -> None:
        self.sock.settimeout(_left(until))
        self.sock.sendall(data)

    def usable(self) -> bool:
        # Nobody sends anything on an idle connection: what can be read is its end.
        try:
            return not select.select([self.sock], [], [], 0)[0]
        except ValueError:  # too many files are open for select
            return True

    def shut(self) -> None:
        """Wakes a reader in another thread."""
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def close(self) -> None:
        self.sock.close()


class Blocking:
    def __init__(self, address: Address) -> None:
        self.address = address

    async def connect(self, until: float) -> BlockingWire:
        a, left = self.address, min(_left(until) or math.inf, CONNECT_SECONDS)
        if a.unix:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                sock.settimeout(left)
                sock.connect(a.unix)
            except BaseException:
                sock.close()
                raise
            return BlockingWire(sock)
        sock = socket.create_connection((a.host, a.port), timeout=left)
        try:
            tune(sock)
            if a.tls:
                sock = a.tls.wrap_socket(sock, server_hostname=a.host)
        except BaseException:
            sock.close()
            raise
        return BlockingWire(sock)

    async def sleep(self, seconds: float, scope: Scope) -> None:
        scope.wake.wait(seconds)


class AsyncWire:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer, self.loop = reader, writer, asyncio.get_running_loop()

    async def read(self, until: float) -> bytes:
        return await _within(self.reader.read(65536), until)

    async def write(self, data: bytes, until: float) -> None:
        self.writer.write(data)
        await _within(self.writer.drain(), until)

    def usable(self) -> bool:
        return self.loop is asyncio.get_running_loop() and not self.reader.at_eof()

    def shut(self) -> None:
        self.close()

    def close(self) -> None:
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.writer.close)


async def _within(work: Coroutine[Any, Any, T], until: float) -> T:
    """Not asyncio.wait_for, which before Python 3.12 may lose the cancellation of its caller."""
    try:
        left = _left(until)
    except TimeoutError:
        work.close()
        raise
    if left is None:
        return await work
    task, over = asyncio.current_task(), False
    assert task is not None

    def end() -> None:
        nonlocal over
        over = True
        task.cancel()

    timer = asyncio.get_running_loop().call_later(left, end)
    try:
        return await work
    except asyncio.CancelledError:
        # Python 3.11 counts cancellations: is there one besides ours?
        if not over or hasattr(task, "uncancel") and task.uncancel() > 0:
            raise
        raise TimeoutError("no answer in time") from None
    finally:
        timer.cancel()


class Asyncio:
    def __init__(self, address: Address) -> None:
        self.address = address

    async def connect(self, until: float) -> AsyncWire:
        a, until = self.address, min(until, time.monotonic() + CONNECT_SECONDS)
        if a.unix:
            return AsyncWire(*await _within(asyncio.open_unix_connection(a.unix), until))
        reader, writer = await _within(
            asyncio.open_connection(a.host, a.port, ssl=a.tls, server_hostname=a.host if a.tls else None), until
        )
        tune(writer.get_extra_info("socket"))
        return AsyncWire(reader, writer)

    async def sleep(self, seconds: float, scope: Scope) -> None:
        await asyncio.sleep(seconds)


def tune(sock: Any) -> None:
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_KEEPIDLE"):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15)
    except OSError:
        pass  # it works without


class Connection:
    """One connection, with what was read from it and not yet used."""

    def __init__(self, wire: Any) -> None:
        self.wire, self.buffer, self.idle_since = wire, b"", 0.0

    async def more(self, until: float) -> None:
        data = await self.wire.read(until)
        if not data:
            raise BrokenOff("the connection was closed")
        self.buffer += data

    async def line(self, until: float) -> bytes:
        while True:
            line, found, rest = self.buffer.partition(b"\n")
            if found:
                self.buffer = rest
                return line.rstrip(b"\r")
            if len(self.buffer) > MAX_HEAD:
                raise BrokenOff("the head of the response does not end")
            await self.more(until)

    async def head(self, until: float) -> tuple[int, dict[str, str]]:
        words = (await self.line(until)).decode("latin-1").split(" ", 2)
        if len(words) < 2 or not words[0].startswith("HTTP/1") or not words[1].isdigit():
            raise BrokenOff("this is not HTTP")
        headers: dict[str, str] = {}
        while line := await self.line(until):
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.strip().lower()] = value.strip()
        return int(words[1]), headers

    async def body(self, headers: dict[str, str], until: "Patience") -> AsyncIterator[bytes]:
        """The pieces of a body. It ends in an error if the body is cut off."""
        if "chunked" in headers.get("transfer-encoding", "").lower():
            while True:
                size = int((await self.line(until.next())).split(b";")[0], 16)
                if size == 0:
                    while await self.line(until.next()):
                        pass
                    return
                while size > 0:
                    if not self.buffer:
                        await self.more(until.next())
                    piece, self.buffer = self.buffer[:size], self.buffer[size:]
                    size -= len(piece)
                    yield piece
                await self.line(until.next())
        elif "content-length" in headers:
            left = int(headers["content-length"])
            while left > 0:
                if not self.buffer:
                    await self.more(until.next())
                piece, self.buffer = self.buffer[:left], self.buffer[left:]
                left -= len(piece)
                yield piece
        else:
            raise BrokenOff("the response does not say how long it is")


class Patience:
    """How long a read may take: an overall deadline, and a bound on silence."""

    def __init__(self, until: float, silence: float) -> None:
        self.until, self.silence = until, silence

    def next(self) -> float:
        return min(self.until, time.monotonic() + self.silence)


class Response:
    def __init__(self, pool: "Pool", scope: Scope, conn: Connection, status: int, headers: dict[str, str], until: Patience, bodyless: bool) -> None:
        self.status, self.headers = status, headers
        self._pool, self._scope, self._conn, self._until, self._bodyless, self._over = pool, scope, conn, until, bodyless, False

    async def pieces(self) -> AsyncIterator[bytes]:
        try:
            if not self._bodyless:
                async for piece in self._conn.body(self.headers, self._until):
                    yield piece
            self._over = self.headers.get("connection", "").lower() != "close"
        except ValueError:
            raise BrokenOff("the response is not HTTP") from None
        finally:
            self.close()

    async def all(self, limit: int = 64 << 20) -> bytes:
        out = bytearray()
        async for piece in self.pieces():
            out += piece
            if len(out) > limit:
                raise BrokenOff("the response is too long")
        return bytes(out)

    async def lines(self) -> AsyncIterator[bytes]:
        """The lines of a body. A last one without a line end means that the response was cut off."""
        parts: list[bytes] = []
        async for piece in self.pieces():
            *whole, rest = piece.split(b"\n")
            for line in whole:
                yield b"".join([*parts, line])
                parts = []
            if rest:
                parts.append(rest)
        if parts:
            raise BrokenOff("the response broke off in the middle of a line")

    def close(self) -> None:
        conn, self._conn = self._conn, None  # type: ignore[assignment]
        if conn is None:
            return
        self._scope.drop(conn.wire)
        if self._over:
            self._pool.give(conn)
        else:
            conn.wire.close()


class Pool:
    """Connections to one server."""

    def __init__(self, io: Any) -> None:
        self.io = io
        self._idle: list[Connection] = []
        self._lock = threading.Lock()
        self._closed = False

    async def take(self, until: float) -> Connection:
        while True:
            with self._lock:
                conn = self._idle.pop() if self._idle else None
            if conn is None:
                return Connection(await self.io.connect(until))
            if not conn.buffer and conn.wire.usable() and time.monotonic() - conn.idle_since < IDLE_SECONDS:
                return conn
            conn.wire.close()

    def give(self, conn: Connection) -> None:
        conn.idle_since = time.monotonic()
        with self._lock:
            if not self._closed and len(self._idle) < 64:
                self._idle.append(conn)
                return
        conn.wire.close()

    def close(self) -> None:
        with self._lock:
            self._closed, idle, self._idle = True, self._idle, []
        for conn in idle:
            conn.wire.close()


class Sent:
    """Whether a request may have reached the server."""

    def __init__(self) -> None:
        self.sent = False


async def send(
    pool: Pool, scope: Scope, head: bytes, body: bytes, stream: Optional[Iterable[bytes]], until: float, silence: float, sent: Sent, bodyless: bool
) -> Response:
    """Sends a request and waits for the head of its response."""
    conn = await pool.take(until)
    scope.add(conn.wire)
    try:
        patience = Patience(until, silence)
        sent.sent = True
        if stream is None:
            await conn.wire.write(head + body, patience.next())
            status, headers = await conn.head(patience.next())
        else:
            status, headers = await _send_stream(conn, head, stream, patience)
        while status < 200:
            status, headers = await conn.head(patience.next())
        return Response(pool, scope, conn, status, headers, patience, bodyless or status in (204, 304))
    except BaseException:
        scope.drop(conn.wire)
        conn.wire.close()
        raise


async def _send_stream(conn: Connection, head: bytes, stream: Iterable[bytes], patience: Patience) -> tuple[int, dict[str, str]]:
    """Sends a body of unknown length. A refusal comes before any of it is read."""
    await conn.wire.write(head, patience.next())
    try:
        status, headers = await conn.head(min(patience.next(), time.monotonic() + 2))
        if status != 100:
            return status, headers
    except TimeoutError:
        pass  # a proxy in between does not know 100-continue
    try:
        for piece in stream:
            if piece:
                await conn.wire.write(b"%x\r\n%s\r\n" % (len(piece), piece), patience.next())
        await conn.wire.write(b"0\r\n\r\n", patience.next())
    except (BrokenPipeError, ConnectionResetError):
        pass  # there may still be an answer
    return await conn.head(patience.next())


def nobody_there(e: BaseException) -> bool:
    """Whether nothing listens at an address, as far as that is known."""
    return (
        isinstance(e, (ConnectionRefusedError, FileNotFoundError, socket.gaierror))
        or isinstance(e, OSError)
        and (e.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH) or str(e).startswith("Multiple exceptions:"))  # asyncio's, of several addresses
    )
