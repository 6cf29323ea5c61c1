"""The client against the real server, through a proxy that loses requests and answers."""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import math
import os
import pathlib
import random
import socket
import threading
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from typing import Callable

from hansard import (
    AsyncClient, Client, ClosedError, ConflictError, DeletedError, ExistsError, FencedError, HeldError, IdReusedError, InvalidError, KeyReusedError,
    NoEventError, NotFoundError, OutcomeUnknown, TimedOut, UnauthorizedError, UnreachableError, message,
)  # fmt: skip

from .server import TOKEN, Proxy, Server, Temporary

names = (f"s{n}" for n in itertools.count(1))


class WithServer(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.directory = Temporary()
        cls.addClassCleanup(cls.directory.remove)
        cls.server = Server(cls.directory.path)
        cls.addClassCleanup(cls.server.kill)

    def client(self, url: str = "", **options: object) -> Client:
        c = Client(url or self.server.url, TOKEN, **options)  # type: ignore[arg-type]
        self.addCleanup(c.close)
        return c

    def through(self, plan: object = None, **options: object) -> tuple[Client, Proxy]:
        proxy = Proxy(self.server.port, plan)  # type: ignore[arg-type]
        self.addCleanup(proxy.close)
        return self.client(proxy.url, **options), proxy


class Basics(WithServer):
    def test_append_and_read_in_both_directions(self) -> None:
        s = self.client().session(next(names))
        data = {"text": "grüße \u0000 \U0001f600", "n": [1, 2.5, None, True], "deep": {"a": {}}}
        r = s.append({"kind": "note", "role": "agent", "author": "ada", "data": data}, message("user", "two"), create=True)
        self.assertEqual((r.first, r.last, r.created, r.replayed), (1, 2, True, False))
        s.append(*[message("user", str(n)) for n in range(3, 6)])
        events = list(s.read())
        self.assertEqual([e.seq for e in events], [1, 2, 3, 4, 5])
        self.assertEqual((events[0].data, events[0].kind, events[0].role, events[0].author), (data, "note", "agent", "ada"))
        self.assertEqual([e.seq for e in s.read(reverse=True)], [5, 4, 3, 2, 1])
        self.assertEqual([e.seq for e in s.read(reverse=True, before=4, limit=2)], [3, 2])
        self.assertEqual([e.seq for e in s.read(after=1, limit=2)], [2, 3])
        self.assertEqual([e.seq for e in s.read(last=2)], [4, 5])
        self.assertEqual([e.seq for e in s.read(kinds=["note"])], [1])
        self.assertEqual([e.seq for e in s.read(from_kind="note", last=2)], [4, 5])

    def test_half_a_surrogate_pair(self) -> None:
        s = self.client().session(next(names))
        s.append({"data": "\ud83d"}, create=True)
        self.assertEqual([e.data for e in s.read()], ["\ud83d"])

    def test_exact_text(self) -> None:
        s = self.client().session(next(names))
        s.append({"raw": '{"n": 1.50,\n "m":12345678901234567890}'}, create=True)
        self.assertEqual(next(s.read()).data, {"n": 1.5, "m": 12345678901234567890})

    def test_ids_and_keys(self) -> None:
        s = self.client().session(next(names))
        s.append({"id": "a", "data": 1}, {"id": "b", "data": 2}, create=True)
        r = s.append({"id": "b", "data": 2}, {"id": "c", "data": 3})
        self.assertEqual((r.seqs, r.first, r.last), ((2, 3), 3, 3))
        with self.assertRaises(IdReusedError) as refused:
            s.append({"id": "a", "data": 9})
        self.assertEqual(refused.exception.ids, ["a"])
        self.assertEqual(s.event("c").seq, 3)
        with self.assertRaises(NoEventError):
            s.event("zz")
        first = s.append(message("user", "k"), key="k1")
        again = s.append(message("user", "k"), key="k1")
        self.assertEqual((again.first, again.replayed), (first.first, True))
        with self.assertRaises(KeyReusedError):
            s.append(message("user", "other"), key="k1")

    def test_conditions_and_patches(self) -> None:
        s = self.client().session(next(names))
        s.append(message("user", "1"), create=True, meta={"title": "T", "labels": {"a": "b"}, "state": {"step": 1}})
        with self.assertRaises(ConflictError) as conflict:
            s.append(message("user", "2"), expect=7)
        self.assertEqual(conflict.exception.last_seq, 1)
        s.append(patch={"title": "U", "labels": {"a": None}, "state_ops": [{"op": "test", "path": "/step", "value": 1}, {"op": "replace", "path": "/step", "value": None}]})
        info = s.info()
        self.assertEqual((info.title, dict(info.labels), info.state, info.last_seq), ("U", {}, {"step": None}, 2))

    def test_create_list_delete(self) -> None:
        c, prefix = self.client(), next(names) + "x"
        made = [c.create(f"{prefix}{n}", title=f"t{n}", labels={"of": prefix}) for n in range(3)]
        with self.assertRaises(ExistsError):
            c.create(made[0].id)
        self.assertEqual({i.id for i in c.list(prefix=prefix)}, {m.id for m in made})
        self.assertEqual({i.title for i in c.list(labels={"of": prefix}, limit=2, order="created")}, {"t1", "t2"})
        self.assertEqual([i.id for i in c.list(ids=[made[1].id])], [made[1].id])
        made[2].append(patch={"labels": {"archived": "yes"}})
        self.assertEqual([i.id for i in c.list(prefix=prefix, archived="only")], [made[2].id])
        self.assertEqual({i.id for i in c.list(prefix=prefix, archived="no")}, {made[0].id, made[1].id})
        made[1].append(message("user", "x"))
        fork = made[1].fork()
        self.assertEqual([i.id for i in c.list(parent=made[1].id)], [fork.id])
        with made[1].turn():
            self.assertEqual([i.id for i in c.list(prefix=prefix, held=True)], [made[1].id])
        now = datetime.now(timezone.utc)
        self.assertEqual(list(c.list(prefix=prefix, created_since=now)), [])
        self.assertEqual(len(list(c.list(prefix=prefix, created_before=now, before=now, since=now - timedelta(hours=1)))), 3)
        made[0].delete()
        with self.assertRaises(DeletedError):
            made[0].info()
        with self.assertRaises(NotFoundError):
            c.session("never-made").info()
        self.assertTrue(c.create().id)

    def test_search(self) -> None:
        c, prefix = self.client(), next(names) + "x"
        for n in range(3):
            c.session(f"{prefix}{n}").append(message("user", f"the zebra {n} is striped"), message("agent", "no horse"), create=True, meta={"labels": {"n": str(n)}})
        hits = list(c.search("ZEBRA striped", prefix=prefix))
        self.assertEqual({h.session for h in hits}, {f"{prefix}{n}" for n in range(3)})
        start, end = hits[0].marks[0]
        self.assertEqual((hits[0].seq, hits[0].role, hits[0].snippet.encode()[start:end]), (1, "user", b"zebra"))
        self.assertEqual([h.session for h in c.search("zebra", labels={"n": "1"}, prefix=prefix)], [f"{prefix}1"])
        self.assertEqual(len(list(c.search("zebra", prefix=prefix, limit=1, offset=1))), 1)
        self.assertEqual([h.seq for h in c.search('"no horse"', session=f"{prefix}2", role="agent")], [2])
        self.assertEqual(list(c.search("zebra", prefix=prefix, role="agent")), [])

    def test_fork(self) -> None:
        c = self.client()
        s = c.session(next(names))
        s.append(message("user", "1"), create=True, meta={"title": "T", "labels": {"a": "b"}, "state": {"n": 1}})
        s.append(message("user", "2"))
        fork = s.fork(at=1, title="F", labels={"c": "d"})
        info = fork.info()
        self.assertEqual((info.parent, info.title, dict(info.labels), info.state), ({"id": s.id, "at": 1}, "F", {"a": "b", "c": "d"}, {"n": 1}))
        self.assertEqual([e.kind for e in fork.read()], ["message", "fork"])
        self.assertEqual(list(fork.read())[1].fork, {"id": s.id, "at": 1})
        named = s.fork(id=next(names))
        self.assertEqual([e.data for e in named.read(kinds=["message"])], ["1", "2"])
        with self.assertRaises(ExistsError):
            s.fork(id=named.id)

    def test_redact_export_prune(self) -> None:
        c = self.client()
        s = c.session(next(names))
        s.append(*[message("user", said) for said in ("my password is swordfish", "hello", "no, it is marlin", "or herring")], create=True)

        def text(*format: str, of: object = s) -> str:
            return b"".join(of.export(*format)).decode()  # type: ignore[attr-defined]

        self.assertRegex(text("md"), r"(?s)^# .*swordfish.*hello")
        self.assertEqual(json.loads(text().splitlines()[1])["event"]["data"], "my password is swordfish")
        # The answer is lost, and it is sent again.
        lossy, proxy = self.through(lambda n, head: "lose" if n == 1 else "pass")
        self.assertEqual(lossy.session(s.id).redact(1, 3, reason="a password").session, s.id)
        self.assertEqual(proxy.count, 2)
        events = list(s.read())
        self.assertEqual([(e.data is None, e.redacted) for e in events], [(True, True), (False, False), (True, True), (False, False), (False, False)])
        self.assertEqual((events[4].redacts, events[4].data["reason"]), ((1, 3), "a password"))
        self.assertTrue(s.redact(1).replayed)
        with s.turn(exclusive=True) as turn:
            with self.assertRaises(HeldError):
                s.redact(4)
            self.assertFalse(s.redact(4, turn=turn).replayed)
        with self.assertRaises(NoEventError):
            s.redact(99)
        self.assertNotRegex(text("jsonl"), "swordfish|marlin|herring")
        with self.assertRaises(InvalidError):
            text("nonsense")
        with self.assertRaises(NotFoundError):
            text("md", of=c.session("none"))
        # Half of a file is not all of it.
        s.append({"data": "x" * 2_000_000})
        cutting, _ = self.through(lambda n, head: "short")
        with self.assertRaises(UnreachableError):
            text("jsonl", of=cutting.session(s.id))
        log = pathlib.Path(self.directory.path, "store", "sessions", s.id + ".jsonl")
        self.assertTrue("hello" in log.read_text())
        s.delete()
        self.assertNotIn("scrubbed", c.prune())
        self.assertFalse("hello" in log.read_text(), "the content is still there")
        pruned = c.prune(scrub=True)
        self.assertNotIn("erased", pruned)
        self.assertIn("journal", pruned["scrubbed"])

    def test_refusals_are_typed(self) -> None:
        with self.assertRaises(InvalidError) as bad:
            self.client().session("no spaces").append(message("user", "x"))
        self.assertEqual(bad.exception.field, "id")
        wrong = Client(self.server.url, "wrong-token")
        self.addCleanup(wrong.close)
        with self.assertRaises(UnauthorizedError):
            list(wrong.list())

    def test_addresses(self) -> None:
        for bad in ("", "ftp://x", "http://", "unix:", "http://u:p@h/"):
            with self.assertRaises(ValueError):
                Client(bad)
        c = Client(f"{self.server.url}/#token={TOKEN}")
        self.addCleanup(c.close)
        self.assertIsNotNone(list(c.list(limit=1)))

    def test_attachments(self) -> None:
        s = self.client().session(next(names))
        s.append(message("user", "look"), create=True)
        data = random.Random(1).randbytes(3_000_000)
        a = s.attach(data)
        self.assertEqual(s.attach(io.BytesIO(data)), a)
        self.assertEqual(s.attach(iter([data[:5], b"", data[5:]])), a)
        s.append({"data": "here", "attachments": [a.named("x.bin", "application/octet-stream")]})
        self.assertEqual(list(s.read(last=1))[0].attachments[0].name, "x.bin")
        self.assertEqual(b"".join(s.attachment(a.digest)), data)
        self.assertEqual([x.digest for x in s.attachments()], [a.digest])
        self.assertEqual(b"".join(s.attachment(s.attach(b"").digest)), b"")
        with self.assertRaises(NotFoundError):
            self.client().session("never-made").attach(iter([b"x"]))


class Unknown(WithServer):
    """Requests and answers are lost; nothing is stored twice, and nothing is taken for stored."""

    def test_lost_answer_of_an_append(self) -> None:
        for fate in ("lose", "half", "refuse"):
            with self.subTest(fate):
                c, proxy = self.through(lambda n, head: fate if n in (1, 2) else "pass")
                s = c.session(next(names))
                r = s.append(message("user", "once"), create=True)
                self.assertEqual((r.first, r.last, r.replayed), (1, 1, False))
                self.assertEqual([e.data for e in s.read()], ["once"])
                self.assertGreaterEqual(proxy.count, 3)

    def test_outcome_stays_unknown(self) -> None:
        name = next(names)
        c, _ = self.through(lambda n, head: "lose" if head.startswith(b"POST") else "pass", patience=0.2)
        with self.assertRaises(OutcomeUnknown):
            c.session(name).append(message("user", "x"), create=True, key="k")
        settled = self.client().session(name).append(message("user", "x"), create=True, key="k")
        self.assertTrue(settled.replayed)

    def test_a_try_that_was_never_sent_is_not_unknown(self) -> None:
        c, tries = self.client("http://127.0.0.1:1", patience=60), []
        connect = c._core.io.connect
        c._core.io.connect = lambda until: tries.append(1) or connect(until)
        with self.assertRaises(UnreachableError):
            c.session("x").append(message("user", "x"))
        self.assertEqual(len(tries), 1)  # nobody was ever there

    def test_create_twice_is_unknown(self) -> None:
        c, _ = self.through(lambda n, head: "lose" if n == 1 else "pass")
        with self.assertRaises(OutcomeUnknown):
            c.create(next(names))

    def test_what_was_made_under_a_name_of_our_own_is_ours(self) -> None:
        c, _ = self.through(lambda n, head: "lose" if head.startswith(b"POST") and n % 2 else "pass")
        made = c.create(title="mine")
        self.assertEqual(made.info().title, "mine")
        made.append(message("user", "x"))
        c._core.pool.close()
        other, _ = self.through(lambda n, head: "lose" if n == 1 else "pass")
        fork = other.session(made.id).fork()
        self.assertEqual(fork.info().parent["id"], made.id)
        again, _ = self.through(lambda n, head: "lose" if n == 1 else "pass")
        with self.assertRaises(OutcomeUnknown):
            again.session(made.id).fork(id=next(names))

    def test_delete_whose_answer_is_lost(self) -> None:
        s = self.client().session(next(names))
        s.append(message("user", "x"), create=True)
        c, _ = self.through(lambda n, head: "lose" if n == 1 else "pass")
        c.session(s.id).delete()
        with self.assertRaises(DeletedError):
            s.info()

    def test_read_goes_on_where_it_was(self) -> None:
        s = self.client().session(next(names))
        s.append(*[{"data": "x" * 1000 + str(n)} for n in range(500)], create=True)
        for reverse in (False, True):
            c, proxy = self.through()
            seen = []
            for e in c.session(s.id).read(reverse=reverse, limit=450):
                seen.append(e.seq)
                if len(seen) % 50 == 0:
                    proxy.cut()
            self.assertEqual(seen, list(range(500, 50, -1)) if reverse else list(range(1, 451)))

    def test_attachment_goes_on_where_it_was(self) -> None:
        s = self.client().session(next(names))
        s.append(message("user", "x"), create=True)
        data = random.Random(2).randbytes(3_000_000)
        digest = s.attach(data).digest
        c, proxy = self.through(lambda n, head: "short")
        self.assertEqual(b"".join(c.session(s.id).attachment(digest)), data)
        self.assertEqual(proxy.count, 4)  # with the heads of answers, a little less than a million each

    def test_a_connection_that_was_closed_is_not_used_again(self) -> None:
        c, proxy = self.through()
        s = c.session(next(names))
        s.append(message("user", "x"), create=True)
        idle = c._core.pool._idle[0].wire.sock
        proxy.cut()
        idle.settimeout(30)
        self.assertEqual(idle.recv(1, socket.MSG_PEEK), b"")  # its end has arrived
        self.assertEqual(s.attach(iter([b"sent once"])).size, 9)

    def test_half_a_line_is_not_the_end(self) -> None:
        def line(seq: int) -> bytes:
            return b'{"seq":%d,"time":"2026-01-01T00:00:00Z","kind":"message","role":"","author":"","turn":"","data":1}\n' % seq

        answers, asked = [line(1) + line(2)[:30], line(2) + line(3)], []
        with socket.create_server(("127.0.0.1", 0)) as listener:

            def serve() -> None:
                for answer in answers:
                    peer, _ = listener.accept()
                    with peer:
                        asked.append(peer.recv(1 << 16).split(b" ")[1])
                        peer.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(answer), answer))

            t = threading.Thread(target=serve)
            t.start()
            c = self.client(f"http://127.0.0.1:{listener.getsockname()[1]}")
            self.assertEqual([e.seq for e in c.session("x").read()], [1, 2, 3])
            t.join()
        self.assertEqual(asked, [b"/v1/sessions/x/events", b"/v1/sessions/x/events?after=1"])

    def test_deadline_of_the_caller(self) -> None:
        c, _ = self.through(lambda n, head: "refuse", patience=60)
        c._core.reached = True
        with self.assertRaises((TimedOut, OutcomeUnknown)):
            c.session("x").info(timeout=0.1)


class Canned:
    """A server that gives each request to a function, with its number and the connection to answer through."""

    def __init__(self, case: unittest.TestCase, answer: Callable[[int, socket.socket, bytes], None]) -> None:
        self.count = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"

        def serve() -> None:
            while True:
                try:
                    peer, _ = self.listener.accept()
                except OSError:
                    return
                with peer:
                    request = peer.recv(1 << 16)
                    if not request:
                        return
                    self.count += 1
                    answer(self.count, peer, request)

        t = threading.Thread(target=serve)
        t.start()

        def close() -> None:
            socket.create_connection(self.listener.getsockname()[:2]).close()  # wakes it
            t.join()
            self.listener.close()

        case.addCleanup(close)


class Patience(WithServer):
    """Patience is for a server that does not answer: it begins with the first failure."""

    def test_a_request_that_was_lost_late_is_sent_again(self) -> None:
        patience = 0.3

        def answer(n: int, peer: socket.socket, _: bytes) -> None:
            if n in (2, 4):
                time.sleep(2 * patience)  # as long as a wait may take
            if n == 4:
                peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
            if n not in (2, 4):
                peer.sendall(b'HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 14\r\n\r\n{"last_seq":2}')

        server = Canned(self, answer)
        s = self.client(server.url, patience=patience).session("s")
        for _ in range(3):
            s.wait(1, timeout=60)
        self.assertEqual(server.count, 5)

    def test_broken_answers_are_asked_for_with_pauses(self) -> None:
        server = Canned(self, lambda n, peer, _: peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"))
        s = self.client(server.url, patience=0.5).session("s")
        for call in (s.info, lambda: list(s.read())):
            server.count = 0
            with self.assertRaises(UnreachableError):
                call()
            self.assertTrue(2 <= server.count <= 30, server.count)

    def test_a_server_that_does_not_wait_is_asked_again_with_pauses(self) -> None:
        server = Canned(self, lambda n, peer, _: peer.sendall(b'HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 14\r\n\r\n{"last_seq":1}'))
        with self.assertRaises(TimedOut):
            self.client(server.url).session("s").wait(1, timeout=0.5)
        self.assertTrue(2 <= server.count <= 30, server.count)

    def test_a_claim_that_is_sent_again_waits_for_what_is_left_of_its_time(self) -> None:
        waits = []

        def answer(n: int, peer: socket.socket, request: bytes) -> None:
            waits.append(json.loads(request.partition(b"\r\n\r\n")[2])["wait_ms"])
            if n == 1:
                return time.sleep(0.3)  # it waits
            body = b'{"type":"/problems/held","status":423}'
            peer.sendall(b"HTTP/1.1 423 Locked\r\nContent-Type: application/problem+json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

        s = self.client(Canned(self, answer).url).session("s")
        with self.assertRaises((HeldError, OutcomeUnknown)):
            s.turn(wait=0.5)
        self.assertEqual(len(waits), 2)
        self.assertTrue(waits[0] > 400 and waits[1] < 250, waits)

    def test_a_read_goes_on_after_a_server_that_shuts_down(self) -> None:
        def line(seq: int) -> bytes:
            return b'{"seq":%d,"time":"2026-01-01T00:00:00Z","kind":"message","role":"","author":"","turn":"","data":1}\n' % seq

        answers = [line(1) + b'{"problem":{"type":"/problems/closing","status":503}}\n', line(2)]

        def answer(n: int, peer: socket.socket, _: bytes) -> None:
            peer.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(answers[n - 1]), answers[n - 1]))

        server = Canned(self, answer)
        self.assertEqual([e.seq for e in self.client(server.url).session("s").read()], [1, 2])


class Follow(WithServer):
    def test_across_reconnects(self) -> None:
        c, proxy = self.through()
        s, writer = c.session(next(names)), self.client()
        w = writer.session(s.id)
        w.append({"data": 0}, create=True)
        seen = []
        with s.follow() as events:
            for e in events:
                seen.append(e.data)
                if e.data == 30:
                    break
                if e.data % 10 == 5:
                    proxy.cut()
                w.append({"data": e.data + 1})
        self.assertEqual(seen, list(range(31)))

    def test_after(self) -> None:
        s = self.client().session(next(names))
        s.append(*[{"data": n} for n in range(5)], create=True)
        with s.follow(after=3) as events:
            self.assertEqual([next(events).seq, next(events).seq], [4, 5])

    def test_close_from_another_thread(self) -> None:
        s = self.client().session(next(names))
        s.append({"data": 1}, create=True)
        f = s.follow()
        next(f)
        t = threading.Thread(target=f.close)
        t.start()
        self.assertEqual(list(f), [])
        t.join()

    def test_closing_the_client_ends_it_with_an_error(self) -> None:
        c = self.client()
        s = c.session(next(names))
        s.append({"data": 1}, create=True)
        f = s.follow()
        next(f)
        t = threading.Thread(target=c.close)
        t.start()
        with self.assertRaises(ClosedError):
            list(f)
        t.join()
        with self.assertRaises(ClosedError):
            s.info()

    def test_a_deleted_session_ends_it(self) -> None:
        c = self.client()
        s = c.session(next(names))
        s.append({"data": 1}, create=True)
        f = s.follow()
        next(f)
        s.delete()
        with self.assertRaises(DeletedError):
            list(f)

    def test_another_session_with_the_id_is_not_mixed_into_it(self) -> None:
        away = threading.Event()
        c, proxy = self.through(lambda n, head: "refuse" if away.is_set() else "pass")
        other = self.client()
        s = other.session(next(names))
        s.append({"data": 1}, {"data": 2}, create=True)
        f = c.session(s.id).follow()
        self.assertEqual([next(f).data, next(f).data], [1, 2])
        away.set()
        proxy.cut()
        s.delete()
        other.create(s.id, reuse=True)
        s.append({"data": "other"}, {"data": "other"}, {"data": "other"})
        away.clear()
        with self.assertRaises(DeletedError):
            next(f)


class Turns(WithServer):
    def test_one_holder_that_renews_itself(self) -> None:
        c = self.client()
        s = c.session(next(names))
        s.append({"data": 1}, create=True)
        with s.turn(ttl=2, label="planner", exclusive=True) as turn:
            s.append(message("agent", "mine"), turn=turn)
            with self.assertRaises(HeldError) as held:
                s.append(message("user", "not mine"))
            self.assertEqual(held.exception.holder["holder"]["label"], "planner")
            with self.assertRaises(HeldError):
                s.turn(wait=4)  # twice its TTL
            self.assertFalse(turn.lost)
            turn.check()
        self.assertIsNone(s.holder())
        with self.assertRaises(FencedError):
            s.append(message("agent", "late"), turn=turn)

    def test_it_tells_when_it_was_stolen(self) -> None:
        s = self.client().session(next(names))
        s.append({"data": 1}, create=True)
        turn = s.turn(ttl=600)  # its next renewal is minutes away
        heard: list[object] = []
        turn.on_lost(heard.append)
        thief = self.client().session(s.id).turn(steal="test")
        self.assertTrue(turn.wait_lost(30))
        self.assertIsInstance(turn.reason, FencedError)
        self.assertRaises(FencedError, turn.check)
        self.assertEqual(len(heard), 1)
        with self.assertRaises(FencedError):
            turn.release()
        thief.release()

    def test_it_tells_when_the_server_is_away_for_its_ttl(self) -> None:
        proxy = Proxy(self.server.port)
        c = self.client(proxy.url, patience=30)
        s = c.session(next(names))
        s.append({"data": 1}, create=True)
        turn = s.turn(ttl=0.5)
        proxy.close()
        self.assertTrue(turn.wait_lost(30))

    def test_an_answer_of_something_else_does_not_end_the_renewals_in_silence(self) -> None:
        def answer(n: int, peer: socket.socket, _: bytes) -> None:
            if n > 2:
                return  # it is away
            body = b'{"grant":"1-0000000000000001","holder":{},"seq":1,"since":"2026-01-01T00:00:00Z","ttl_ms":600}' if n == 1 else b"[]"
            peer.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

        turn = self.client(Canned(self, answer).url, patience=0.1).session("s").turn(ttl=0.6)
        self.assertTrue(turn.wait_lost(30))

    def test_closing_ends_the_wait_for_it(self) -> None:
        s = self.client().session(next(names))
        s.append({"data": 1}, create=True)
        first, asked, ended = s.turn(), threading.Event(), []
        proxy = Proxy(self.server.port, lambda n, head: asked.set() or "pass")
        self.addCleanup(proxy.close)
        c = self.client(proxy.url)

        def wait() -> None:
            try:
                c.session(s.id).turn(wait=math.inf)
            except ClosedError as e:
                ended.append(e)

        waiter = threading.Thread(target=wait, daemon=True)
        waiter.start()
        self.assertTrue(asked.wait(30))
        c.close()
        waiter.join(10)
        self.assertEqual(len(ended), 1)
        first.release()
        with s.turn():  # the claim was given up
            pass

    def test_a_claim_whose_answer_is_lost_gets_its_turn(self) -> None:
        s = self.client().session(next(names))
        s.append({"data": 1}, create=True)
        c, _ = self.through(lambda n, head: "lose" if n == 1 else "pass")
        with c.session(s.id).turn() as turn:
            self.assertEqual(s.holder().grant, turn.grant)

    def test_waiting_for_it(self) -> None:
        s = self.client().session(next(names))
        s.append({"data": 1}, create=True)
        first = s.turn()
        got = []
        waiter = threading.Thread(target=lambda: got.append(s.turn(wait=math.inf)))
        waiter.start()
        first.release()
        waiter.join(30)
        self.assertEqual(s.holder().grant, got[0].grant)
        got[0].release()


class Async(WithServer, unittest.IsolatedAsyncioTestCase):
    def aclient(self, url: str = "", **options: object) -> AsyncClient:
        c = AsyncClient(url or self.server.url, TOKEN, **options)  # type: ignore[arg-type]
        self.addAsyncCleanup(c.close)
        return c

    async def test_core(self) -> None:
        c = self.aclient()
        s = c.session(next(names))
        r = await s.append(message("user", "one"), {"id": "x", "data": 2}, create=True)
        self.assertEqual((r.first, r.last), (1, 2))
        self.assertEqual([e.seq async for e in s.read(reverse=True)], [2, 1])
        self.assertEqual((await s.event("x")).seq, 2)
        self.assertEqual((await s.info()).last_seq, 2)
        self.assertEqual([i.id async for i in c.list(ids=[s.id])], [s.id])
        a = await s.attach(iter([b"abc"] * 100_000))
        self.assertEqual(b"".join([p async for p in s.attachment(a.digest)]), b"abc" * 100_000)
        self.assertRegex(b"".join([p async for p in s.export("md")]), rb"(?s)^# .*one")
        async with s.turn(exclusive=True) as turn:
            with self.assertRaises(HeldError):
                await s.redact(1)
            r = await s.redact(1, reason="test", turn=turn)
        self.assertEqual([(e.seq, e.redacts, e.data["reason"]) async for e in s.read(kinds=["redaction"])], [(r.last, (1,), "test")])
        await s.delete()
        with self.assertRaises(DeletedError):
            await s.info()
        self.assertNotIn("scrubbed", await c.prune())
        self.assertIn("journal", (await c.prune(scrub=True))["scrubbed"])

    async def test_many_at_once(self) -> None:
        s = self.aclient().session(next(names))
        await s.append({"data": -1}, create=True)
        await asyncio.gather(*[s.append({"data": n}) for n in range(50)])
        self.assertEqual(sorted([e.data async for e in s.read()]), list(range(-1, 50)))

    async def test_follow_across_reconnects_and_lost_answers(self) -> None:
        proxy = Proxy(self.server.port, lambda n, head: "lose" if head.startswith(b"POST") and n % 3 == 0 else "pass")
        self.addCleanup(proxy.close)
        s = self.aclient(proxy.url).session(next(names))
        await s.append({"data": 0}, create=True)
        seen = []
        async for e in s.follow():
            seen.append(e.data)
            if e.data == 20:
                break
            if e.data % 7 == 3:
                proxy.cut()
            await s.append({"data": e.data + 1})
        self.assertEqual(seen, list(range(21)))

    async def test_a_lost_turn_cancels_the_work(self) -> None:
        s = self.aclient().session(next(names))
        await s.append({"data": 1}, create=True)
        began, cancelled = asyncio.Event(), asyncio.Event()

        async def work() -> None:
            began.set()
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                cancelled.set()
                raise

        async def hold() -> None:
            async with s.turn(ttl=600) as turn:
                await turn.run(work())

        holding = asyncio.create_task(hold())
        await asyncio.wait((holding, asyncio.create_task(began.wait())), return_when=asyncio.FIRST_COMPLETED)
        async with s.turn(steal="test"):
            with self.assertRaises(FencedError):
                await asyncio.wait_for(holding, 30)
        self.assertTrue(cancelled.is_set())

    async def test_a_cancelled_claim_leaves_no_grant(self) -> None:
        s = self.aclient().session(next(names))
        await s.append({"data": 1}, create=True)
        proxy = Proxy(self.server.port, lambda n, head: "keep" if n == 1 else "pass")
        self.addCleanup(proxy.close)
        claim = asyncio.create_task(self.aclient(proxy.url).session(s.id).turn().acquire())
        await asyncio.get_running_loop().run_in_executor(None, proxy.kept.wait, 30)
        self.assertIsNotNone(await s.holder())
        claim.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await claim
        self.assertIsNone(await s.holder())

    async def test_releasing_stops_renewing_even_if_its_cancellation_is_lost(self) -> None:
        s = self.aclient().session(next(names))
        await s.append({"data": 1}, create=True)
        turn = await s.turn().acquire()
        assert turn._keeper is not None
        turn._keeper.cancel = lambda: True  # type: ignore[method-assign, misc, assignment]
        await asyncio.wait_for(turn.release(), 30)
        self.assertFalse(turn.lost)


class Chaos(unittest.TestCase):
    """Two servers on one store, killed in turn, with lost answers: nothing is lost, nothing is there twice."""

    def test_everything_once(self) -> None:
        seed = int(os.environ.get("HANSARD_SEED", "0")) or random.randrange(1 << 30)
        print(f"seed {seed}: HANSARD_SEED={seed} repeats it", flush=True)
        dice, times = random.Random(seed), 6 * int(os.environ.get("HANSARD_TORTURE", "1"))
        directory = Temporary()
        self.addCleanup(directory.remove)
        servers = [Server(directory.path), Server(directory.path)]
        ports = [s.port for s in servers]
        proxy = Proxy(ports[0], lambda n, head: dice.choice(["pass"] * 8 + ["lose", "half", "refuse"]))
        self.addCleanup(proxy.close)
        self.addCleanup(lambda: [s.kill() for s in servers])
        c = Client(proxy.url, TOKEN, patience=60)
        self.addCleanup(c.close)
        s = c.session("chaos")
        s.append({"data": "begin"}, create=True, key="begin")
        stop, acknowledged, seen = threading.Event(), [[], [], []], []  # type: ignore[var-annotated]

        def write(me: int) -> None:
            for n in itertools.count():
                if stop.is_set():
                    return
                ids = {"id": f"{me}-{n}"} if n % 2 else {}
                s.append({**ids, "data": f"{me}-{n}"})  # type: ignore[misc]
                acknowledged[me].append(f"{me}-{n}")

        def follow() -> None:
            for e in s.follow():
                seen.append(e)
                if e.data == "end":
                    return

        threads = [threading.Thread(target=write, args=(n,)) for n in range(3)] + [threading.Thread(target=follow)]
        for t in threads:
            t.start()
        # It is held across kills: its next renewal is far away, and it is lost to a thief alone.
        turn = s.turn(ttl=600, steal="begin")
        thieves = ThreadPoolExecutor(1)
        self.addCleanup(thieves.shutdown)
        for n in range(times):
            target = sum(map(len, acknowledged)) + 20
            while sum(map(len, acknowledged)) < target and all(t.is_alive() for t in threads):
                s.wait(s.info().last_seq, timeout=30)
            s.append({"data": f"held-{n}"}, turn=turn)
            stealing = thieves.submit(s.turn, ttl=600, steal=f"round {n}")
            which = n % 2
            proxy.target = ports[1 - which]
            servers[which].kill()
            proxy.cut()
            servers[which] = Server(directory.path, ports[which])
            stolen = stealing.result(120)
            self.assertTrue(turn.wait_lost(30), "the turn is not lost")
            self.assertIsInstance(turn.reason, FencedError)
            with self.assertRaises(FencedError):
                s.append({"data": f"late-{n}"}, turn=turn)
            turn = stolen
        self.assertFalse(turn.lost, "nobody took the last one")
        stop.set()
        for t in threads[:3]:
            t.join(120)
        turn.release()
        s.append({"data": "end"})
        threads[3].join(120)
        self.assertFalse(any(t.is_alive() for t in threads))
        log = list(s.read())
        said = [e.data for e in log if e.kind == "message"]
        self.assertEqual(len(said), len(set(said)), "something is there twice")
        for me in range(3):
            self.assertEqual([d for d in said if d.startswith(f"{me}-")], acknowledged[me], "what was acknowledged, in its order")
        self.assertEqual([d for d in said if d.startswith("held-")], [f"held-{n}" for n in range(times)], "what was written under the turn")
        self.assertEqual(seen, log, "the follower sees everything once, in order")


if __name__ == "__main__":
    unittest.main()
