// The Session of OpenAI Agents. The tests of the SDK's MemorySession are not in its package; these say the same
// in our words, and compare with MemorySession itself.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { MemorySession } from '@openai/agents-core';
import { Client, message } from 'hansard';
import { HansardSession } from 'hansard/openai-agents';
import { directory, proxy, serve, token } from './server.mjs';

let dir, server, client, n = 0;
const user = (text, more = {}) => ({ type: 'message', role: 'user', content: text, ...more });
const session = (sessionId = `a${++n}`, c = client) => new HansardSession(c, { sessionId });
const texts = async (s) => (await s.getItems()).map((i) => i.content);
const append = (operationId, ...items) => ({ operationId, transaction: { type: 'append_items', items } });
const suffix = (operationId, expectedSuffix, replacement) => ({ operationId, transaction: { type: 'replace_suffix', expectedSuffix, replacement } });

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

describe('a session of OpenAI Agents', () => {
  test('items come back equal', async () => {
    const s = session();
    assert.deepEqual([await s.getItems(), await s.popItem()], [[], undefined]);
    const items = [
      user('hi'), { type: 'function_call', callId: 'c', name: 'f', arguments: '{}' }, { type: 'function_call_result', callId: 'c', output: '\u0000' },
      { type: 'reasoning', content: [] }, { type: 'message', role: 'assistant', status: 'completed', content: [{ type: 'output_text', text: 'yes' }] },
      { type: 'summary', odd: null }, { type: 'turn' }, user('hi', { providerData: { bytes: new Uint8Array([3, 7]) } }),
    ];
    await s.addItems(items);
    await s.addItems([]);
    assert.deepEqual(await s.getItems(), items);
    assert.deepEqual(await s.getItems(3), items.slice(-3));
    assert.deepEqual([await s.getItems(0), await s.getItems(-1)], [[], []]);
    assert.deepEqual(await session(await s.getSessionId()).getItems(100), items);
    assert.ok(await new HansardSession(client).getSessionId());
  });

  test('pop, add again, clear', async () => {
    const s = session();
    await s.clearSession();
    await s.addItems([0, 1, 2, 3].map((x) => user(String(x))));
    assert.deepEqual([await s.popItem(), await s.popItem()], [user('3'), user('2')]);
    await s.addItems([user('3')]);
    assert.deepEqual(await texts(s), ['0', '1', '3']);
    assert.deepEqual(await s.getItems(2), [user('1'), user('3')]);
    await s.clearSession();
    assert.deepEqual([await s.getItems(), await s.getItems(5), await s.popItem()], [[], [], undefined]);
    await s.addItems([user('c')]);
    assert.deepEqual([await s.popItem(), await s.popItem()], [user('c'), undefined]);
  });

  test('each item is popped once', async () => {
    const s = session();
    await s.addItems(Array.from({ length: 12 }, (_, x) => user(String(x))));
    const others = await Promise.all([1, 2, 3, 4].map(async () => session(await s.getSessionId())));
    const popped = await Promise.all([...others, ...others, ...others].map((o) => o.popItem()));
    assert.deepEqual(popped.map((i) => Number(i.content)).sort((a, b) => a - b), Array.from({ length: 12 }, (_, x) => x));
    assert.deepEqual(await s.getItems(), []);
  });

  test('lost answers', async (t) => {
    const p = await proxy(server.port, (x, head) => (head.startsWith('POST') && x % 2 ? 'lose' : 'pass'));
    const c = new Client(p.url, { token });
    t.after(() => (c.close(), p.close()));
    const s = session(undefined, c);
    for (let x = 0; x < 5; x++) await s.addItems([user(String(x))]);
    await s.popItem();
    await s.applyHistoryTransaction(append('op', user('op')));
    assert.deepEqual(await texts(s), ['0', '1', '2', '3', 'op']);
  });

  test('what others wrote, and what the Conversations routes see', async () => {
    const s = session();
    const id = await s.getSessionId();
    await client.session(id).append([message('agent', 'plain'), { kind: 'note', data: { x: 1 } }, { data: { text: 'hello' } }], { create: true });
    await client.session(id).withTurn({}, async () => undefined);
    assert.deepEqual((await s.getItems()).map((i) => [i.role, i.content[0].text ?? i.content]), [['assistant', 'plain'], ['user', 'hello']]);
    await s.addItems([user('a'), user('b')]);
    await s.popItem();
    const page = await client.http.get(`/v1/conversations/${id}/items`, [['order', 'asc']]);
    assert.deepEqual(page.data.map((i) => i.content[0].text), ['plain', 'hello', 'a']);
  });

  test('mutations replace a call where it is', async () => {
    const call = (name, more = {}) => ({ type: 'function_call', callId: 'c', name, arguments: '{}', ...more });
    const items = [user('a'), call('one'), user('b'), call('two'), user('c')];
    const mutations = [{ type: 'replace_function_call', callId: 'c', replacement: call('three', { status: 'completed' }) }];
    const [ours, theirs] = [session(), new MemorySession()];
    for (const s of [ours, theirs]) {
      await s.addItems(items);
      await s.applyHistoryMutations({ mutations });
      await s.applyHistoryMutations({ mutations: [{ ...mutations[0], callId: 'none' }] });
    }
    assert.deepEqual(await ours.getItems(), await theirs.getItems());
    await ours.applyHistoryMutations({ mutations: [{ ...mutations[0], replacement: call('four') }] });
    assert.deepEqual((await ours.getItems())[1], call('four'));
  });

  test('compaction replaces the history in one commit', async () => {
    const s = session();
    await s.addItems([user('a'), user('b')]);
    await s.replaceHistoryWithCompaction([user('short'), user('b')]);
    assert.deepEqual(await texts(s), ['short', 'b']);
    assert.deepEqual(await s.popItem(), user('b'));
  });
});

// The same steps on both: what the SDK's memory session does is what is meant.
describe('history transactions', () => {
  async function both(steps) {
    const outcomes = [];
    for (const s of [session(), new MemorySession()]) {
      const said = [];
      for (const step of steps) {
        try {
          await step(s);
          said.push('done');
        } catch (error) {
          said.push(error.message);
        }
      }
      outcomes.push({ said, items: await s.getItems() });
    }
    assert.deepEqual(outcomes[0], outcomes[1]);
    return outcomes[0];
  }
  const add = (...items) => (s) => s.addItems(items);
  const apply = (args) => (s) => s.applyHistoryTransaction(args);

  test('append is applied once', async () => {
    const { items } = await both([add(user('start')), apply(append('op', user('x'))), add(user('later')), apply(append('op', user('x')))]);
    assert.deepEqual(items, [user('start'), user('x'), user('later')]);
  });

  test('a suffix is replaced once', async () => {
    const t = suffix('op', [user('blocked')], [user('accepted'), user('more')]);
    const { items } = await both([add(user('start'), user('blocked')), apply(t), add(user('later')), apply(t)]);
    assert.deepEqual(items.map((i) => i.content), ['start', 'accepted', 'more', 'later']);
  });

  test('a suffix that does not match changes and records nothing', async () => {
    const { said } = await both([
      add(user('start')), apply(suffix('op', [user('other')], [user('x')])), apply(suffix('op', [user('a'), user('start')], [])), apply(suffix('op', [user('start')], [user('x')])),
    ]);
    assert.match(said[1], /suffix no longer matches/);
    assert.equal(said[3], 'done');
  });

  test('an operation with other content, and an empty one', async () => {
    const { said } = await both([apply(append('op', user('1'))), apply(append('op', user('2'))), apply(append('empty')), apply(append('empty', user('x')))]);
    assert.match(said[1], /already applied with a different transaction/);
    assert.match(said[3], /already applied with a different transaction/);
  });

  test('clearing forgets operations', async () => {
    const { items } = await both([apply(append('op', user('1'))), (s) => s.clearSession(), apply(append('op', user('1')))]);
    assert.equal(items.length, 1);
  });

  test('what can not be kept is refused before anything changes', async () => {
    const cycle = {};
    cycle.self = cycle;
    const hidden = Object.defineProperty(user('x'), 'providerData', { enumerable: false, value: 1 });
    const bad = [{ timestamp: new Date(0) }, cycle, { value: 42n }, { secret: Symbol('secret') }, { values: new Uint16Array([300]) }].map((providerData) => user('x', { providerData }));
    const { said, items } = await both([
      ...bad.map((item) => apply(append('op', item))), apply(append('op', hidden)), apply(append('op', 42)),
      apply({ operationId: 'op', transaction: { type: 'append_items', items: new Array(1) } }), apply({ operationId: 'op', transaction: { type: 'append_items', items: new Proxy([], {}) } }),
      apply({ operationId: ' ', transaction: { type: 'append_items', items: [] } }), apply({ operationId: 'op', transaction: { type: 'unknown' } }), apply({ operationId: 'op', transaction: null }),
      apply({ operationId: 'op', transaction: { type: 'append_items', items: [], more: 1 } }), apply({ operationId: 'op', transaction: { type: 'replace_suffix', expectedSuffix: [], replacement: [], more: 1 } }),
      apply({ get operationId() { throw new Error('secret'); } }), apply(append('op', user('good'))),
    ]);
    assert.deepEqual(said.map((s) => s === 'done'), [...Array(15).fill(false), true]);
    assert.deepEqual(items, [user('good')]);
  });

  test('bytes, and objects without a prototype', async () => {
    const bytes = (source) => user('b', { providerData: Object.assign(Object.create(null), { bytes: new Uint8Array(source) }) });
    const { items } = await both([apply(append('op', bytes([3, 7]))), apply(append('op', bytes([3, 7]))), apply(append('op', bytes([3, 8])))]);
    assert.deepEqual([...items[0].providerData.bytes], [3, 7]);
  });

  test('two who apply one operation at the same moment', async () => {
    const s = session();
    await s.addItems([user('start')]);
    const many = await Promise.all([1, 2, 3, 4].map(async () => session(await s.getSessionId())));
    await Promise.all(many.map((o) => o.applyHistoryTransaction(append('op', user('x'), user('y')))));
    await Promise.all(many.map((o) => o.applyHistoryTransaction(suffix('op2', [user('y')], [user('z')]))));
    assert.deepEqual(await texts(s), ['start', 'x', 'z']);
  });
});
