// The EventStore of the MCP SDK, alone and under the SDK's own server and client.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before, describe, test } from 'node:test';
import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import { WebStandardStreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/webStandardStreamableHttp.js';
import { Client, isCode } from 'hansard';
import { HansardEventStore } from 'hansard/mcp';
import { directory, proxy, serve, token } from './server.mjs';

let dir, server, client, n = 0;
const store = (id = `mcp:${++n}`) => new HansardEventStore(client, id);
const note = (x) => ({ jsonrpc: '2.0', method: 'notifications/message', params: { x } });

async function replay(s, id) {
  const sent = [];
  const stream = await s.replayEventsAfter(id, { send: async (eventId, m) => void sent.push([eventId, m]) });
  return { stream, sent };
}

before(async () => {
  dir = directory();
  server = await serve(dir.path);
  client = new Client(server.url, { token });
});
after(async () => {
  client.close();
  await server.kill();
  dir.remove();
});

describe('an event store of MCP', () => {
  test('replays what came after, of one stream alone', async () => {
    const s = store('mcp:replay');
    const streams = ['_GET_stream', randomUUID(), 'odd / stream\n' + 'x'.repeat(300)];
    const ids = streams.map(() => []);
    for (let x = 0; x < 12; x++) ids[x % 3].push(await s.storeEvent(streams[x % 3], note(x)));
    assert.equal(new Set(ids.flat()).size, 12);
    for (const [k, stream] of streams.entries()) {
      const { stream: found, sent } = await replay(store('mcp:replay'), ids[k][1]);
      assert.equal(found, stream);
      assert.deepEqual(sent, [[ids[k][2], note(6 + k)], [ids[k][3], note(9 + k)]]);
      assert.deepEqual((await replay(s, ids[k][3])).sent, []);
      assert.equal(await s.getStreamIdForEventId(ids[k][0]), stream);
      assert.ok(!/[\r\n]/.test(ids[k][0]));
    }
  });

  test('an id that is not ours is refused', async () => {
    const s = store();
    const id = await s.storeEvent('a', note(1));
    await s.storeEvent('b', note(2));
    for (const bad of ['', 'x', '99_a', id.replace('_a', '_b'), '0_a', '1_%', '2_a']) await assert.rejects(replay(s, bad), (e) => isCode(e, 'no-event'), bad);
    await assert.rejects(replay(store(), '1_a'), (e) => isCode(e, 'no-event'));
    assert.equal(await s.getStreamIdForEventId('x'), undefined);
  });

  test('lost answers: each is stored once', async (t) => {
    const p = await proxy(server.port, (x) => (x % 2 ? 'lose' : 'pass'));
    const c = new Client(p.url, { token });
    t.after(() => (c.close(), p.close()));
    const lossy = new HansardEventStore(c, 'mcp:lossy');
    const first = await lossy.storeEvent('a', note(0));
    for (let x = 1; x < 5; x++) await lossy.storeEvent('a', note(x));
    assert.deepEqual((await replay(store('mcp:lossy'), first)).sent.map(([, m]) => m.params.x), [1, 2, 3, 4]);
  });

  test("a client of the SDK's transport gets the rest from another process", async () => {
    const post = (transport, body, headers = {}) => transport.handleRequest(new Request('http://localhost/mcp', {
      method: 'POST', body: JSON.stringify(body),
      headers: { 'content-type': 'application/json', accept: 'application/json, text/event-stream', ...headers },
    }));
    const start = async (sessionId) => {
      const transport = new WebStandardStreamableHTTPServerTransport({ sessionIdGenerator: () => sessionId, eventStore: store('mcp:sdk') });
      const mcp = new Server({ name: 'test', version: '1' }, { capabilities: { logging: {} } });
      await mcp.connect(transport);
      const hello = { jsonrpc: '2.0', id: 1, method: 'initialize', params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'c', version: '1' } } };
      const answer = await post(transport, hello);
      const text = await answer.text();
      return { mcp, transport, text };
    };
    const one = await start('s1');
    const ids = [...one.text.matchAll(/^id: (.+)$/gm)].map((m) => m[1]);
    assert.ok(ids.length > 0, one.text);
    const listen = (transport, last) => transport.handleRequest(new Request('http://localhost/mcp', {
      headers: { accept: 'text/event-stream', 'mcp-session-id': 's1', 'mcp-protocol-version': '2025-11-25', ...(last ? { 'last-event-id': last } : {}) },
    }));
    const stream = (await listen(one.transport)).body.getReader();
    await one.mcp.sendLoggingMessage({ level: 'info', data: 'one' });
    const decoder = new TextDecoder();
    let seen = '';
    while (!seen.includes('"one"')) seen += decoder.decode((await stream.read()).value);
    await stream.cancel();
    await one.mcp.sendLoggingMessage({ level: 'info', data: 'two' }); // nobody listens
    const last = [...seen.matchAll(/^id: (.+)$/gm)].at(-1)[1];
    const two = await start('s1');
    const rest = (await listen(two.transport, last)).body.getReader();
    let got = '';
    while (!got.includes('"two"')) got += decoder.decode((await rest.read()).value);
    assert.ok(!got.includes('"one"'));
    await rest.cancel();
    await one.mcp.close();
    await two.mcp.close();
  });
});
