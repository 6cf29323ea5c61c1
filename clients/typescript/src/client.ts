import { fromProblem, HansardError, isCode, openOutcome } from './errors.js';
import { BrokenOff, Http, link, linesOf, piecesOf, reason, sessionPath, sleep, type Request } from './http.js';
import { NoSocket, socketFrames, type Frame, type SocketClass } from './socket.js';
import { Turn } from './turn.js';
import { Sha256 } from './sha256.js';
import type { AppendOptions, Attachment, Claim, Event, ForkOptions, Grant, Hit, Info, Meta, NewEvent, Pruned, Query, Range, Receipt, Search } from './types.js';

export interface ClientOptions {
  token?: string;
  /** For how many milliseconds to keep trying when a server that was reached before does not answer. */
  patience?: number;
  fetch?: typeof globalThis.fetch;
  /**
   * How sessions are followed: "websocket" uses a WebSocket for each, and server-sent events if none can be opened. Without TLS,
   * browsers have six connections to a server; pages that follow more sessions than that need it.
   */
  transport?: 'sse' | 'websocket';
  /** Used instead of the global WebSocket, or of the one in the package `ws`, which Node 20 needs. */
  WebSocket?: SocketClass;
}

/** A store on a server: http://HOST:PORT or https://HOST, perhaps with #token=. */
export class Client {
  readonly http: Http;

  constructor(address: string, options: ClientOptions = {}) {
    this.http = new Http(address, options.token ?? '', options.patience ?? 15_000, options.fetch ?? ((...args) => globalThis.fetch(...args)));
    this.http.webSocket = options.transport === 'websocket';
    this.http.socketClass = options.WebSocket;
  }

  /** Ends reads, followers and waits. Writes under way are finished. */
  close(): void {
    this.http.closing.abort();
  }

  /** The session with this id, whether it exists or not; it sends no request. */
  session(id: string): Session {
    return new Session(this.http, id);
  }

  /** Creates a session; without an id it gets a new one. `reuse` allows the id of a deleted session. */
  async create(meta: Meta & { id?: string; reuse?: boolean; signal?: AbortSignal } = {}): Promise<Session> {
    const { signal, ...given } = meta;
    return make(this.http, '/v1/sessions', 'id', given, meta.id, signal);
  }

  /** Sessions, newest first. */
  async *list(q: Query = {}): AsyncGenerator<Info, void, undefined> {
    const { signal: _, text, ids, labels, ...plain } = q;
    const query = pairs({ ...plain, q: text, id: ids, label: labelPairs(labels) });
    yield* whole<Info>(this.http, '/v1/sessions', query, q.signal);
  }

  /** Events with all these words, the best first, in all sessions or in one. */
  async *search(text: string, q: Search = {}): AsyncGenerator<Hit, void, undefined> {
    const { role, kind, since, before, session, prefix, limit, offset } = q;
    const query = pairs({ q: text, role, kind, since, before, in: session, prefix, limit, offset, label: labelPairs(q.labels) });
    yield* whole<Hit>(this.http, '/v1/search', query, q.signal);
  }

  /** Removes what is left of deleted sessions now; with `scrub` also what is left of them elsewhere in the store's files. */
  async prune(options: { scrub?: boolean; signal?: AbortSignal } = {}): Promise<Pruned> {
    return (await this.http.answer<Pruned>({ method: 'POST', path: '/v1/prune', json: { scrub: options.scrub ?? false } }, options.signal)).value;
  }
}

const labelPairs = (labels: Record<string, string> = {}) => Object.entries(labels).map(([name, value]) => `${name}=${value}`);

/** Parameters of a route; empty ones are left out. */
function pairs(given: Record<string, unknown>): [string, string][] {
  return Object.entries(given).flatMap(([name, value]) =>
    [value].flat().filter((v) => v !== undefined && v !== '' && v !== false && v !== 0).map((v): [string, string] => [name, v instanceof Date ? v.toISOString() : String(v)]),
  );
}

/** Makes a session. One that exists may have been made by a try whose answer was lost; with a generated name it was. */
async function make(http: Http, path: string, member: string, given: object, id: string | undefined, signal?: AbortSignal): Promise<Session> {
  // Without an id, a retry would make a second session.
  const name = id || crypto.randomUUID();
  try {
    await http.answer<Info>({ method: 'POST', path, json: { ...given, [member]: name } }, signal);
  } catch (error) {
    if (id || !isCode(error, 'exists') || !error.uncertain) throw openOutcome(error, 'exists');
  }
  return new Session(http, name);
}

/** A list. The rest of one that was cut off may have changed: it is not requested again. */
async function* whole<T>(http: Http, path: string, query: [string, string][], signal?: AbortSignal): AsyncGenerator<T, void, undefined> {
  let given = false;
  const next = () => (given ? undefined : { method: 'GET', path, query });
  for await (const object of http.lines(next, signal)) {
    given = true;
    yield object as T;
  }
}

function sent(e: NewEvent): NewEvent {
  return e.at instanceof Date ? { ...e, at: e.at.toISOString() } : e;
}

export function grantOf(turn: string | { grant: string } | undefined): string {
  return typeof turn === 'string' ? turn : (turn?.grant ?? '');
}

/** A message of plain text. */
export function message(role: string, text: string, more: NewEvent = {}): NewEvent {
  return { role, data: text, ...more };
}

export class Session {
  constructor(private readonly http: Http, readonly id: string) {}

  /**
   * Stores events and a patch, all or none; when it resolves they are durable. It is sent again
   * while its outcome is unknown, under its key or a generated one, and stored once.
   */
  async append(events: NewEvent | NewEvent[], options: AppendOptions = {}): Promise<Receipt> {
    const { patch, expect, turn, key, create = false, meta, signal } = options;
    const list = (Array.isArray(events) ? events : [events]).map(sent);
    const json: Record<string, unknown> = { key: key || 'auto-' + crypto.randomUUID(), create };
    if (list.length) json.events = list;
    if (patch) json.patch = patch;
    if (expect !== undefined) json.expect = expect;
    if (grantOf(turn)) json.turn = grantOf(turn);
    if (meta) json.meta = meta;
    try {
      const { value } = await this.http.answer<Receipt>({ method: 'POST', path: this.path('/events'), json }, signal);
      // By the generated key: to the caller it is one append.
      return !key && value.first > 0 ? { ...value, replayed: false } : value;
    } catch (error) {
      // State operations can't be applied to the current state. An earlier try that is still under way may meet a different one.
      const more = patch?.state_ops?.length ? (['conflict', 'invalid'] as const) : [];
      throw openOutcome(error, 'held', 'busy', 'no-space', 'not-found', 'store-failed', ...more);
    }
  }

  /** Events, oldest first, or newest first with `reverse`. When the connection breaks it continues after the last one. */
  async *read(range: Range = {}): AsyncGenerator<Event, void, undefined> {
    const { kinds = [], signal, ...given } = range;
    let rest: Omit<Range, 'kinds' | 'signal'> | undefined = given;
    const next = (): Request | undefined => {
      if (!rest) return undefined;
      const query = Object.entries(rest).filter(([, v]) => v).map(([k, v]) => [k, String(v)] as [string, string]);
      return { method: 'GET', path: this.path('/events'), query: [...query, ...kinds.map((k) => ['kind', k] as [string, string])] };
    };
    try {
      for await (const object of this.http.lines(next, signal)) {
        const event = eventOf(object);
        rest = rest && restOf(rest, event);
        yield event;
      }
    } catch (error) {
      if (!(isCode(error, 'unreachable') && !rest)) throw error;
      // All of it had arrived.
    }
  }

  /** The event with this id; `no-event` if there is none. */
  async event(id: string, signal?: AbortSignal): Promise<Event> {
    return eventOf(await this.http.get(this.path('/events/' + encodeURIComponent(id)), [], signal));
  }

  /**
   * Events past `after`, and new ones as they arrive, each once and in order, across reconnects. It ends with `deleted` when
   * the session is deleted, even if another session has its id by then.
   */
  async *follow(options: { after?: number; signal?: AbortSignal } = {}): AsyncGenerator<Event, void, undefined> {
    const { signal, unlink } = link(this.http.closing.signal, options.signal);
    try {
      yield* this.followUntil(options.after ?? 0, signal);
    } catch (error) {
      if (!options.signal?.aborted) throw error;
    } finally {
      unlink();
    }
  }

  private async *followUntil(after: number, signal: AbortSignal): AsyncGenerator<Event, void, undefined> {
    let pause = 20;
    let created = '';
    let refused = 0; // consecutive WebSockets refused by a server that answers requests
    for (;;) {
      const socket = this.http.webSocket && refused < 3;
      const quiet = new Silence(signal);
      try {
        const frames = socket ? socketFrames(this.http, this.id, after, created, quiet.signal, () => quiet.heard()) : this.streamFrames(after, created, quiet);
        for await (const frame of frames) {
          if (frame.name === 'dropped') break; // too slow: continue after the last event
          if (frame.name === 'created') {
            if (socket) refused = 0;
            created ||= frame.value; // a reconnect must get this session, and not another one that has its id by then
            continue;
          }
          if (frame.name === 'problem') {
            const error = fromProblem(frame.value);
            if (error.code === 'closing') break;
            throw error;
          }
          const event = eventOf(frame.value);
          if (event.seq <= after) continue;
          after = event.seq;
          pause = 20;
          quiet.stop(); // the caller's time does not count as the server's silence
          yield event;
          quiet.heard();
        }
      } catch (error) {
        if (signal.aborted) throw this.http.ended(signal, false);
        if (error instanceof NoSocket) {
          refused++;
          await this.info(signal); // a WebSocket does not say what is wrong; a request does, and waits for an unreachable server
        } else if (!(error instanceof BrokenOff) && !isCode(error, 'aborted')) throw error;
      } finally {
        quiet.end();
      }
      if (!socket) refused = Math.min(refused, 2); // try WebSockets again
      await sleep(pause * (0.5 + Math.random()), signal);
      this.http.check(signal);
      pause = Math.min(2 * pause, 1000);
    }
  }

  private async *streamFrames(after: number, created: string, quiet: Silence): AsyncGenerator<Frame, void, undefined> {
    const query = pairs({ after: String(after), created });
    const { res } = await this.http.do({ method: 'GET', path: this.path('/events/stream'), query, accept: 'text/event-stream' }, quiet.signal);
    yield { name: 'created', value: res.headers.get('hansard-created') ?? '' };
    for await (const { name, data } of framesOf(res, quiet)) yield { name: name as Frame['name'], value: JSON.parse(data) };
  }

  /** Resolves when the session has an event past `after`. */
  async wait(after: number, signal?: AbortSignal): Promise<void> {
    for (let pause = 20; ; pause = Math.min(2 * pause, 1000)) {
      const asked = performance.now();
      const page = await this.http.get<{ last_seq: number }>(this.path('/events'), [['after', String(after)], ['limit', '1'], ['wait_ms', '25000']], signal);
      if (page.last_seq > after) return;
      if (performance.now() - asked > 1000) pause = 10;
      else await sleep(pause, signal); // it did not wait: it is about to shut down
    }
  }

  info(signal?: AbortSignal): Promise<Info> {
    return this.http.get<Info>(this.path(), [], signal);
  }

  async delete(options: { turn?: string | { grant: string }; signal?: AbortSignal } = {}): Promise<void> {
    const grant = grantOf(options.turn);
    try {
      await this.http.answer({ method: 'DELETE', path: this.path(), query: grant ? [['turn', grant]] : [] }, options.signal);
    } catch (error) {
      // Deleted by the try whose answer was lost, or by someone else: either way it is.
      if (!(isCode(error, 'deleted') && error.uncertain)) throw openOutcome(error);
    }
  }

  /** Makes a new session with this one's history. It inherits title, labels and state; those given replace them. */
  fork(options: ForkOptions = {}): Promise<Session> {
    const { id, signal, ...given } = options;
    return make(this.http, this.path('/fork'), 'as', given, id, signal);
  }

  /**
   * Removes the content of events, their data and attachments, for good, and records it. Events that are
   * already redacted stay so: it may be repeated.
   */
  async redact(seqs: number | number[], options: { reason?: string; turn?: string | { grant: string }; signal?: AbortSignal } = {}): Promise<Receipt> {
    const json = { seqs: [seqs].flat(), reason: options.reason ?? '', turn: grantOf(options.turn) };
    try {
      return (await this.http.answer<Receipt>({ method: 'POST', path: this.path('/redact'), json }, options.signal)).value;
    } catch (error) {
      throw openOutcome(error, 'held', 'busy', 'no-space', 'store-failed');
    }
  }

  /** The session as a file, in pieces: `jsonl`, which has everything, `md`, `html`, … If the connection breaks it fails: a part must not be taken for the whole. */
  async *export(format = 'jsonl', options: { signal?: AbortSignal } = {}): AsyncGenerator<Uint8Array, void, undefined> {
    const { signal, unlink } = link(this.http.closing.signal, options.signal);
    try {
      const { res } = await this.http.do({ method: 'GET', path: this.path('/export'), query: [['format', format]], accept: '*/*' }, signal);
      yield* piecesOf(res);
    } catch (error) {
      if (signal.aborted) throw this.http.ended(signal, false);
      if (!(error instanceof BrokenOff)) throw error;
      throw new HansardError('unreachable', `the export broke off: ${reason(error)}`, undefined, { cause: error });
    } finally {
      unlink();
    }
  }

  /** Who holds the turn; null if it is free. */
  async holder(signal?: AbortSignal): Promise<Grant | null> {
    return (await this.http.get<{ turn: Grant | null }>(this.path('/turn'), [], signal)).turn;
  }

  /** Takes the turn, and keeps renewing it until it is released or lost: then its `signal` aborts. */
  async turn(claim: Claim = {}): Promise<Turn> {
    const { wait = 0, ttl = 0, max_hold = 0, exclusive = false, label = '', steal = '', signal } = claim;
    const name = crypto.randomUUID();
    const asked = performance.now();
    // A claim that is sent again has waited before.
    const left = () => (wait === Infinity ? -1 : Math.max(0, Math.ceil(wait - (performance.now() - asked))));
    const json = () => ({ wait_ms: left(), ttl_ms: ttl, max_hold_ms: max_hold, exclusive, label, steal, claim: name });
    try {
      const { value } = await this.http.answer<Grant>({ method: 'POST', path: this.path('/turn'), json }, this.http.closing.signal, signal);
      return new Turn(this.http, this, value, wait ? performance.now() : asked);
    } catch (error) {
      if (isCode(error, 'aborted', 'closed')) {
        // A grant that is under way must not be left behind. If the server does not answer, it is left to its TTL.
        const withdraw: Request = { method: 'DELETE', path: this.path('/turn'), json: { claim: name } };
        await this.http.do(withdraw, AbortSignal.timeout(2000)).then(({ res }) => res.text()).catch(() => undefined);
        throw error;
      }
      throw openOutcome(error);
    }
  }

  /** Runs work under the turn, and releases it afterwards. Pass `turn.signal` to the work. */
  async withTurn<T>(claim: Claim, work: (turn: Turn) => Promise<T>): Promise<T> {
    const turn = await this.turn(claim);
    let value: T;
    try {
      value = await work(turn);
    } catch (error) {
      await turn.release().catch(() => undefined); // the error of the work says more
      throw error;
    }
    await turn.release(); // a lost turn must not go unnoticed
    return value;
  }

  /** Stores bytes beside the log, to be named by events. A stream is sent once; bytes and blobs are sent again if necessary. */
  async attach(body: Uint8Array | Blob | ReadableStream<Uint8Array>, signal?: AbortSignal): Promise<Attachment> {
    const headers: Record<string, string> = { 'Content-Type': 'application/octet-stream' };
    if (body instanceof Uint8Array) headers['Repr-Digest'] = `sha-256=:${btoa(String.fromCharCode(...new Uint8Array(await crypto.subtle.digest('SHA-256', body as BufferSource))))}:`;
    const q: Request = { method: 'POST', path: this.path('/attachments'), body: body as BodyInit, headers, once: body instanceof ReadableStream };
    return (await this.http.answer<Attachment>(q, signal)).value;
  }

  /**
   * The bytes of an attachment, in pieces. If the connection breaks, a new one continues where it stopped.
   * At the end they are compared with the digest; others are the error `damaged`.
   */
  async *attachment(digest: string, options: { signal?: AbortSignal } = {}): AsyncGenerator<Uint8Array, void, undefined> {
    const { signal, unlink } = link(this.http.closing.signal, options.signal);
    try {
      yield* this.attachmentUntil(digest, signal);
    } finally {
      unlink();
    }
  }

  private async *attachmentUntil(digest: string, signal: AbortSignal): AsyncGenerator<Uint8Array, void, undefined> {
    let at = 0;
    let size = -1;
    const sum = new Sha256();
    for (let tries = 0; size < 0 || at < size; ) {
      const q: Request = { method: 'GET', path: this.path('/attachments/' + encodeURIComponent(digest)), accept: '*/*' };
      if (at) q.headers = { Range: `bytes=${at}-` };
      const { res } = await this.http.do(q, signal);
      if (at && res.status !== 206) throw new HansardError('error', `${this.http.name} does not give parts`);
      if (size < 0) size = Number(res.headers.get('content-length') ?? 0);
      try {
        for await (const piece of piecesOf(res)) {
          at += piece.length;
          tries = 0;
          sum.add(piece); // before the caller has it, who may change it
          yield piece;
        }
      } catch (error) {
        if (signal.aborted) throw this.http.ended(signal, false);
        if (!(error instanceof BrokenOff) || ++tries > 5) throw new HansardError('unreachable', `the attachment broke off: ${reason(error)}`, undefined, { cause: error });
      }
    }
    if ('sha256:' + sum.hex() !== digest) throw new HansardError('damaged', 'the attachment is not what its digest says');
  }

  /** The session's attachments, by digest. */
  attachments(signal?: AbortSignal): AsyncGenerator<Attachment, void, undefined> {
    return whole<Attachment>(this.http, this.path('/attachments'), [], signal);
  }

  private path(more = ''): string {
    return sessionPath(this.id, more);
  }
}

function eventOf(object: any): Event {
  if (typeof object.raw === 'string') {
    object.data = JSON.parse(object.raw);
    delete object.raw;
  }
  return object as Event;
}

/** What is left of a range after an event, for the connection that continues it. */
export function restOf(r: Range, e: Event): Range | undefined {
  const rest = { ...r };
  if (rest.reverse) {
    rest.before = e.seq;
    if (e.seq <= 1 || (rest.from_kind && e.kind === rest.from_kind)) return undefined;
  } else {
    rest.after = e.seq;
    delete rest.last;
    delete rest.from_kind;
    delete rest.after_id;
  }
  for (const name of ['limit', 'last'] as const) {
    if (rest[name] && --rest[name]! === 0) return undefined;
  }
  return rest;
}

/** Ends a stream that has been silent for too long: the server sends a sign of life every 15 seconds. */
class Silence {
  private readonly controller = new AbortController();
  private timer: ReturnType<typeof setTimeout> | undefined;
  private readonly linked: ReturnType<typeof link>;

  constructor(outer: AbortSignal) {
    this.linked = link(outer, this.controller.signal);
    this.heard();
  }

  get signal(): AbortSignal {
    return this.linked.signal;
  }

  end(): void {
    this.stop();
    this.linked.unlink();
  }

  heard(): void {
    this.stop();
    this.timer = setTimeout(() => this.controller.abort(), 45_000);
  }

  stop(): void {
    clearTimeout(this.timer);
  }
}

async function* framesOf(res: Response, quiet: Silence): AsyncGenerator<{ name: string; data: string }, void, undefined> {
  let name = 'message';
  let data: string[] = [];
  for await (const line of linesOf(res)) {
    quiet.heard();
    if (line === '') {
      if (data.length) yield { name, data: data.join('\n') };
      name = 'message';
      data = [];
      continue;
    }
    const at = line.indexOf(':');
    const field = at < 0 ? line : line.slice(0, at);
    const value = at < 0 ? '' : line.slice(at + 1).replace(/^ /, '');
    if (field === 'event') name = value;
    if (field === 'data') data.push(value);
  }
}
