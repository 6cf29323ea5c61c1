"""The Session of the OpenAI Agents SDK, by its documented protocol."""

from __future__ import annotations

import asyncio
import itertools
import unittest

from hansard import AsyncClient, message
from hansard.openai_agents import HansardSession

from .server import TOKEN, Proxy, Server, Temporary

names = (f"a{n}" for n in itertools.count(1))


def user(text: str) -> dict[str, object]:
    return {"role": "user", "content": text}


class Agents(unittest.IsolatedAsyncioTestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.directory = Temporary()
        cls.addClassCleanup(cls.directory.remove)
        cls.server = Server(cls.directory.path)
        cls.addClassCleanup(cls.server.kill)

    def client(self, url: str = "") -> AsyncClient:
        client = AsyncClient(url or self.server.url, TOKEN)
        self.addAsyncCleanup(client.close)
        return client

    async def test_items_come_back_equal(self) -> None:
        s = HansardSession(next(names), self.client())
        self.assertEqual(await s.get_items(), [])
        self.assertIsNone(await s.pop_item())
        items = [
            user("hi"), {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}, {"type": "function_call_output", "call_id": "c", "output": "\u0000"},
            {"type": "reasoning", "id": "r", "summary": []}, {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "yes"}]},
            {"type": "summary", "odd": None}, {"type": "turn"}, user("hi"),
        ]  # fmt: skip
        await s.add_items(items)
        await s.add_items([])
        self.assertEqual(await s.get_items(), items)
        self.assertEqual(await s.get_items(limit=3), items[-3:])
        self.assertEqual(await s.get_items(limit=0), [])
        self.assertEqual(await HansardSession(s.session_id, self.client()).get_items(100), items)

    async def test_pop_and_add_again(self) -> None:
        s = HansardSession(next(names), self.client())
        await s.add_items([user(str(n)) for n in range(4)])
        self.assertEqual([await s.pop_item(), await s.pop_item()], [user("3"), user("2")])
        await s.add_items([user("3")])
        self.assertEqual(await s.get_items(), [user("0"), user("1"), user("3")])
        self.assertEqual(await s.get_items(2), [user("1"), user("3")])
        popped = [await s.pop_item() for _ in range(4)]
        self.assertEqual(popped, [user("3"), user("1"), user("0"), None])

    async def test_clear(self) -> None:
        s = HansardSession(next(names), self.client())
        await s.clear_session()
        await s.add_items([user("a"), user("b")])
        await s.clear_session()
        self.assertEqual((await s.get_items(), await s.get_items(5), await s.pop_item()), ([], [], None))
        await s.add_items([user("c")])
        self.assertEqual((await s.get_items(), await s.pop_item(), await s.pop_item()), ([user("c")], user("c"), None))

    async def test_each_item_is_popped_once(self) -> None:
        id = next(names)
        sessions = [HansardSession(id, self.client()) for _ in range(4)]
        await sessions[0].add_items([user(str(n)) for n in range(12)])
        popped = await asyncio.gather(*[s.pop_item() for s in sessions * 3])
        self.assertEqual(sorted(p["content"] for p in popped), sorted(str(n) for n in range(12)))  # type: ignore[index]
        self.assertEqual(await sessions[0].get_items(), [])

    async def test_lost_answers(self) -> None:
        proxy = Proxy(self.server.port, lambda n, head: "lose" if head.startswith(b"POST") and n % 2 else "pass")
        self.addCleanup(proxy.close)
        s = HansardSession(next(names), self.client(proxy.url))
        for n in range(5):
            await s.add_items([user(str(n))])
        await s.pop_item()
        self.assertEqual(await s.get_items(), [user(str(n)) for n in range(4)])

    async def test_what_others_wrote(self) -> None:
        c, id = self.client(), next(names)
        await c.session(id).append(message("agent", "plain"), {"kind": "note", "data": {"x": 1}}, {"data": {"text": "hello"}}, create=True)
        async with c.session(id).turn():
            pass
        s = HansardSession(id, c)
        self.assertEqual(await s.get_items(), [{"role": "assistant", "content": "plain"}, user("hello")])

    async def test_conversations_routes_see_the_same(self) -> None:
        c, id = self.client(), next(names)
        s = HansardSession(id, c)
        await s.add_items([user("a"), user("b"), user("c")])
        await s.pop_item()
        page = await c._core.get(f"/v1/conversations/{id}/items", [("order", "asc")])
        self.assertEqual([i["content"][0]["text"] for i in page["data"]], ["a", "b"])
