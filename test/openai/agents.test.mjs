// OpenAIConversationsSession of @openai/agents, pointed at Hansard.
import { test } from 'node:test';
import assert from 'node:assert/strict';
import OpenAI from 'openai';
import { Agent, OpenAIConversationsSession, Runner, startOpenAIConversationsSession } from '@openai/agents';

const others = process.env.OTHERS_URL; // other programs that use the same store
const client = new OpenAI({ baseURL: `${process.env.HANSARD_URL}/v1`, apiKey: process.env.HANSARD_TOKEN, maxRetries: 0 });
const newSession = () => new OpenAIConversationsSession({ client });
const text = (item) => (typeof item.content === 'string' ? item.content : item.content[0].text);

test('a session begins by itself, keeps items and pops them', async () => {
  const session = newSession();
  assert.deepEqual(await session.getItems(), []);
  assert.match(await session.getSessionId(), /^conv_/);
  await session.addItems([
    { role: 'user', content: 'a string' },
    { type: 'message', role: 'user', content: [{ type: 'input_text', text: 'a list' }] },
    { role: 'system', content: 'be brief' },
    { type: 'message', role: 'assistant', status: 'completed', content: [{ type: 'output_text', text: 'an answer' }] },
  ]);
  const items = await session.getItems();
  assert.deepEqual(items.map(text), ['a string', 'a list', 'be brief', 'an answer']);
  assert.deepEqual(items.map((item) => item.role), ['user', 'user', 'system', 'assistant']);
  assert.deepEqual((await session.getItems(2)).map(text), ['be brief', 'an answer']);
  assert.deepEqual(await session.getItems(0), []);
  assert.equal(text(await session.popItem()), 'an answer');
  assert.equal(text(await session.popItem()), 'be brief');
  assert.deepEqual((await session.getItems()).map(text), ['a string', 'a list']);
});

test('tool calls, their results and signed reasoning go through', async () => {
  const session = newSession();
  await session.addItems([
    { role: 'user', content: 'weather?' },
    { type: 'reasoning', id: 'rs_abc', content: [{ type: 'input_text', text: 'thinking' }], providerData: { encrypted_content: 'gAAAA==' } },
    { type: 'function_call', callId: 'call_1', name: 'weather', arguments: '{"city":"Lima"}', status: 'completed' },
    { type: 'function_call_result', callId: 'call_1', name: 'weather', status: 'completed', output: { type: 'text', text: 'sunny' } },
  ]);
  const items = await session.getItems();
  assert.deepEqual(items.map((item) => item.type), ['message', 'reasoning', 'function_call', 'function_call_result']);
  assert.equal(items[1].id, 'rs_abc');
  assert.match(JSON.stringify(items[1]), /gAAAA==/);
  assert.equal(items[2].callId, 'call_1');
  assert.equal(items[2].arguments, '{"city":"Lima"}');
  assert.match(JSON.stringify(items[3].output), /sunny/);
  assert.equal((await session.popItem()).type, 'function_call_result');
  assert.equal((await session.popItem()).type, 'function_call');
  // A reasoning item with its own id is popped, and may be added again.
  const reasoning = await session.popItem();
  assert.equal(reasoning.id, 'rs_abc');
  await session.addItems([reasoning]);
  assert.deepEqual((await session.getItems()).map((item) => item.type), ['message', 'reasoning']);
});

test('getItems(limit) over more than a page', async () => {
  const session = newSession();
  for (let n = 0; n < 130; n += 13) {
    await session.addItems(Array.from({ length: 13 }, (_, i) => ({ role: 'user', content: `${n + i}` })));
  }
  const want = Array.from({ length: 130 }, (_, i) => `${i}`);
  assert.deepEqual((await session.getItems()).map(text), want);
  assert.deepEqual((await session.getItems(125)).map(text), want.slice(5));
});

test('clearSession deletes the conversation; the next item begins another', async () => {
  const session = newSession();
  await session.addItems([{ role: 'user', content: 'x' }]);
  const id = session.sessionId;
  await session.clearSession();
  await assert.rejects(client.conversations.retrieve(id), OpenAI.NotFoundError);
  await session.addItems([{ role: 'user', content: 'y' }]);
  assert.notEqual(session.sessionId, id);
  assert.deepEqual((await session.getItems()).map(text), ['y']);
  await session.popItem();
  assert.equal(await session.popItem(), undefined);
});

test('a conversation is resumed by its id, and a session of other programs is one', async () => {
  const conversationId = await startOpenAIConversationsSession(client);
  await new OpenAIConversationsSession({ client, conversationId }).addItems([{ role: 'user', content: 'first' }]);
  const resumed = new OpenAIConversationsSession({ client, conversationId });
  assert.equal((await fetch(`${others}/append/${conversationId}?role=agent`, { method: 'POST', body: '"by another program"' })).status, 200);
  assert.deepEqual((await resumed.getItems()).map(text), ['first', 'by another program']);
});

test('an agent runs twice on one session and remembers', async () => {
  const session = newSession();
  const seen = [];
  const model = {
    async getResponse(request) {
      seen.push(request.input.map(text));
      const answer = { type: 'message', role: 'assistant', status: 'completed', content: [{ type: 'output_text', text: `answer ${seen.length}` }] };
      return { usage: { requests: 1, inputTokens: 1, outputTokens: 1, totalTokens: 2, add() {} }, output: [answer] };
    },
    async *getStreamedResponse() {
      throw new Error('not streamed');
    },
  };
  const runner = new Runner({ tracingDisabled: true });
  const agent = new Agent({ name: 'Assistant', model });
  await runner.run(agent, 'What is the capital of Peru?', { session });
  const second = await runner.run(agent, 'And of Chile?', { session });
  assert.equal(second.finalOutput, 'answer 2');
  assert.deepEqual(seen[1], ['What is the capital of Peru?', 'answer 1', 'And of Chile?']);
  assert.deepEqual((await session.getItems()).map(text), ['What is the capital of Peru?', 'answer 1', 'And of Chile?', 'answer 2']);
});

test('fifteen parallel tool calls and their results are one request; none is fine too', async () => {
  const session = newSession();
  await session.addItems([{ role: 'user', content: 'the weather everywhere?' }]);
  await session.addItems([]);
  const calls = Array.from({ length: 15 }, (_, i) => ({ type: 'function_call', callId: `call_${i}`, name: 'weather', arguments: '{}', status: 'completed' }));
  const results = calls.map(({ callId }) => ({ type: 'function_call_result', callId, name: 'weather', status: 'completed', output: { type: 'text', text: 'sunny' } }));
  await session.addItems([...calls, ...results]);
  assert.equal((await session.getItems()).length, 31);
});
