// Chats and streams of the AI SDK.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { createUIMessageStream, createUIMessageStreamResponse, JsonToSseTransformStream, readUIMessageStream, validateUIMessages } from 'ai';
import { Client, isCode } from 'hansard';
import { HansardChats, HansardStreams } from 'hansard/ai-sdk';
import { collect, directory, proxy, serve, token } from './server.mjs';

let dir, server, client, n = 0;
const say = (id, text, role = 'user') => ({ id, role, parts: [{ type: 'text', text }] });

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

describe('chats of the AI SDK', () => {
  const chats = (c = client) => new HansardChats(c);
  const name = () => `chat ${++n}`;
  const length = async (id) => (await client.session('chat:~' + (await sha(id))).info()).last_seq;
  const sha = async (text) => Buffer.from(await crypto.subtle.digest('SHA-256', new TextEncoder().encode(text))).toString('hex').slice(0, 32);

  test('what is saved is loaded', async () => {
    const id = name();
    assert.deepEqual(await chats().load(id), []);
    const messages = [say('1', 'hi'), { ...say('2', '\u0000', 'assistant'), metadata: { a: null } }];
    await chats().save(id, messages);
    assert.deepEqual(await chats().load(id), messages);
    assert.deepEqual(await validateUIMessages({ messages: await chats().load(id) }), messages);
  });

  test('only what changed is stored, and only the end is read', async (t) => {
    const p = await proxy(server.port);
    const c = new Client(p.url, { token });
    t.after(() => (c.close(), p.close()));
    const id = name();
    const messages = Array.from({ length: 20 }, (_, x) => say(String(x), 'x'));
    for (let x = 1; x <= 20; x++) await chats(c).save(id, messages.slice(0, x));
    assert.equal(await length(id), 20);
    await chats(c).save(id, messages);
    assert.equal(await length(id), 20);
    assert.deepEqual(await chats().load(id), messages);
  });

  test('edits, regenerations and cuts', async () => {
    const id = name();
    const [a, b, c, d] = ['a', 'b', 'c', 'd'].map((x) => say(x, x));
    const b2 = say('b', 'other');
    for (const messages of [[a, b, c], [a, b], [a, b, d], [a, b2], [a, b2, c, d], [a, b, c, d], [], [], [c], [c, a, b], [a], [a, b]]) {
      await chats().save(id, messages);
      assert.deepEqual(await chats().load(id), messages);
    }
  });

  test('random chats', async (t) => {
    const seed = Number(process.env.HANSARD_SEED) || Math.floor(Math.random() * 2 ** 31);
    t.diagnostic(`seed ${seed}`);
    let x = seed;
    const dice = (sides) => ((x = (Math.imul(x, 1103515245) + 12345) & 0x7fffffff) >> 8) % sides;
    const id = name();
    let messages = [];
    for (let round = 0; round < 60; round++) {
      messages = messages.slice(0, dice(messages.length + 2));
      if (messages.length && dice(3) === 0) messages[dice(messages.length)] = say(String(dice(5)), `edit ${round}`);
      for (let more = dice(4); more > 0; more--) messages.push(say(String(dice(5)), `new ${dice(3)}`));
      await chats().save(id, messages);
      assert.deepEqual(await chats().load(id), messages, `seed ${seed}, round ${round}`);
    }
  });

  test('one who saves on what another has just changed reads it again', async () => {
    const id = name();
    const [q, r, a] = [say('q', 'q'), say('r', 'r'), say('a', 'a', 'assistant')];
    await chats().save(id, [q]);
    let first = true;
    const late = async (url, init) => {
      if (init.method === 'POST' && first) {
        first = false;
        await chats().save(id, [r]);
      }
      return fetch(url, init);
    };
    await chats(new Client(server.url, { token, fetch: late })).save(id, [q, a]);
    assert.deepEqual(await chats().load(id), [q, a]);
  });

  test('two who save at once: one of the two chats, whole', async () => {
    const id = name();
    const all = Array.from({ length: 6 }, (_, k) => [say('q', 'q'), say(`a${k}`, 'answer'), say(`b${k}`, 'more')]);
    await Promise.all(all.map((messages) => chats().save(id, messages)));
    const loaded = await chats().load(id);
    assert.ok(all.some((messages) => JSON.stringify(messages) === JSON.stringify(loaded)), JSON.stringify(loaded));
  });
});

describe('resumable streams', () => {
  const streams = () => new HansardStreams(client);
  const controlled = () => {
    let control;
    const stream = new ReadableStream({ start: (c) => void (control = c) });
    return [stream, control];
  };

  test('one that is under way is resumed from its beginning, by many', async () => {
    const [source, control] = controlled();
    const mine = await streams().createNewResumableStream('s1', () => source);
    control.enqueue('one ');
    control.enqueue('two ');
    const resumed = await Promise.all([1, 2, 3].map(() => streams().resumeExistingStream('s1')));
    const reading = resumed.map(collect);
    control.enqueue('three');
    control.close();
    for (const parts of await Promise.all(reading)) assert.equal(parts.join(''), 'one two three');
    assert.equal((await collect(mine)).join(''), 'one two three');
    assert.equal(await streams().resumeExistingStream('s1'), null);
    assert.equal((await collect(await streams().resumeExistingStream('s1', { finished: true }))).join(''), 'one two three');
    assert.equal(await streams().resumeExistingStream('none'), null);
    await assert.rejects(streams().createNewResumableStream('s1', () => source), (e) => isCode(e, 'exists'));
  });

  test('nobody has to read it, and a reader may leave', async () => {
    const [source, control] = controlled();
    const mine = await streams().resumableStream('s2', () => source);
    await mine.cancel();
    control.enqueue('kept');
    const left = await streams().resumeExistingStream('s2');
    await left.cancel();
    const again = collect(await streams().resumableStream('s2', () => assert.fail('it is there')));
    control.close();
    assert.equal((await again).join(''), 'kept');
  });

  test('one that fails fails for those who resumed it', async () => {
    const [source, control] = controlled();
    (await streams().createNewResumableStream('s3', () => source)).cancel().catch(() => undefined);
    const resumed = collect(await streams().resumeExistingStream('s3'));
    control.error(new Error('the model is gone'));
    await assert.rejects(resumed, /the model is gone/);
  });

  test("the SDK's own stream, read by another process", async () => {
    const ui = createUIMessageStream({
      execute: ({ writer }) => {
        writer.write({ type: 'text-start', id: 't' });
        for (const delta of ['Li', 'ma', '.']) writer.write({ type: 'text-delta', id: 't', delta });
        writer.write({ type: 'text-end', id: 't' });
      },
    });
    let kept;
    const response = createUIMessageStreamResponse({ stream: ui, consumeSseStream: ({ stream }) => void (kept = streams().createNewResumableStream('s4', () => stream)) });
    const direct = await response.text();
    for await (const _ of await kept);
    const resumed = (await collect(await streams().resumeExistingStream('s4', { finished: true }))).join('');
    assert.equal(resumed, direct);
    assert.match(resumed, /"delta":"ma"/);
    assert.ok(JsonToSseTransformStream && readUIMessageStream);
  });
});
