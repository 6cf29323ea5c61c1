/**
 * A Session for the OpenAI Agents SDK.
 *
 *     const session = new HansardSession(new Client(address, { token }), { sessionId: 'demo' });
 *     await run(agent, 'What is the capital of Peru?', { session });
 *
 * An item is an event, in the shape in which the server's Conversations routes keep items. Items
 * that are popped, replaced or cleared are hidden by later events; the log keeps them. Two
 * programs that pop at once never pop the same item.
 */
import type { Client, Session } from './client.js';
import { isCode } from './errors.js';
import { bytes, hash } from './ids.js';
import type { Event, Info, NewEvent } from './types.js';

type Item = any;
type Transaction = { type: 'append_items'; items: Item[] } | { type: 'replace_suffix'; expectedSuffix: Item[]; replacement: Item[] };

const deleted = 'item_deleted';
const replaced = 'item_replaced';
const cleared = 'items_cleared';
const operation = 'items_operation';
const other = 'item';
const reserved = [deleted, replaced, cleared, operation, other, 'turn', 'meta', 'summary', 'redaction', 'fork'];

export class HansardSession {
  private readonly id: string;
  private readonly session: Session;

  constructor(client: Client, options: { sessionId?: string } = {}) {
    this.id = options.sessionId ?? crypto.randomUUID();
    this.session = client.session(this.id);
  }

  async getSessionId(): Promise<string> {
    return this.id;
  }

  async getItems(limit?: number): Promise<Item[]> {
    return (await this.newest(limit)).items.map(({ item }) => item).reverse();
  }

  async addItems(items: Item[]): Promise<void> {
    if (items.length) await this.session.append(items.map(eventOf), { create: true });
  }

  async popItem(): Promise<Item | undefined> {
    for (;;) {
      const { items, last } = await this.newest(1);
      if (!items[0]) return undefined;
      try {
        await this.session.append({ kind: deleted, data: { seq: items[0].seq } }, { expect: last });
        return items[0].item;
      } catch (error) {
        if (!isCode(error, 'conflict')) throw error; // something was appended in between
      }
    }
  }

  async clearSession(): Promise<void> {
    await this.session.append({ kind: cleared, data: {} }, { patch: newGeneration() }).catch((error) => {
      if (!isCode(error, 'not-found')) throw error; // it has no items
    });
  }

  /** Clears and fills the history in one commit. */
  async replaceHistoryWithCompaction(items: Item[]): Promise<void> {
    await this.session.append([{ kind: cleared, data: {} }, ...items.map(eventOf)], { create: true, patch: newGeneration() });
  }

  async applyHistoryMutations(args: { mutations: { type: string; callId: string; replacement: Item }[] }): Promise<void> {
    for (;;) {
      const { items, last } = await this.newest();
      const events: NewEvent[] = [];
      for (const m of args.mutations.filter(({ type }) => type === 'replace_function_call')) {
        const [first, ...rest] = items.filter(({ item }) => item.type === 'function_call' && item.callId === m.callId).reverse();
        if (first) events.push({ kind: replaced, data: { seq: first.seq, item: encode(m.replacement) } });
        for (const { seq } of rest) events.push({ kind: deleted, data: { seq } });
      }
      if (!events.length) return;
      try {
        await this.session.append(events, { expect: last });
        return;
      } catch (error) {
        if (!isCode(error, 'conflict')) throw error;
      }
    }
  }

  /**
   * A change that is made once, however often it is requested. Each of its events has an id derived
   * from the operation's, so that two programs that apply it at once don't apply it twice.
   */
  async applyHistoryTransaction(args: { operationId: string; transaction: Transaction }): Promise<void> {
    const { operationId, transaction } = checked(args);
    const digest = await hash(canonical(transaction));
    for (;;) {
      const info = await this.session.info().catch((error): Info | undefined => {
        if (!isCode(error, 'not-found')) throw error;
        return undefined;
      });
      const name = `op:${info?.state?.openai_agents?.generation ?? 0}:${(await hash(operationId)).slice(0, 32)}`;
      if (info && (await this.applied(name, digest))) return;
      const events: NewEvent[] = [{ kind: operation, data: { digest } }];
      if (transaction.type === 'replace_suffix') {
        const want = transaction.expectedSuffix;
        const { items } = await this.newest(want.length);
        const suffix = items.map(({ item }) => item).reverse();
        if (canonical(suffix) !== canonical(want)) {
          // Another program may have applied it since the check.
          if (info && (await this.applied(name, digest))) return;
          throw new Error('Session history suffix no longer matches the transaction precondition.');
        }
        for (const { seq } of items) events.push({ kind: deleted, data: { seq } });
      }
      events.push(...(transaction.type === 'append_items' ? transaction.items : transaction.replacement).map(eventOf));
      const named = events.map((e, n) => ({ ...e, id: n ? `${name}:${n}` : name }));
      try {
        await this.session.append(named, { create: true, expect: info?.last_seq ?? 0 });
        return;
      } catch (error) {
        if (!isCode(error, 'conflict', 'id-reused')) throw error; // check again
      }
    }
  }

  private async applied(name: string, digest: string): Promise<boolean> {
    try {
      const before = await this.session.event(name);
      if (before.data?.digest === digest) return true;
    } catch (error) {
      if (isCode(error, 'no-event')) return false;
      throw error;
    }
    throw new Error('Session history operation was already applied with a different transaction.');
  }

  /** Items that are not hidden, newest first, and the session's last seq. */
  private async newest(limit = Infinity): Promise<{ items: { item: Item; seq: number }[]; last: number }> {
    const items: { item: Item; seq: number }[] = [];
    const hidden = new Set<number>();
    const instead = new Map<number, Item>();
    let last = 0;
    if (limit <= 0) return { items, last };
    try {
      for await (const e of this.session.read({ reverse: true, from_kind: cleared })) {
        last ||= e.seq;
        if (e.kind === deleted) hidden.add(e.data?.seq);
        else if (e.kind === replaced) {
          if (!instead.has(e.data?.seq)) instead.set(e.data?.seq, decode(e.data?.item));
        } else if (!hidden.has(e.seq)) {
          const item = itemOf(e);
          if (item === undefined) continue;
          items.push({ item: instead.get(e.seq) ?? item, seq: e.seq });
          if (items.length >= limit) break;
        }
      }
    } catch (error) {
      if (!isCode(error, 'not-found')) throw error;
    }
    return { items, last };
  }
}

/** The ids of operations are unique since the last clearing. */
const newGeneration = () => ({ state: { openai_agents: { generation: crypto.randomUUID() } } });

function kindOf(item: Item): string {
  const type = item.type ?? 'message';
  if (typeof type !== 'string' || reserved.includes(type) || !type || bytes(type) > 256) return other;
  return type.endsWith('_call') ? 'tool_call' : type.endsWith('_output') ? 'tool_result' : type;
}

function eventOf(item: Item): NewEvent {
  return { kind: kindOf(item), role: typeof item.role === 'string' ? item.role : '', data: encode(item) };
}

const roles: Record<string, string> = { assistant: 'assistant', agent: 'assistant', model: 'assistant', ai: 'assistant', system: 'system' };

/** The item that an event is, if any: events of others are items if they have the shape, or are plain text. */
function itemOf(e: Event): Item | undefined {
  const isObject = typeof e.data === 'object' && e.data !== null && !Array.isArray(e.data);
  const text = isObject && !('type' in e.data) && !('content' in e.data) ? e.data.text : e.data;
  if (e.kind === 'message' && typeof text === 'string') return textItem(roles[e.role] ?? 'user', text);
  return isObject && kindOf(e.data) === e.kind ? decode(e.data) : undefined;
}

function textItem(role: string, text: string): Item {
  if (role === 'assistant') return { type: 'message', role, status: 'completed', content: [{ type: 'output_text', text }] };
  return { type: 'message', role, content: text };
}

/** Bytes are not JSON. */
const mark = 'hansard:bytes';

function encode(value: any): any {
  if (value instanceof Uint8Array) return { [mark]: btoa(Array.from(value, (b) => String.fromCharCode(b)).join('')) };
  if (Array.isArray(value)) return value.map(encode);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, encode(v)]));
}

function decode(value: any): any {
  if (Array.isArray(value)) return value.map(decode);
  if (typeof value !== 'object' || value === null) return value;
  const names = Object.keys(value);
  if (names.length === 1 && typeof value[mark] === 'string') return Uint8Array.from(atob(value[mark]), (c) => c.charCodeAt(0));
  return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, decode(v)]));
}

/** JSON that is the same for equal values, whatever the order of their members. */
function canonical(value: any): string {
  const sorted = (v: any): any => {
    if (Array.isArray(v)) return v.map(sorted);
    if (typeof v !== 'object' || v === null) return v;
    return Object.fromEntries(Object.keys(v).sort().filter((k) => v[k] !== undefined).map((k) => [k, sorted(v[k])]));
  };
  return JSON.stringify(sorted(encode(value)));
}

/** A given transaction, read once. One that can't be stored and compared is refused; the error does not contain its content. */
function checked(args: any): { operationId: string; transaction: Transaction } {
  let operationId: unknown;
  let given: unknown;
  try {
    ({ operationId, transaction: given } = args);
  } catch {
    throw new Error('Session history transaction arguments are invalid.');
  }
  if (typeof operationId !== 'string' || !operationId.trim()) throw new Error('Session history transaction operationId must be a non-empty string.');
  if (typeof given !== 'object' || given === null) throw new Error('Session history transaction must be an object.');
  const unsupported = new Error('Session history transaction items contain invalid or unsupported data.');
  let t: any;
  try {
    structuredClone(given); // refuses proxies
    t = plain(given, []);
  } catch {
    throw unsupported;
  }
  const members = Object.keys(t).sort().join();
  const items: unknown[][] = t.type === 'append_items' ? [t.items] : t.type === 'replace_suffix' ? [t.expectedSuffix, t.replacement] : [];
  if (!items.length) throw new Error('Unsupported session history transaction type.');
  const right = t.type === 'append_items' ? 'items,type' : 'expectedSuffix,replacement,type';
  if (members !== right || !items.every(Array.isArray)) throw new Error(`Session history ${t.type === 'append_items' ? 'append' : 'suffix'} transaction fields are invalid.`);
  if (!items.flat().every((i) => typeof i === 'object' && i !== null && !Array.isArray(i))) throw unsupported;
  return { operationId, transaction: t };
}

/** A copy of a value made of JSON and bytes; anything else is an error. */
function plain(value: any, above: any[]): any {
  if (value === null || ['undefined', 'string', 'boolean', 'number'].includes(typeof value)) return value;
  if (value instanceof Uint8Array) return Uint8Array.from(value);
  if (typeof value !== 'object' || above.includes(value)) throw new TypeError('not JSON');
  const isArray = Array.isArray(value);
  const proto = Object.getPrototypeOf(value);
  const names = Reflect.ownKeys(value).filter((k) => !(isArray && k === 'length'));
  if (!isArray && proto !== Object.prototype && proto !== null) throw new TypeError('not a plain object');
  if (isArray && names.length !== value.length) throw new TypeError('a sparse array');
  const out: any = isArray ? [] : {};
  for (const name of names) {
    const d = Object.getOwnPropertyDescriptor(value, name)!;
    if (typeof name !== 'string' || !d.enumerable || !('value' in d)) throw new TypeError('a member that JSON does not have');
    Object.defineProperty(out, name, { value: plain(d.value, [...above, value]), enumerable: true, writable: true, configurable: true });
  }
  return out;
}
