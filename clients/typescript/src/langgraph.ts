/**
 * A checkpointer for LangGraph.
 *
 *     const checkpointer = new HansardSaver(new Client(address, { token }));
 *     const graph = builder.compile({ checkpointer });
 *
 * A thread is one session per namespace, a checkpoint an event. A `put` whose parent is not the head is
 * refused: of two runs that start from one checkpoint, or from none, the second gets an error instead of
 * overwriting the first. A `put` may fork if its parent was requested by its id when it was no longer
 * the head, or if it has no parent and this saver has not looked one up. `deleteThread` needs a token
 * with the right `admin`.
 */
import {
  BaseCheckpointSaver, getCheckpointId, maxChannelVersion, TASKS, WRITES_IDX_MAP,
  type ChannelVersions, type Checkpoint, type CheckpointListOptions, type CheckpointMetadata, type CheckpointTuple, type PendingWrite, type SerializerProtocol,
} from '@langchain/langgraph-checkpoint';
import type { Client, Session } from './client.js';
import { HansardError, isCode } from './errors.js';
import { fits, hash, partOf } from './ids.js';
import type { Event, Info, Meta, NewEvent } from './types.js';

type Config = { configurable?: Record<string, any> };
type Encoded = { type: string; value?: unknown; base64?: string };
interface Write {
  task: string;
  index: number;
  channel: string;
  value: Encoded;
}

export interface HansardSaverOptions {
  /** Begins the ids of all sessions; "langgraph" if it is not given. */
  prefix?: string;
  serde?: SerializerProtocol;
}

const kindCheckpoint = 'checkpoint';
const remembered = 1000;

export class HansardSaver extends BaseCheckpointSaver {
  private readonly prefix: string;
  /** Old checkpoints that were requested by their id: a put on one of them forks. */
  private readonly forks = new Set<string>();
  /** Threads that were read and had no checkpoint: what is put there has to be the first. */
  private readonly empty = new Set<string>();
  /** The last put of each session: writes of a checkpoint are sent after it. */
  private readonly puts = new Map<string, Promise<unknown>>();

  constructor(private readonly client: Client, options: HansardSaverOptions = {}) {
    super(options.serde);
    this.prefix = options.prefix ?? 'langgraph';
  }

  async getTuple(config: Config): Promise<CheckpointTuple | undefined> {
    if (config.configurable?.thread_id === undefined) return undefined;
    const { thread, ns } = placeOf(config);
    const session = await this.session(thread, ns);
    const asked = getCheckpointId(config);
    if (!asked) remember(this.empty, session.id);
    try {
      if (!asked) {
        for await (const e of session.read({ kinds: [kindCheckpoint], reverse: true, limit: 1 })) {
          this.empty.delete(session.id);
          return await this.tuple(session, thread, ns, e);
        }
        return undefined;
      }
      const [event, info] = await Promise.all([session.event(await eventId('c', asked)), session.info()]);
      if (headOf(info) !== asked) remember(this.forks, session.id + '/' + asked);
      return await this.tuple(session, thread, ns, event);
    } catch (error) {
      if (isCode(error, 'not-found', 'no-event', 'deleted')) return undefined;
      throw error;
    }
  }

  async *list(config: Config, options: CheckpointListOptions = {}): AsyncGenerator<CheckpointTuple> {
    const { thread_id: thread, checkpoint_ns: ns, checkpoint_id: only } = config.configurable ?? {};
    const before = options.before?.configurable?.checkpoint_id as string | undefined;
    let left = options.limit ?? Infinity;
    for (const place of await this.places(thread, ns)) {
      // Newest first, so the writes of a checkpoint come before it.
      const writes = new Map<string, Event[]>();
      const session = this.client.session(place.id);
      for await (const e of session.read({ reverse: true })) {
        if (left <= 0) return;
        if (e.kind !== kindCheckpoint) {
          if (e.kind.startsWith('writes.')) writes.set(e.kind, [e, ...(writes.get(e.kind) ?? [])]);
          continue;
        }
        const id = e.data.id as string;
        if ((only && id !== only) || (before && id >= before)) continue;
        const metadata = (await this.decode(e.data.metadata)) as Record<string, unknown>;
        if (!Object.entries(options.filter ?? {}).every(([k, v]) => JSON.stringify(metadata[k]) === JSON.stringify(v))) continue;
        left--;
        yield await this.tuple(session, place.thread, place.ns, e, writes.get(await writesKind(id)) ?? []);
      }
    }
  }

  async put(config: Config, checkpoint: Checkpoint, metadata: CheckpointMetadata, _newVersions: ChannelVersions): Promise<Config> {
    const { thread, ns } = placeOf(config);
    const session = await this.session(thread, ns);
    const data = { id: checkpoint.id, parent: config.configurable?.checkpoint_id ?? null, checkpoint: await this.encode(checkpoint), metadata: await this.encode(metadata) };
    const event: NewEvent = { kind: kindCheckpoint, id: await eventId('c', checkpoint.id), data };
    const mine = this.after(session.id, () => this.commit(session, metaOf(thread, ns), event, data.parent, checkpoint.id));
    this.puts.set(session.id, mine);
    try {
      await mine;
    } finally {
      if (this.puts.get(session.id) === mine) this.puts.delete(session.id);
    }
    return { configurable: { thread_id: thread, checkpoint_ns: ns, checkpoint_id: checkpoint.id } };
  }

  private async after<T>(id: string, work: () => Promise<T>): Promise<T> {
    await this.puts.get(id)?.catch(() => undefined);
    return work();
  }

  /** Moves the head, in the commit of the checkpoint. */
  private async commit(session: Session, meta: Meta, event: NewEvent, parent: string | null, id: string): Promise<void> {
    for (let head = parent; ; ) {
      const state_ops = [{ op: 'test' as const, path: '/langgraph/head', value: head }, { op: 'replace' as const, path: '/langgraph/head', value: id }];
      try {
        await session.append(event, { create: true, meta, patch: { state_ops } });
        this.empty.delete(session.id);
        return;
      } catch (error) {
        if (isCode(error, 'deleted')) {
          await this.client.create({ id: session.id, ...meta, reuse: true }).catch((e) => {
            if (!isCode(e, 'exists')) throw e; // someone else made it first
          });
          continue;
        }
        if (!isCode(error, 'conflict')) throw error;
        const now = headOf(await session.info());
        if (parent === null ? this.empty.has(session.id) : !this.forks.has(session.id + '/' + parent)) {
          const text = `the thread has moved on: checkpoint ${id} follows ${parent ?? 'none'}, and the head is ${now ?? 'none'}; another run was faster`;
          throw new HansardError('conflict', text, error.problem, { cause: error });
        }
        head = now;
      }
    }
  }

  async putWrites(config: Config, writes: PendingWrite[], taskId: string): Promise<void> {
    const { thread, ns } = placeOf(config);
    const id = config.configurable?.checkpoint_id;
    if (!id) throw new Error('putWrites needs a checkpoint_id in config.configurable');
    const session = await this.session(thread, ns);
    const kind = await writesKind(id);
    let events = await Promise.all(
      writes.map(async ([channel, value], n): Promise<NewEvent> => {
        const index = WRITES_IDX_MAP[channel] ?? n;
        const data: Write = { task: taskId, index, channel, value: await this.encode(value) };
        // The first write at an index counts; below zero, the last one does.
        return index < 0 ? { kind, data } : { kind, data, id: await eventId('w', id, taskId, String(index)) };
      }),
    );
    while (events.length) {
      try {
        await this.after(session.id, () => session.append(events, { create: true, meta: metaOf(thread, ns) }));
        return;
      } catch (error) {
        if (!isCode(error, 'id-reused')) throw error;
        const ids = error.problem?.ids ?? [];
        events = events.filter((e) => !ids.includes(e.id ?? ''));
      }
    }
  }

  async deleteThread(threadId: string): Promise<void> {
    for (const { id } of await this.places(threadId, undefined)) {
      await this.client.session(id).delete().catch((error) => {
        if (!isCode(error, 'not-found', 'deleted')) throw error;
      });
    }
  }

  private async tuple(session: Session, thread: string, ns: string, e: Event, found?: Event[]): Promise<CheckpointTuple> {
    const { id, parent } = e.data as { id: string; parent: string | null };
    const checkpoint = (await this.decode(e.data.checkpoint)) as Checkpoint;
    if (checkpoint.v < 4 && parent) {
      // In older checkpoints, sends were stored as writes of the parent.
      const sends = (await this.writes(session, parent)).filter((w) => w.channel === TASKS);
      checkpoint.channel_values ??= {};
      checkpoint.channel_values[TASKS] = await Promise.all(sends.map((w) => this.decode(w.value)));
      const versions = Object.values((checkpoint.channel_versions ??= {}));
      checkpoint.channel_versions[TASKS] = versions.length ? maxChannelVersion(...versions) : this.getNextVersion(undefined);
    }
    const writes = found ? merged(found) : await this.writes(session, id, e.seq);
    const at = (checkpoint_id: string) => ({ configurable: { thread_id: thread, checkpoint_ns: ns, checkpoint_id } });
    return {
      config: at(id), checkpoint, metadata: (await this.decode(e.data.metadata)) as CheckpointMetadata,
      pendingWrites: await Promise.all(writes.map(async (w): Promise<[string, string, unknown]> => [w.task, w.channel, await this.decode(w.value)])),
      ...(parent ? { parentConfig: at(parent) } : {}),
    };
  }

  private async writes(session: Session, checkpointId: string, after = 0): Promise<Write[]> {
    const events: Event[] = [];
    for await (const e of session.read({ after, kinds: [await writesKind(checkpointId)] })) events.push(e);
    return merged(events);
  }

  private async session(thread: string, ns: string): Promise<Session> {
    return this.client.session(`${this.prefix}:${await partOf(thread)}:${ns === '' ? '' : await partOf(ns)}`);
  }

  /** The sessions of a thread, or of all threads. */
  private async places(thread: string | undefined, ns: string | undefined): Promise<{ id: string; thread: string; ns: string }[]> {
    const prefix = this.prefix + ':' + (thread === undefined ? '' : (await partOf(thread)) + ':');
    const out: { id: string; thread: string; ns: string }[] = [];
    for await (const { id, state } of this.client.list({ prefix })) {
      const own = state?.langgraph;
      if (own && (ns === undefined || own.checkpoint_ns === ns)) out.push({ id, thread: own.thread_id, ns: own.checkpoint_ns });
    }
    return out;
  }

  private async encode(value: unknown): Promise<Encoded> {
    const [type, data] = await this.serde.dumpsTyped(value);
    if (type === 'json') return { type, value: JSON.parse(new TextDecoder().decode(data)) };
    return { type, base64: btoa(Array.from(data, (b) => String.fromCharCode(b)).join('')) };
  }

  private async decode(e: Encoded): Promise<unknown> {
    return this.serde.loadsTyped(e.type, e.base64 === undefined ? JSON.stringify(e.value) : Uint8Array.from(atob(e.base64), (c) => c.charCodeAt(0)));
  }
}

function placeOf(config: Config): { thread: string; ns: string } {
  const { thread_id: thread, checkpoint_ns: ns = '' } = config.configurable ?? {};
  if (typeof thread !== 'string' || !thread) throw new Error('config.configurable has no thread_id: a checkpointer needs it to know the thread');
  if (typeof ns !== 'string') throw new Error('config.configurable.checkpoint_ns is not a string');
  return { thread, ns };
}

function metaOf(thread: string, ns: string): Meta {
  return { labels: fits(thread) ? { 'langgraph.thread_id': thread } : {}, state: { langgraph: { thread_id: thread, checkpoint_ns: ns, head: null } } };
}

function remember(set: Set<string>, name: string): void {
  set.add(name);
  if (set.size > remembered) set.delete(set.values().next().value!);
}

const headOf = (info: Info): string | null => info.state?.langgraph?.head ?? null;

async function eventId(...parts: string[]): Promise<string> {
  const id = parts.join(':');
  return fits(id) ? id : parts[0] + ':~' + (await hash(JSON.stringify(parts)));
}

async function writesKind(checkpoint: string): Promise<string> {
  return 'writes.' + (/^[\w.-]{1,200}$/.test(checkpoint) ? checkpoint : '~' + (await hash(checkpoint)));
}

/** The writes that count: one for each task and index, in the order of the first. */
function merged(events: Event[]): Write[] {
  const all = new Map<string, Write>();
  for (const { data } of events as Event<Write>[]) all.set(data.task + ',' + data.index, data);
  return [...all.values()];
}
