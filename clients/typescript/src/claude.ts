/**
 * The Claude Agent SDK's SessionStore.
 *
 *     import { foldSessionSummary, query } from '@anthropic-ai/claude-agent-sdk';
 *     const sessionStore = new HansardSessionStore(new Client(address, { token }), { foldSessionSummary });
 *
 * A transcript is a session, an entry an event. The entry's uuid is the event's id, so that an entry
 * that is mirrored, retried or imported again is stored once, however it is batched. The summary is
 * folded into the session's state in the same commit as the entries. `delete` needs a token with the
 * right `admin`.
 */
import type { Client, Session } from './client.js';
import { HansardError, isCode } from './errors.js';
import { fits, partOf } from './ids.js';
import type { Event, Info, Meta, NewEvent, Patch, Receipt } from './types.js';

export interface SessionKey {
  projectKey: string;
  sessionId: string;
  subpath?: string;
}
export interface Entry {
  type: string;
  uuid?: string;
  timestamp?: string;
  [k: string]: unknown;
}
export interface Summary {
  sessionId: string;
  mtime: number;
  data: Record<string, unknown>;
}
type Fold = (prev: Summary | undefined, key: SessionKey, entries: Entry[]) => Summary;

export interface HansardSessionStoreOptions {
  /** Begins the ids of all sessions; "claude" if it is not given. */
  prefix?: string;
  /** The SDK's function. Without it there are no summaries. */
  foldSessionSummary?: Fold;
}

const language = 'typescript'; // the members of a summary differ between the SDKs
const lookups = 16;
const remembered = 256;

/** What this process knows of a session after its own last append. */
interface Known {
  last: number;
  summary: Summary | undefined;
}

export class HansardSessionStore {
  /** Absent without foldSessionSummary: the SDK then reads the sessions. */
  listSessionSummaries?: (projectKey: string) => Promise<Summary[]>;
  private readonly prefix: string;
  private readonly fold: Fold | undefined;
  private readonly queues = new Map<string, Promise<void>>();
  private readonly known = new Map<string, Known>();
  private readonly open = new Map<string, { text: string; key: string }>();

  constructor(private readonly client: Client, options: HansardSessionStoreOptions = {}) {
    this.prefix = options.prefix ?? 'claude';
    this.fold = options.foldSessionSummary;
    if (this.fold) {
      this.listSessionSummaries = async (projectKey) => {
        const out: Summary[] = [];
        for (const { info, key } of await this.keys(projectKey)) {
          const summary = summaryOf(info);
          if (key.subpath === undefined && summary) out.push({ ...summary, mtime: mtime(info) });
        }
        return out;
      };
    }
  }

  async append(key: SessionKey, entries: Entry[]): Promise<void> {
    if (!entries.length) return;
    const id = await this.id(key);
    // In the order of the calls.
    const before = this.queues.get(id) ?? Promise.resolve();
    const mine = before.then(() => this.appendNow(id, key, once(entries)));
    const settled = mine.catch(() => this.known.delete(id)).then(() => {
      if (this.queues.get(id) === settled) this.queues.delete(id);
    });
    this.queues.set(id, settled);
    await mine;
  }

  private async appendNow(id: string, key: SessionKey, given: Entry[]): Promise<void> {
    const session = this.client.session(id);
    const meta: Meta = { labels: labelsOf(key), state: { claude: { key: keptKey(key) } } };
    // The SDK resends a batch whose outcome was unknown: then under the same key.
    const text = JSON.stringify(given);
    const open = this.open.get(id);
    const batchKey = open?.text === text ? open.key : 'claude-' + crypto.randomUUID();
    let entries = given;
    for (;;) {
      let known = this.known.get(id);
      let fresh = entries;
      let summary: Summary | undefined;
      let patch: Patch | undefined;
      if (this.fold && key.subpath === undefined) {
        if (!known) {
          ({ known, fresh } = await this.look(session, key, entries));
          if (!fresh.length) return void this.open.delete(id);
        }
        summary = this.fold(known.summary, key, fresh);
        patch = patchOf(summary);
      }
      let receipt: Receipt;
      try {
        receipt = await session.append(fresh.map(eventOf), { ...(patch && { patch }), ...(known && { expect: known.last }), key: batchKey, create: true, meta });
      } catch (error) {
        if (!(error instanceof HansardError)) throw error;
        switch (error.code) {
          case 'conflict':
            this.known.delete(id);
            continue;
          case 'id-reused':
            entries = entries.filter((e) => !error.problem?.ids?.includes(idOf(e) ?? ''));
            if (!entries.length) return;
            continue;
          case 'deleted':
            this.known.delete(id);
            await this.client.create({ id, ...meta, reuse: true }).catch((e) => {
              if (!isCode(e, 'exists')) throw e; // someone else made it first
            });
            continue;
          case 'key-reused': // the try whose outcome was unknown was stored, with a summary that would now be folded differently
            return void this.open.delete(id);
          case 'outcome-unknown':
            this.open.set(id, { text, key: batchKey });
        }
        throw error;
      }
      this.open.delete(id);
      if (known) await this.remember(session, key, known, fresh, summary, receipt, fresh.length === entries.length);
      return;
    }
  }

  /** Looks up the session, and which entries it does not have yet. */
  private async look(session: Session, key: SessionKey, entries: Entry[]): Promise<{ known: Known; fresh: Entry[] }> {
    let info: Info;
    try {
      info = await session.info();
    } catch (error) {
      if (isCode(error, 'not-found', 'deleted')) return { known: { last: 0, summary: undefined }, fresh: entries };
      throw error;
    }
    let summary = summaryOf(info);
    if (!summary && info.last_seq > 0) {
      // Written by another SDK, or by one without summaries.
      const there: Entry[] = [];
      for await (const e of session.read()) if (isEntry(e) && e.seq <= info.last_seq) there.push(e.data);
      if (there.length) summary = this.fold!(undefined, key, there);
    }
    const isNew = async (entry: Entry) => {
      const id = idOf(entry);
      if (id === undefined || info.last_seq === 0) return true;
      return session.event(id).then(() => false, (error) => {
        if (isCode(error, 'no-event')) return true;
        throw error;
      });
    };
    const fresh: Entry[] = [];
    for (let at = 0; at < entries.length; at += lookups) {
      const some = entries.slice(at, at + lookups);
      const found = await Promise.all(some.map(isNew));
      fresh.push(...some.filter((_, n) => found[n]));
    }
    return { known: { last: info.last_seq, summary }, fresh };
  }

  private async remember(session: Session, key: SessionKey, known: Known, fresh: Entry[], summary: Summary | undefined, r: Receipt, allNew: boolean): Promise<void> {
    const stored = r.seqs ? fresh.filter((_, n) => r.first > 0 && r.seqs![n]! >= r.first) : fresh;
    if (stored.length < fresh.length && r.last) {
      // An earlier process had stored some of them: they must not be folded twice.
      const right = stored.length || !known.summary ? this.fold!(known.summary, key, stored) : known.summary;
      await session.append([], { patch: patchOf(right), expect: r.last }).catch((error) => {
        if (!isCode(error, 'conflict')) throw error; // a later append has continued folding
      });
      allNew = false;
    }
    this.known.delete(session.id);
    if (!allNew) return;
    this.known.set(session.id, { last: r.last, summary });
    if (this.known.size > remembered) this.known.delete(this.known.keys().next().value!);
  }

  async load(key: SessionKey): Promise<Entry[] | null> {
    const entries: Entry[] = [];
    try {
      for await (const e of this.client.session(await this.id(key)).read()) if (isEntry(e)) entries.push(e.data);
    } catch (error) {
      if (!isCode(error, 'not-found', 'deleted')) throw error;
    }
    return entries.length ? entries : null;
  }

  async listSessions(projectKey: string): Promise<{ sessionId: string; mtime: number }[]> {
    const all = await this.keys(projectKey);
    return all.filter(({ key }) => key.subpath === undefined).map(({ info, key }) => ({ sessionId: key.sessionId, mtime: mtime(info) }));
  }

  async listSubkeys(key: { projectKey: string; sessionId: string }): Promise<string[]> {
    return (await this.keys(key.projectKey, key.sessionId)).map((found) => found.key.subpath!);
  }

  async delete(key: SessionKey): Promise<void> {
    const ids = key.subpath === undefined ? (await this.keys(key.projectKey, key.sessionId)).map((found) => found.info.id) : [];
    // The main transcript last: an interrupted delete is repeated from it.
    for (const id of [...ids, await this.id(key)]) {
      this.known.delete(id);
      await this.client.session(id).delete().catch((error) => {
        if (!isCode(error, 'not-found', 'deleted')) throw error;
      });
    }
  }

  private async id(key: SessionKey): Promise<string> {
    if (key.subpath === '') throw new TypeError('an empty subpath; leave it out for the main transcript');
    const parts = [key.projectKey, key.sessionId, ...(key.subpath === undefined ? [] : [key.subpath])];
    return [this.prefix, ...(await Promise.all(parts.map(partOf)))].join(':');
  }

  private async keys(...parts: string[]): Promise<{ info: Info; key: SessionKey }[]> {
    const prefix = [this.prefix, ...(await Promise.all(parts.map(partOf)))].join(':') + ':';
    const found: { info: Info; key: SessionKey }[] = [];
    for await (const info of this.client.list({ prefix })) if (info.state?.claude?.key) found.push({ info, key: keyOf(info.state.claude.key) });
    return found;
  }
}

/** The key as stored, with one spelling for all SDKs. */
function keptKey(key: SessionKey): Record<string, string> {
  return { project_key: key.projectKey, session_id: key.sessionId, ...(key.subpath === undefined ? {} : { subpath: key.subpath }) };
}

function keyOf(kept: any): SessionKey {
  const key: SessionKey = { projectKey: kept.project_key, sessionId: kept.session_id };
  return kept.subpath === undefined ? key : { ...key, subpath: kept.subpath };
}

/** The key for people, as far as it fits in labels. */
function labelsOf(key: SessionKey): Record<string, string> {
  const all = Object.entries(keptKey(key)).filter(([, value]) => fits(value));
  return Object.fromEntries(all.map(([name, value]) => ['claude.' + name, value]));
}

const idOf = (entry: Entry): string | undefined => (fits(entry.uuid) ? entry.uuid : undefined);

/** A batch without its duplicate entries. */
function once(entries: Entry[]): Entry[] {
  const seen = new Set<string>();
  return entries.filter((entry) => {
    const id = idOf(entry);
    return id === undefined || (!seen.has(id) && seen.add(id));
  });
}

function eventOf(entry: Entry): NewEvent {
  const spoken = entry.type === 'user' || entry.type === 'assistant';
  const event: NewEvent = { kind: spoken ? 'message' : 'claude.' + entry.type, role: spoken ? entry.type : '', data: entry };
  const id = idOf(entry);
  return id === undefined ? event : { ...event, id };
}

const isEntry = (e: Event): boolean => (e.kind === 'message' || e.kind.startsWith('claude.')) && typeof e.data === 'object' && e.data !== null;

/** It replaces the whole summary: a merge would keep removed members, and drop those that are null. */
function patchOf(summary: Summary): Patch {
  return { state_ops: [{ op: 'add', path: '/claude/fold', value: { language, summary } }] };
}

function summaryOf(info: Info): Summary | undefined {
  const fold = info.state?.claude?.fold;
  return fold?.language === language ? fold.summary : undefined;
}

const mtime = (info: Info): number => Math.floor(Date.parse(info.updated));
