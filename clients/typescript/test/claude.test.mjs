// The Claude Agent SDK's SessionStore: what its documentation asks of a store, and what we promise besides.
// The SDK's own conformance file is not in its package: it is an example of its repository.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { foldSessionSummary } from '@anthropic-ai/claude-agent-sdk';
import { Client, isCode } from 'hansard';
import { HansardSessionStore } from 'hansard/claude';
import { collect, directory, proxy, reuses, serve, token } from './server.mjs';

let dir, server, n = 0;
const clients = [];
const key = { projectKey: '-home-ada-projects-lovelace', sessionId: '5b0e7a0e-9a4b-4f0c-8a51-1f5f9f0a7f11' };
const entry = (x, more = {}) => ({ type: 'user', uuid: `u${x}`, n: x, ...more });
const prefix = () => `c${++n}`;

/** Like the SDK's: some members are set once, the last one wins in others; here all are counted, too. */
function fold(prev, k, entries) {
  const data = { none: null, ...prev?.data };
  for (const e of entries) {
    data.first ??= e.n;
    data.last = e.n;
    data.count = (data.count ?? 0) + 1;
  }
  return { sessionId: k.sessionId, mtime: prev?.mtime ?? 0, data };
}

function store({ at = prefix(), url = server.url, foldSessionSummary = fold, ...options } = {}) {
  const c = new Client(url, { token, ...options });
  clients.push(c);
  return new HansardSessionStore(c, { prefix: at, foldSessionSummary });
}

const summary = async (s, k = key) => (await s.listSessionSummaries(k.projectKey))[0];

before(async () => {
  dir = directory();
  server = await serve(dir.path);
});
after(async () => {
  clients.forEach((c) => c.close());
  await server.kill();
  dir.remove();
});

describe('a store of Claude sessions', () => {
  test('entries come back in order and equal', async () => {
    const s = store();
    assert.equal(await s.load(key), null);
    const batches = [[entry(1, { text: '\u0000 ü \ud83d' }), { type: 'mode', mode: null }], [], [entry(2, { deep: { a: [1, 2.5, {}] } })]];
    for (const b of batches) await s.append(key, b);
    assert.deepEqual(await s.load(key), batches.flat());
  });

  test('ten entries sent again in other batches stay ten', async () => {
    const at = prefix();
    const s = store({ at });
    const entries = Array.from({ length: 10 }, (_, x) => entry(x));
    for (const cut of [10, 3, 7, 1]) for (let i = 0; i < 10; i += cut) await s.append(key, entries.slice(i, i + cut));
    assert.deepEqual(await s.load(key), entries);
    const other = store({ at });
    await other.append(key, [...entries.slice(5), entry(10), ...entries.slice(0, 2)]);
    await other.append(key, [entry(10), entry(11), entry(11)]);
    assert.deepEqual((await s.load(key)).map((e) => e.n), Array.from({ length: 12 }, (_, x) => x));
    assert.deepEqual((await summary(s)).data, { none: null, first: 0, last: 11, count: 12 });
  });

  test('a new process that sends what is there writes nothing', async () => {
    const at = prefix();
    const entries = [entry(1), entry(2), entry(3)];
    await store({ at }).append(key, entries);
    const c = new Client(server.url, { token });
    clients.push(c);
    const [before] = await collect(c.list({ prefix: at + ':' }));
    await store({ at }).append(key, entries.slice(1));
    assert.equal((await c.session(before.id).info()).last_seq, before.last_seq);
  });

  test('an id with other content keeps the first', async () => {
    for (const k of [key, { ...key, subpath: 'subagents/agent-1' }]) {
      const s = store();
      await s.append(k, [entry(1)]);
      await s.append(k, [entry(1, { changed: true }), entry(2), entry(2)]);
      assert.deepEqual(await s.load(k), [entry(1), entry(2)]);
    }
  });

  test('subpaths and projects are apart', async () => {
    const s = store();
    const sub = { ...key, subpath: 'subagents/agent-1' };
    const other = { ...key, projectKey: 'ö'.repeat(300) };
    const all = [key, sub, other];
    for (const [x, k] of all.entries()) await s.append(k, [entry(x)]);
    for (const [x, k] of all.entries()) assert.deepEqual(await s.load(k), [entry(x)]);
    assert.deepEqual((await s.listSessions(key.projectKey)).map((i) => i.sessionId), [key.sessionId]);
    assert.deepEqual((await s.listSessions(other.projectKey)).map((i) => i.sessionId), [key.sessionId]);
    assert.deepEqual(await s.listSessions('never'), []);
    assert.deepEqual(await s.listSubkeys(key), ['subagents/agent-1']);
    assert.deepEqual(await s.listSubkeys(other), []);
    assert.deepEqual((await summary(s)).data.count, 1);
    assert.equal(await s.load({ ...key, subpath: 'never' }), null);
    await assert.rejects(s.load({ ...key, subpath: '' }));
  });

  test('times are of one clock', async () => {
    const s = store();
    await s.append(key, [entry(1, { timestamp: '2001-01-01T00:00:00Z' })]);
    const [listed] = await s.listSessions(key.projectKey);
    assert.ok(Number.isInteger(listed.mtime) && listed.mtime > 1e12);
    assert.ok((await summary(s)).mtime >= listed.mtime);
  });

  test('delete takes the subpaths along', async () => {
    const s = store();
    const subs = [1, 2].map((x) => ({ ...key, subpath: `subagents/agent-${x}` }));
    const longer = { ...key, sessionId: key.sessionId + '0' };
    for (const k of [key, ...subs, longer]) await s.append(k, [entry(1)]);
    await s.delete({ ...key, sessionId: 'never-written' });
    await s.delete(subs[0]);
    assert.deepEqual(await s.listSubkeys(key), ['subagents/agent-2']);
    await s.delete(key);
    for (const k of [key, ...subs]) assert.equal(await s.load(k), null);
    assert.deepEqual(await s.listSubkeys(key), []);
    assert.deepEqual((await s.listSessions(key.projectKey)).map((i) => i.sessionId), [longer.sessionId]);
    assert.deepEqual((await s.listSessionSummaries(key.projectKey)).map((i) => i.sessionId), [longer.sessionId]);
    await s.delete(key);
  });

  test('a session that was deleted may begin again', async () => {
    const s = store();
    await s.append(key, [entry(1), entry(2)]);
    await s.delete(key);
    const can = await reuses(clients.at(-1));
    const again = s.append(key, [entry(2), entry(3)]);
    if (!can) return assert.rejects(again); // and is not lost silently
    await again;
    assert.deepEqual(await s.load(key), [entry(2), entry(3)]);
    assert.equal((await summary(s)).data.count, 2);
    assert.deepEqual((await s.listSessions(key.projectKey)).map((i) => i.sessionId), [key.sessionId]);
  });

  test('summaries do not race', async () => {
    const at = prefix();
    const stores = Array.from({ length: 4 }, () => store({ at }));
    await Promise.all(Array.from({ length: 40 }, (_, x) => stores[x % 4].append(key, [entry(x)])));
    const loaded = await stores[0].load(key);
    const { data } = await summary(stores[0]);
    assert.deepEqual([data.count, loaded.length, data.first, data.last], [40, 40, loaded[0].n, loaded.at(-1).n]);
  });

  test("the SDK's own summaries", async () => {
    const s = store({ foldSessionSummary });
    await s.append(key, [{ type: 'user', uuid: 'a', cwd: '/x', timestamp: '2024-01-01T00:00:00.000Z', message: { role: 'user', content: 'hi' } }]);
    await s.append(key, [{ type: 'custom-title', customTitle: 'T', sessionId: key.sessionId }]);
    const { data } = await summary(s);
    assert.deepEqual([data.firstPrompt, data.customTitle, data.cwd], ['hi', 'T', '/x']);
  });

  test('one that another SDK left is made anew', async () => {
    const at = prefix();
    const s = store({ at });
    await s.append(key, [entry(1), entry(2)]);
    const c = clients.at(-1);
    const [{ id }] = await collect(c.list({ prefix: at + ':' }));
    await c.session(id).append([], { patch: { state_ops: [{ op: 'add', path: '/claude/fold', value: { language: 'python', summary: { data: {} } } }] } });
    assert.deepEqual(await s.listSessionSummaries(key.projectKey), []);
    await store({ at }).append(key, [entry(3)]);
    assert.equal((await summary(s)).data.count, 3);
  });

  test('a batch that the SDK sends again after an unknown outcome', async (t) => {
    const p = await proxy(server.port);
    t.after(() => p.close());
    for (const entries of [[{ type: 'mode' }, { type: 'mode' }], [entry(1), { type: 'mode' }], [entry(1)]]) {
      p.plan = (_, head) => (head.includes('/events HTTP') ? 'lose' : 'pass');
      const s = store({ url: p.url, patience: 100 });
      await assert.rejects(s.append(key, entries), (e) => isCode(e, 'outcome-unknown'));
      p.plan = () => 'pass';
      await s.append(key, entries);
      assert.deepEqual(await s.load(key), entries);
      await s.append(key, [{ type: 'mode' }]);
      assert.deepEqual(await s.load(key), [...entries, { type: 'mode' }]);
      assert.equal((await summary(s)).data.count, entries.length + 1);
    }
  });

  test('an append that continues is one request; calls are stored in their order', async (t) => {
    const p = await proxy(server.port);
    t.after(() => p.close());
    const s = store({ url: p.url });
    await s.append(key, [entry(0)]);
    const before = p.count;
    await Promise.all([1, 2, 3, 4].map((x) => s.append(key, [entry(x)])));
    assert.equal(p.count, before + 4);
    assert.deepEqual((await s.load(key)).map((e) => e.n), [0, 1, 2, 3, 4]);
  });

  test('a failed append does not stop the next', async () => {
    const s = store();
    await assert.rejects(s.append(key, [{ type: 'x'.repeat(300) }]), (e) => isCode(e, 'too-large', 'invalid'));
    await s.append(key, [entry(1)]);
    assert.deepEqual(await s.load(key), [entry(1)]);
  });
});
