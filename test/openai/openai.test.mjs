// The official openai package, pointed at Hansard.
import { test } from 'node:test';
import assert from 'node:assert/strict';
import OpenAI from 'openai';

const others = process.env.OTHERS_URL; // other programs that use the same store
const client = new OpenAI({ baseURL: `${process.env.HANSARD_URL}/v1`, apiKey: process.env.HANSARD_TOKEN, maxRetries: 0 });
const { conversations } = client;
const user = (text) => ({ type: 'message', role: 'user', content: [{ type: 'input_text', text }] });
const texts = (items) => items.map((item) => item.content[0].text);
const all = async (pages) => {
  const items = [];
  for await (const item of pages) items.push(item);
  return items;
};
const refused = (promise, kind, status, code, param, says = /./) =>
  assert.rejects(promise, (err) => {
    assert.ok(err instanceof kind, `${err.constructor.name} is not ${kind.name}: ${err.message}`);
    assert.equal(err.status, status);
    assert.equal(err.code, code);
    assert.equal(err.param, param);
    assert.equal(err.type, status >= 500 ? 'server_error' : 'invalid_request_error');
    assert.ok(err.message.length > 20, err.message);
    assert.match(err.message, says);
    return true;
  });

test('create, retrieve, update, delete a conversation', async () => {
  const made = await conversations.create({ metadata: { topic: 'demo' }, items: [user('Hello!')] });
  assert.deepEqual(Object.keys(made).sort(), ['created_at', 'id', 'metadata', 'object']);
  assert.equal(made.object, 'conversation');
  assert.match(made.id, /^conv_/);
  assert.deepEqual(made.metadata, { topic: 'demo' });
  assert.ok(Math.abs(made.created_at - Date.now() / 1000) < 3600 && Number.isInteger(made.created_at));
  assert.deepEqual(await conversations.retrieve(made.id), made);
  const updated = await conversations.update(made.id, { metadata: { topic: 'other', more: 'x'.repeat(512) } });
  assert.deepEqual(updated, { ...made, metadata: { topic: 'other', more: 'x'.repeat(512) } });
  assert.deepEqual(await conversations.retrieve(made.id), updated);
  assert.deepEqual(await conversations.delete(made.id), { id: made.id, object: 'conversation.deleted', deleted: true });
  await refused(conversations.retrieve(made.id), OpenAI.NotFoundError, 404, 'conversation_deleted', 'conversation_id');
});

test('create with nothing at all', async () => {
  const made = await conversations.create();
  assert.deepEqual(made.metadata, {});
  const page = await conversations.items.list(made.id);
  assert.deepEqual(page.data, []);
  assert.equal(page.has_more, false);
  assert.deepEqual(await all(conversations.items.list(made.id)), []);
});

test('add, retrieve and delete items', async () => {
  const { id } = await conversations.create({ items: [user('one')] });
  const list = await conversations.items.create(id, {
    items: [
      { role: 'user', content: 'a string' },
      { type: 'function_call', call_id: 'call_1', name: 'weather', arguments: '{"city":"Lima"}' },
      { type: 'function_call_output', call_id: 'call_1', output: 'sunny' },
      { type: 'reasoning', id: 'rs_own', summary: [], encrypted_content: 'gAAAAABo==' },
      { role: 'assistant', content: [{ type: 'output_text', text: 'It is sunny.', annotations: [] }] },
    ],
    include: ['reasoning.encrypted_content'],
  });
  assert.equal(list.object, 'list');
  assert.equal(list.has_more, false);
  assert.equal(list.data.length, 5);
  assert.equal(list.first_id, list.data[0].id);
  assert.equal(list.last_id, list.data[4].id);
  assert.deepEqual(list.data[0], {
    id: list.data[0].id, type: 'message', status: 'completed', role: 'user', content: [{ type: 'input_text', text: 'a string' }],
  });
  assert.deepEqual(list.data.map((item) => item.type), ['message', 'function_call', 'function_call_output', 'reasoning', 'message']);
  assert.deepEqual(list.data[3], { type: 'reasoning', id: 'rs_own', summary: [], encrypted_content: 'gAAAAABo==' });
  for (const item of list.data) {
    assert.deepEqual(await conversations.items.retrieve(item.id, { conversation_id: id, include: ['reasoning.encrypted_content'] }), item);
  }
  const conversation = await conversations.items.delete('rs_own', { conversation_id: id });
  assert.equal(conversation.id, id);
  assert.equal(conversation.object, 'conversation');
  await refused(conversations.items.retrieve('rs_own', { conversation_id: id }), OpenAI.NotFoundError, 404, 'item_not_found', 'item_id');
  await refused(conversations.items.delete('rs_own', { conversation_id: id }), OpenAI.NotFoundError, 404, 'item_not_found', 'item_id');
  assert.equal((await all(conversations.items.list(id))).length, 5);
});

for (const order of ['asc', 'desc', undefined]) {
  for (const limit of [1, 7, 100, undefined]) {
    test(`the pager gives every item once: order ${order}, limit ${limit}`, async () => {
      const { id } = await conversations.create();
      const given = [];
      for (let n = 0; n < 45; n += 9) {
        const batch = Array.from({ length: 9 }, (_, i) => `text ${n + i}`);
        given.push(...batch);
        await conversations.items.create(id, { items: batch.map(user) });
      }
      const gone = (await all(conversations.items.list(id)))[20];
      await conversations.items.delete(gone.id, { conversation_id: id });
      const want = given.filter((text) => text !== gone.content[0].text);
      if (order !== 'asc') want.reverse();
      const query = {};
      if (order) query.order = order;
      if (limit) query.limit = limit;
      assert.deepEqual(texts(await all(conversations.items.list(id, query))), want);
      const page = await conversations.items.list(id, query);
      assert.equal(page.data.length, Math.min(limit ?? 20, want.length));
      assert.equal(page.last_id, page.data.at(-1).id);
      assert.equal(page.has_more, page.data.length < want.length);
      assert.equal(page.hasNextPage(), page.has_more);
    });
  }
}

test('after', async () => {
  const { id } = await conversations.create({ items: ['a', 'b', 'c', 'd'].map(user) });
  const items = await all(conversations.items.list(id, { order: 'asc' }));
  const behind = async (order) => texts((await conversations.items.list(id, { order, after: items[1].id })).data);
  assert.deepEqual(await behind('asc'), ['c', 'd']);
  assert.deepEqual(await behind('desc'), ['a']);
});

test('items come back byte for byte', async () => {
  const { id } = await conversations.create();
  // Escapes, digits that no double has, members in no usual order: rawJSON sends them as they are here.
  const item = {
    zeta: JSON.rawJSON('12345678901234567890.000'),
    encrypted_content: JSON.rawJSON('"gA\\u003d\\u00e9\\/\\ud83d\\ude00<>&é"'),
    id: 'rs_bytes',
    alpha: { b: JSON.rawJSON('1e2'), a: JSON.rawJSON('-0.0') },
    summary: [],
    type: 'reasoning',
  };
  const raw = JSON.stringify(item);
  assert.match(raw, /^\{"zeta":12345678901234567890\.000,"encrypted_content":"gA\\u003d\\u00e9/);
  const created = await conversations.items.create(id, { items: [item] }).asResponse();
  assert.ok((await created.text()).includes(raw));
  assert.equal(await (await fetch(`${others}/last/${id}`)).text(), raw);
  const got = await conversations.items.retrieve('rs_bytes', { conversation_id: id }).asResponse();
  assert.equal(await got.text(), raw);
  const listed = await conversations.items.list(id).asResponse();
  assert.equal(await listed.text(), `{"object":"list","data":[${raw}],"first_id":"rs_bytes","last_id":"rs_bytes","has_more":false}`);
  // What the API adds goes in front; what was given stays as it was.
  const message = { role: 'user', content: [{ text: JSON.rawJSON('"\\u0041"'), type: 'input_text' }], n: JSON.rawJSON('10000000000000000001') };
  const bare = JSON.stringify(message);
  const one = (await conversations.items.create(id, { items: [message] })).first_id;
  assert.equal(await (await fetch(`${others}/last/${id}`)).text(), bare);
  const text = await (await conversations.items.retrieve(one, { conversation_id: id }).asResponse()).text();
  assert.equal(text, `{"id":"${one}","type":"message","status":"completed",${bare.slice(1)}`);
});

test('error classes', async () => {
  const { id } = await conversations.create({ items: [{ type: 'reasoning', id: 'rs_1', summary: [] }] });
  const { NotFoundError, BadRequestError } = OpenAI;
  const items = conversations.items;
  await refused(conversations.retrieve('conv_none'), NotFoundError, 404, 'conversation_not_found', 'conversation_id');
  await refused(conversations.delete('conv_none'), NotFoundError, 404, 'conversation_not_found', 'conversation_id');
  await refused(items.list('conv_none'), NotFoundError, 404, 'conversation_not_found', 'conversation_id');
  await refused(items.create('conv_none', { items: [user('x')] }), NotFoundError, 404, 'conversation_not_found', 'conversation_id');
  await refused(items.list(id, { after: 'msg_none' }), NotFoundError, 404, 'item_not_found', 'after');
  await refused(conversations.retrieve('not/an/id'), BadRequestError, 400, 'invalid_value', 'conversation_id');
  await refused(items.list(id, { limit: 101 }), BadRequestError, 400, 'integer_above_max_value', 'limit');
  await refused(items.list(id, { limit: 0 }), BadRequestError, 400, 'integer_below_min_value', 'limit');
  await refused(items.list(id, { order: 'sideways' }), BadRequestError, 400, 'invalid_value', 'order');
  await refused(items.create(id, { items: Array(101).fill(user('x')) }), BadRequestError, 400, 'array_above_max_length', 'items');
  await refused(items.create(id, {}), BadRequestError, 400, 'missing_required_parameter', 'items');
  await refused(items.create(id, { items: [{ role: 'user' }] }), BadRequestError, 400, 'missing_required_parameter', 'items[0].content');
  await refused(items.create(id, { items: [{ type: 'reasoning', id: 'rs_1' }] }), BadRequestError, 400, 'duplicate_item_id', 'items[0].id');
  await refused(conversations.create({ metadata: { a: 1 } }), BadRequestError, 400, 'invalid_type', 'metadata.a');
  await refused(conversations.create({ metadata: { a: 'x'.repeat(513) } }), BadRequestError, 400, 'string_above_max_length', 'metadata.a');
  const many = Object.fromEntries(Array.from({ length: 17 }, (_, i) => [`k${i}`, 'v']));
  await refused(conversations.update(id, { metadata: many }), BadRequestError, 400, 'object_above_max_properties', 'metadata');
  assert.equal((await all(items.list(id))).length, 1);
});

// A handler alone lets everybody in; the program has tokens.
const reader = process.env.HANSARD_READER;
test('who may not gets the SDK\'s own errors', { skip: !reader && 'there is no server around the handler' }, async () => {
  const { id } = await conversations.create({ items: [user('x')] });
  const { AuthenticationError, PermissionDeniedError, NotFoundError } = OpenAI;
  const wrong = client.withOptions({ apiKey: 'a-wrong-token' }).conversations;
  for (const asked of [() => wrong.create(), () => wrong.retrieve(id), () => wrong.items.list(id), () => wrong.delete(id)]) {
    await refused(asked(), AuthenticationError, 401, 'invalid_api_key', null, /The token is not one of this server's/);
  }
  const reading = client.withOptions({ apiKey: reader }).conversations;
  assert.deepEqual(texts(await all(reading.items.list(id))), ['x']);
  await refused(reading.items.create(id, { items: [user('y')] }), PermissionDeniedError, 403, 'missing_right', null, /This needs the right to append/);
  await refused(reading.delete(id), PermissionDeniedError, 403, 'missing_right', null, /This needs the right to admin/);
  await refused(reading.retrieve('conv_none'), NotFoundError, 404, 'conversation_not_found', 'conversation_id', /'conv_none' not found/);
  // The name of the request in the server's log.
  await assert.rejects(reading.delete(id), (err) => /^[0-9a-f-]{36}$/.test(err.requestID));
  assert.equal((await all(conversations.items.list(id))).length, 1);
});

test('an idempotency key makes a retry harmless', async () => {
  const { id } = await conversations.create();
  const again = { headers: { 'Idempotency-Key': 'message-42' } };
  const first = await conversations.items.create(id, { items: [user('once')] }, again);
  assert.deepEqual(await conversations.items.create(id, { items: [user('once')] }, again), first);
  assert.equal((await all(conversations.items.list(id))).length, 1);
  await refused(conversations.items.create(id, { items: [user('other')] }, again), OpenAI.UnprocessableEntityError, 422, 'idempotency_key_reused', 'Idempotency-Key');
  const key = { headers: { 'Idempotency-Key': `create-${id}` } };
  assert.deepEqual(await conversations.create({ items: [user('x')] }, key), await conversations.create({ items: [user('x')] }, key));
});

test('many clients at once', async () => {
  const { id } = await conversations.create();
  const given = Array.from({ length: 60 }, (_, i) => `text ${i}`);
  const acknowledged = await Promise.all(given.map((text) => conversations.items.create(id, { items: [user(text)] })));
  const items = await all(conversations.items.list(id, { order: 'asc', limit: 9 }));
  assert.deepEqual(texts(items).sort(), given.sort());
  assert.deepEqual(items.map((item) => item.id).sort(), acknowledged.map((list) => list.first_id).sort());
  const deleted = await Promise.allSettled(Array.from({ length: 10 }, () => conversations.items.delete(items[0].id, { conversation_id: id })));
  assert.equal(deleted.filter((d) => d.status === 'fulfilled').length, 1);
});

test('a session that other programs write is a conversation', async () => {
  const id = `shared:session-${process.pid}.${Date.now()}`;
  const append = async (query, data) => assert.ok((await fetch(`${others}/append/${id}?${query}`, { method: 'POST', body: data })).ok);
  await append('role=user', '"What is the capital of Peru?"');
  await append('kind=progress', '{"percent":50}');
  await append('role=agent', '"Lima."');
  await conversations.items.create(id, { items: [user('Thanks!')] });
  const items = await all(conversations.items.list(id, { order: 'asc' }));
  assert.deepEqual(texts(items), ['What is the capital of Peru?', 'Lima.', 'Thanks!']);
  assert.deepEqual(items.map((item) => item.role), ['user', 'assistant', 'user']);
  assert.deepEqual(await conversations.items.retrieve(items[1].id, { conversation_id: id }), items[1]);
});

test('an exclusive turn is a ConflictError, and its holder gets in', async (t) => {
  const { id } = await conversations.create({ items: [user('x')] });
  const held = await fetch(`${others}/hold/${id}`, { method: 'POST' });
  if (held.status === 501) return t.skip('the store has no turns');
  assert.equal(held.status, 200);
  const { ConflictError } = OpenAI;
  await refused(conversations.items.create(id, { items: [user('y')] }), ConflictError, 409, 'turn_held', null);
  await refused(conversations.delete(id), ConflictError, 409, 'turn_held', null);
  const holder = client.withOptions({ defaultHeaders: { 'Hansard-Turn': await held.text() } });
  await holder.conversations.items.create(id, { items: [user('mine')] });
  await conversations.items.create(id, { items: [user('for later')] }, { headers: { 'Hansard-Inbox': 'true' } });
  assert.deepEqual(texts(await all(conversations.items.list(id, { order: 'asc' }))), ['x', 'mine', 'for later']);
});
