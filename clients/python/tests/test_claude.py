"""The Claude Agent SDK's SessionStore: what its documentation asks of a store, and what we promise besides.
Where the SDK is installed its own conformance suite runs, too."""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import unittest

from hansard import AsyncClient, HansardError, OutcomeUnknown
from hansard.claude import HansardSessionStore, SessionKey

from .server import TOKEN, Proxy, Server, Temporary

prefixes = (f"c{n}" for n in itertools.count(1))
KEY: SessionKey = {"project_key": "-home-ada-projects-lovelace", "session_id": "5b0e7a0e-9a4b-4f0c-8a51-1f5f9f0a7f11"}


def fold(prev, key, entries):  # type: ignore[no-untyped-def]
    """Like the SDK's: some members are set once, the last one wins in others; here all are counted, too."""
    data = dict(prev["data"]) if prev else {"none": None}
    for e in entries:
        data.setdefault("first", e.get("n"))
        data["last"], data["count"] = e.get("n"), data.get("count", 0) + 1
    return {"session_id": key["session_id"], "mtime": prev["mtime"] if prev else 0, "data": data}


def entry(n: int, **more: object) -> dict[str, object]:
    return {"type": "user", "uuid": f"u{n}", "n": n, **more}


class Claude(unittest.IsolatedAsyncioTestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.directory = Temporary()
        cls.addClassCleanup(cls.directory.remove)
        cls.server = Server(cls.directory.path)
        cls.addClassCleanup(cls.server.kill)

    def store(self, prefix: str = "", url: str = "", **options: object) -> HansardSessionStore:
        client = AsyncClient(url or self.server.url, TOKEN, **options)  # type: ignore[arg-type]
        self.addAsyncCleanup(client.close)
        return HansardSessionStore(client, prefix or next(prefixes), fold)

    async def test_entries_come_back_in_order_and_equal(self) -> None:
        s = self.store()
        self.assertIsNone(await s.load(KEY))
        batches = [[entry(1, text="\u0000 ü \ud83d"), {"type": "mode", "mode": None}], [], [entry(2, deep={"a": [1, 2.5, {}]})]]
        for b in batches:
            await s.append(KEY, b)
        self.assertEqual(await s.load(KEY), [e for b in batches for e in b])

    async def test_sent_again_in_other_batches(self) -> None:
        prefix = next(prefixes)
        entries = [entry(n) for n in range(10)]
        s = self.store(prefix)
        for cut in (10, 3, 7, 1):
            for at in range(0, 10, cut):
                await s.append(KEY, entries[at : at + cut])
        other = self.store(prefix)
        await other.append(KEY, entries[5:] + [entry(10)] + entries[:2])
        await other.append(KEY, [entry(10), entry(11), entry(11)])
        self.assertEqual([e["n"] for e in await s.load(KEY) or []], list(range(12)))
        (summary,) = await s.list_session_summaries(KEY["project_key"])
        self.assertEqual(summary["data"], {"none": None, "first": 0, "last": 11, "count": 12})

    async def test_a_new_process_that_sends_what_is_there_writes_nothing(self) -> None:
        prefix = next(prefixes)
        s, entries = self.store(prefix), [entry(1), entry(2), entry(3)]
        await s.append(KEY, entries)
        before = (await s._session(KEY).info()).last_seq
        await self.store(prefix).append(KEY, entries[1:])
        self.assertEqual((await s._session(KEY).info()).last_seq, before)

    async def test_an_id_with_other_content_keeps_the_first(self) -> None:
        for subpath in ({}, {"subpath": "subagents/agent-1"}):
            s, key = self.store(), {**KEY, **subpath}
            await s.append(key, [entry(1)])  # type: ignore[arg-type]
            await s.append(key, [entry(1, changed=True), entry(2), entry(2)])  # type: ignore[arg-type]
            self.assertEqual(await s.load(key), [entry(1), entry(2)])  # type: ignore[arg-type]

    async def test_subpaths_and_projects_are_apart(self) -> None:
        s = self.store()
        sub: SessionKey = {**KEY, "subpath": "subagents/agent-1"}
        other: SessionKey = {**KEY, "project_key": "ö" * 300}
        for n, key in enumerate((KEY, sub, other)):
            await s.append(key, [entry(n)])
        for n, key in enumerate((KEY, sub, other)):
            self.assertEqual(await s.load(key), [entry(n)])
        self.assertEqual([i["session_id"] for i in await s.list_sessions(KEY["project_key"])], [KEY["session_id"]])
        self.assertEqual([i["session_id"] for i in await s.list_sessions(other["project_key"])], [KEY["session_id"]])
        self.assertEqual(await s.list_sessions("never"), [])
        self.assertEqual(await s.list_subkeys(KEY), ["subagents/agent-1"])
        self.assertEqual(await s.list_subkeys(other), [])
        with self.assertRaises(ValueError):
            await s.load({**KEY, "subpath": ""})

    async def test_times_are_of_one_clock(self) -> None:
        s = self.store()
        await s.append(KEY, [entry(1, timestamp="2001-01-01T00:00:00Z")])
        (listed,), (summary,) = await s.list_sessions(KEY["project_key"]), await s.list_session_summaries(KEY["project_key"])
        self.assertGreater(listed["mtime"], 1e12)
        self.assertGreaterEqual(summary["mtime"], listed["mtime"])

    async def test_delete_takes_the_subpaths_along(self) -> None:
        s = self.store()
        subs: list[SessionKey] = [{**KEY, "subpath": f"subagents/agent-{n}"} for n in (1, 2)]
        longer: SessionKey = {**KEY, "session_id": KEY["session_id"] + "0"}
        for key in (KEY, *subs, longer):
            await s.append(key, [entry(1)])
        await s.delete({**KEY, "session_id": "never-written"})
        await s.delete(subs[0])
        self.assertEqual(await s.list_subkeys(KEY), ["subagents/agent-2"])
        await s.delete(KEY)
        self.assertEqual([await s.load(k) for k in (KEY, *subs)], [None] * 3)
        self.assertEqual(await s.list_subkeys(KEY), [])
        self.assertIsNotNone(await s.load(longer))
        self.assertEqual([i["session_id"] for i in await s.list_sessions(KEY["project_key"])], [longer["session_id"]])
        await s.delete(KEY)  # again

    async def test_a_session_that_was_deleted_may_begin_again(self) -> None:
        s = self.store()
        await s.append(KEY, [entry(1), entry(2)])
        await s.delete(KEY)
        gone = await s._client.create()
        await gone.delete()
        try:
            await s._client.create(gone.id, reuse=True)
        except HansardError:  # a server that does not know how
            with self.assertRaises(HansardError):  # and it is not lost silently
                await s.append(KEY, [entry(3)])
            return
        await s.append(KEY, [entry(2), entry(3)])
        self.assertEqual(await s.load(KEY), [entry(2), entry(3)])
        (summary,) = await s.list_session_summaries(KEY["project_key"])
        self.assertEqual(summary["data"]["count"], 2)

    async def test_summaries_do_not_race(self) -> None:
        prefix = next(prefixes)
        stores = [self.store(prefix) for _ in range(4)]
        await asyncio.gather(*[s.append(KEY, [entry(100 * k + n)]) for n in range(10) for k, s in enumerate(stores)])
        (summary,) = await stores[0].list_session_summaries(KEY["project_key"])
        loaded = await stores[0].load(KEY) or []
        self.assertEqual((summary["data"]["count"], len(loaded)), (40, 40))
        self.assertEqual((summary["data"]["first"], summary["data"]["last"]), (loaded[0]["n"], loaded[-1]["n"]))

    async def test_a_summary_that_another_sdk_left_is_made_anew(self) -> None:
        prefix = next(prefixes)
        s = self.store(prefix)
        await s.append(KEY, [entry(1), entry(2)])
        session = s._session(KEY)
        await session.append(patch={"state_ops": [{"op": "add", "path": "/claude/fold", "value": {"language": "typescript", "summary": {"data": {}}}}]})
        self.assertEqual(await s.list_session_summaries(KEY["project_key"]), [])
        await self.store(prefix).append(KEY, [entry(3)])
        (summary,) = await s.list_session_summaries(KEY["project_key"])
        self.assertEqual(summary["data"]["count"], 3)

    async def test_a_batch_that_the_sdk_sends_again_after_an_unknown_outcome(self) -> None:
        proxy = Proxy(self.server.port)
        self.addCleanup(proxy.close)
        for entries in ([{"type": "mode"}, {"type": "mode"}], [entry(1), {"type": "mode"}], [entry(1)]):
            with self.subTest(entries):
                proxy.plan = lambda n, head: "lose" if b"/events HTTP" in head else "pass"
                s = self.store(url=proxy.url, patience=0.1)
                with self.assertRaises(OutcomeUnknown):
                    await s.append(KEY, entries)
                proxy.plan = lambda n, head: "pass"
                await s.append(KEY, entries)
                self.assertEqual(await s.load(KEY), entries)
                await s.append(KEY, [{"type": "mode"}])
                self.assertEqual(await s.load(KEY), entries + [{"type": "mode"}])
                (summary,) = await s.list_session_summaries(KEY["project_key"])
                self.assertEqual(summary["data"]["count"], len(entries) + 1)

    async def test_one_request_for_an_append_that_continues(self) -> None:
        proxy = Proxy(self.server.port)
        self.addCleanup(proxy.close)
        s = self.store(url=proxy.url)
        await s.append(KEY, [entry(1)])
        before = proxy.count
        await s.append(KEY, [entry(2), entry(3)])
        self.assertEqual(proxy.count, before + 1)

    if importlib.util.find_spec("claude_agent_sdk") is not None:

        async def test_conformance_suite_of_the_sdk(self) -> None:
            from claude_agent_sdk.testing import run_session_store_conformance  # type: ignore[import-not-found]

            await run_session_store_conformance(lambda: HansardSessionStore(self.store()._client, next(prefixes)))
