/**
 * Requests that are sent again where that is safe. A server that was never reached is an error at
 * once; for one that was reached before, requests are retried for `patience`.
 */
import { fromProblem, HansardError, type Problem } from './errors.js';
import type { SocketClass } from './socket.js';

export interface Request {
  method: string;
  path: string;
  query?: [string, string][];
  /** A function makes the value for each attempt. */
  json?: unknown;
  body?: BodyInit;
  headers?: Record<string, string>;
  accept?: string;
  /** The body can't be sent a second time. */
  once?: boolean;
}

const pauseMin = 20;
const pauseMax = 1000;

export const sessionPath = (id: string, more = '') => `/v1/sessions/${encodeURIComponent(id)}${more}`;

/** Whether nothing listens at an address, as far as that is known: Node reports it, browsers do not. */
function nobodyThere(error: unknown): boolean {
  const code = (error as { cause?: { code?: string } })?.cause?.code;
  return code !== undefined && ['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN', 'ENETUNREACH', 'EHOSTUNREACH'].includes(code);
}

/** An invalid certificate does not become valid by retrying. */
function refusedByTLS(error: unknown): boolean {
  const code = (error as { cause?: { code?: string } })?.cause?.code ?? '';
  return code.includes('CERT') || code.startsWith('ERR_TLS') || code.startsWith('ERR_SSL');
}

export const sleep = (ms: number, signal?: AbortSignal) =>
  new Promise<void>((done) => {
    if (signal?.aborted) return done();
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', end);
      done();
    };
    const timer = setTimeout(end, ms);
    signal?.addEventListener('abort', end);
  });

/** What is to be called when a signal aborts, by one listener for all calls: Node takes more than ten listeners for a leak. */
const hung = new WeakMap<AbortSignal, { calls: Set<() => void>; listener: () => void }>();

function hang(signal: AbortSignal, call: () => void): void {
  let on = hung.get(signal);
  if (!on) {
    const calls = new Set<() => void>();
    on = { calls, listener: () => [...calls].forEach((c) => c()) };
    hung.set(signal, on);
    signal.addEventListener('abort', on.listener);
  }
  on.calls.add(call);
}

function unhang(signal: AbortSignal, call: () => void): void {
  const on = hung.get(signal);
  if (!on?.calls.delete(call) || on.calls.size) return;
  hung.delete(signal);
  signal.removeEventListener('abort', on.listener);
}

/**
 * A signal for one call that aborts with any of the given ones. Those may live as long as the
 * program: what hangs on them is removed when the call ends, not by garbage collection.
 */
export function link(...signals: (AbortSignal | undefined)[]): { signal: AbortSignal; unlink: () => void } {
  const own = new AbortController();
  const given = signals.filter((s) => s !== undefined);
  const abort = () => own.abort(given.find((s) => s.aborted)?.reason);
  if (given.some((s) => s.aborted)) abort();
  else for (const s of given) hang(s, abort);
  return { signal: own.signal, unlink: () => given.forEach((s) => unhang(s, abort)) };
}

export class Http {
  readonly name: string;
  readonly closing = new AbortController();
  /** Whether sessions are followed over WebSockets, and the class that makes them. */
  webSocket = false;
  socketClass: SocketClass | undefined;
  private readonly base: string;
  private readonly token: string;
  private reached = false;

  constructor(address: string, token: string, readonly patience: number, private readonly fetch: typeof globalThis.fetch) {
    const u = new URL(address);
    if (u.protocol !== 'http:' && u.protocol !== 'https:') throw new TypeError('the address begins neither with http:// nor with https://');
    if (u.username || u.password || u.search) throw new TypeError('the address has a user, a password or a query; a token is what a server wants');
    this.token = token || (u.hash.startsWith('#token=') ? u.hash.slice(7) : '');
    this.base = this.name = u.origin + u.pathname.replace(/\/+$/, '');
  }

  /** Where the server's WebSocket is, and its subprotocols: a browser has no other way to send a token. */
  socketAddress(): [string, string[]] {
    return [this.base.replace(/^http/, 'ws') + '/v1/ws', ['hansard.v1', ...(this.token ? ['hansard.token.' + this.token] : [])]];
  }

  /** Sends a request once. A problem is thrown as an error. */
  private async once(q: Request, signal?: AbortSignal): Promise<Response> {
    let address = this.base + q.path;
    if (q.query?.length) address += '?' + new URLSearchParams(q.query).toString();
    const headers: Record<string, string> = { Accept: q.accept ?? 'application/json', ...q.headers };
    if (this.token) headers.Authorization = 'Bearer ' + this.token;
    if (q.json !== undefined) headers['Content-Type'] = 'application/json';
    const body = q.json !== undefined ? JSON.stringify(typeof q.json === 'function' ? q.json() : q.json) : q.body;
    const init: RequestInit & { duplex?: 'half' } = { method: q.method, headers, signal: signal ?? null, redirect: 'manual', cache: 'no-store', credentials: 'omit' };
    if (body !== undefined) init.body = body;
    if (body instanceof ReadableStream) init.duplex = 'half';
    let res: Response;
    try {
      res = await this.fetch(address, init);
      this.reached = true;
      if (res.ok) return res;
    } catch (cause) {
      const there = !nobodyThere(cause);
      if (there && !refusedByTLS(cause)) this.reached = true;
      const error = new HansardError('unreachable', `the server at ${this.name} can't be reached: ${reason(cause)}`, undefined, { cause });
      error.uncertain = there;
      throw error;
    }
    throw await this.refusal(res);
  }

  private async refusal(res: Response): Promise<HansardError> {
    let text: string;
    try {
      text = await res.text();
    } catch (cause) {
      return uncertain(new HansardError('unreachable', `the answer of ${this.name} broke off: ${reason(cause)}`, undefined, { cause }));
    }
    if (res.headers.get('content-type')?.startsWith('application/problem+json')) {
      try {
        const problem = JSON.parse(text) as Problem;
        if (problem.type) {
          const error = fromProblem(problem);
          return error.code === 'outcome-unknown' ? uncertain(error) : error;
        }
      } catch {
        // below
      }
    }
    if ([502, 503, 504].includes(res.status)) return uncertain(new HansardError('unreachable', `something in front of ${this.name} answers ${res.status}`));
    return new HansardError('error', `${this.name} answers ${res.status}, and not like a Hansard server: check the address`);
  }

  /** Sends a request until it is answered, as long as a retry may help. */
  async do(q: Request, signal?: AbortSignal): Promise<{ res: Response; uncertain: boolean }> {
    const tries = new Tries(this);
    let unsure = false;
    for (;;) {
      this.check(signal);
      try {
        return { res: await this.once(q, signal), uncertain: unsure };
      } catch (thrown) {
        const error = thrown as HansardError;
        unsure ||= error.uncertain;
        error.uncertain = unsure;
        if (signal?.aborted) throw this.ended(signal, unsure);
        const passing = ['unreachable', 'outcome-unknown', 'closing'].includes(error.code) && !refusedByTLS(error.cause);
        const unknownPlace = !this.reached && nobodyThere(error.cause);
        if (q.once || !passing || unknownPlace || !tries.again()) throw error;
      }
      await tries.pause(signal);
    }
  }

  /** Sends a request and reads its answer; `uncertain` says whether an earlier try may have been executed. */
  async answer<T>(q: Request, ...signals: (AbortSignal | undefined)[]): Promise<{ value: T; uncertain: boolean }> {
    const { signal, unlink } = link(...signals);
    try {
      return await this.answered<T>(q, signal);
    } finally {
      unlink();
    }
  }

  private async answered<T>(q: Request, signal: AbortSignal): Promise<{ value: T; uncertain: boolean }> {
    const tries = new Tries(this);
    let unsure = false;
    if (this.closing.signal.aborted) throw new HansardError('closed', 'the client was closed');
    for (;;) {
      let res: Response;
      try {
        const done = await this.do(q, signal);
        unsure ||= done.uncertain;
        res = done.res;
      } catch (error) {
        if (error instanceof HansardError) error.uncertain ||= unsure;
        throw error;
      }
      let text: string;
      try {
        text = await res.text();
      } catch (cause) {
        unsure = true;
        if (signal.aborted) throw this.ended(signal, true);
        if (q.once || !tries.again()) {
          throw uncertain(new HansardError('unreachable', `the answer of ${this.name} broke off: ${reason(cause)}`, undefined, { cause }));
        }
        await tries.pause(signal);
        continue;
      }
      try {
        return { value: (text ? JSON.parse(text) : undefined) as T, uncertain: unsure };
      } catch (cause) {
        throw uncertain(new HansardError('outcome-unknown', `${this.name} answers with something that is not JSON`, undefined, { cause }));
      }
    }
  }

  async get<T>(path: string, query: [string, string][] = [], signal?: AbortSignal): Promise<T> {
    return (await this.answer<T>({ method: 'GET', path, query }, this.closing.signal, signal)).value;
  }

  check(signal?: AbortSignal): void {
    if (signal?.aborted) throw this.ended(signal, false);
  }

  ended(signal: AbortSignal, unsure: boolean): HansardError {
    const closed = this.closing.signal.aborted;
    const error = new HansardError(closed ? 'closed' : 'aborted', closed ? 'the client was closed' : 'it was aborted', undefined, { cause: signal.reason });
    error.uncertain = unsure;
    return error;
  }

  /** The objects of a response, one per line. When the connection breaks, or the server shuts down, it asks again, for what `next` returns. */
  async *lines(next: () => Request | undefined, given?: AbortSignal): AsyncGenerator<any, void, undefined> {
    const { signal, unlink } = link(this.closing.signal, given);
    try {
      yield* this.linesUntil(next, signal);
    } finally {
      unlink();
    }
  }

  private async *linesUntil(next: () => Request | undefined, signal: AbortSignal): AsyncGenerator<any, void, undefined> {
    let tries = new Tries(this);
    for (;;) {
      const q = next();
      if (!q) return;
      const { res } = await this.do({ ...q, accept: 'application/x-ndjson' }, signal);
      try {
        for await (const line of linesOf(res)) {
          const object = JSON.parse(line || '{}');
          if (object.problem && Object.keys(object).length === 1) {
            const error = fromProblem(object.problem);
            if (error.code !== 'closing') throw error;
            throw new BrokenOff(error.message, { cause: error }); // another server, or the same one later, has the rest
          }
          tries = new Tries(this);
          if (line) yield object;
        }
        return;
      } catch (thrown) {
        if (thrown instanceof HansardError) throw thrown;
        if (signal.aborted) throw this.ended(signal, false);
        if (!(thrown instanceof BrokenOff)) throw thrown;
        if (!next() || !tries.again()) {
          throw new HansardError('unreachable', `the answer of ${this.name} broke off: ${thrown.message}`, undefined, { cause: thrown });
        }
      }
      await tries.pause(signal);
      this.check(signal);
    }
  }
}

/** Attempts at one thing. Patience begins with the first failure: how long it took until then does not count. */
class Tries {
  private since: number | undefined;
  private next = pauseMin;

  constructor(private readonly http: Http) {}

  /** Whether there is to be another attempt after one has failed. */
  again(): boolean {
    this.since ??= performance.now();
    return performance.now() - this.since <= this.http.patience && !this.http.closing.signal.aborted;
  }

  async pause(signal?: AbortSignal): Promise<void> {
    await sleep(this.next * (0.5 + Math.random()), signal);
    this.next = Math.min(2 * this.next, pauseMax);
  }
}

function uncertain(error: HansardError): HansardError {
  error.uncertain = true;
  return error;
}

export function reason(error: unknown): string {
  const cause = (error as { cause?: unknown })?.cause;
  return cause instanceof Error && cause.message ? cause.message : error instanceof Error ? error.message : String(error);
}

/** A response that was cut off. */
export class BrokenOff extends Error {}

/** The pieces of a body. The connection is released when the caller stops. */
export async function* piecesOf(res: Response): AsyncGenerator<Uint8Array, void, undefined> {
  const reader = res.body?.getReader();
  if (!reader) return;
  let over = false;
  try {
    for (;;) {
      const { done, value } = await reader.read().catch((error) => {
        over = true;
        throw new BrokenOff(reason(error), { cause: error });
      });
      if (done) {
        over = true;
        return;
      }
      yield value;
    }
  } finally {
    if (!over) await reader.cancel().catch(() => undefined);
  }
}

/** The lines of a body. A last one without a line end means that the response was cut off. */
export async function* linesOf(res: Response): AsyncGenerator<string, void, undefined> {
  const decoder = new TextDecoder();
  let rest: string[] = [];
  for await (const piece of piecesOf(res)) {
    const parts = decoder.decode(piece, { stream: true }).split('\n');
    for (let i = 0; i < parts.length - 1; i++) {
      rest.push(parts[i]!);
      yield rest.join('').replace(/\r$/, '');
      rest = [];
    }
    const last = parts[parts.length - 1]!;
    if (last) rest.push(last);
  }
  if (rest.length) throw new BrokenOff('in the middle of a line');
}
