import { HansardError, isCode, openOutcome } from './errors.js';
import { link, sessionPath, sleep, type Http } from './http.js';
import type { Session } from './client.js';
import type { Grant, Info } from './types.js';

/** The minimum time between two checks of the turn that are prompted by a change of the session. */
const notice = 100;

/**
 * A turn that renews itself. `signal` aborts when it is lost or released; pass it to the work
 * that the turn is held for, and the turn itself to `append`.
 */
export class Turn {
  readonly grant: string;
  private readonly over = new AbortController();
  private readonly stopped = new AbortController();
  private readonly kept: Promise<void>;

  constructor(private readonly http: Http, private readonly session: Session, readonly info: Grant, asked: number) {
    this.grant = info.grant;
    // Whatever ends the renewals ends the turn.
    this.kept = this.keep(asked).catch((error: HansardError) => error).then((why) => this.over.abort(why));
  }

  /** Aborts when the turn is lost, with the reason (code "fenced", …), or was released. */
  get signal(): AbortSignal {
    return this.over.signal;
  }

  get lost(): boolean {
    return this.over.signal.aborted && !this.stopped.signal.aborted;
  }

  /** Gives the turn up; "fenced" if it was lost, or released before. */
  async release(): Promise<void> {
    this.stopped.abort();
    await this.kept;
    const q = { method: 'DELETE', path: sessionPath(this.session.id, '/turn'), json: { grant: this.grant } };
    try {
      await this.http.answer(q, AbortSignal.timeout(30_000));
    } catch (error) {
      // Released by the try whose answer was lost, or taken by someone else: either way it is given up.
      if (!(isCode(error, 'fenced') && error.uncertain)) throw openOutcome(error);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.stopped.signal.aborted) await this.release();
  }

  /**
   * Renews until the turn is released or lost, and says why it ended. The session's own events wake
   * it, so that a stolen turn is noticed at once and not at the next renewal.
   */
  private async keep(asked: number): Promise<HansardError> {
    // Times are those of performance.now: the wall clock may be set back, and renewals would stop.
    const { ttl_ms: ttl, max_hold_ms: maxHold = 0 } = this.info;
    const every = Math.floor(ttl / 3);
    let renewed = asked;
    let seen = this.info.seq;
    let watch = true;
    const stopped = this.stopped.signal;
    while (!stopped.aborted) {
      const due = Math.min(renewed + every, maxHold ? asked + maxHold : Infinity);
      const changed = await this.pause(due, watch ? seen : 0);
      if (stopped.aborted) break;
      if (maxHold && performance.now() >= asked + maxHold) return new HansardError('fenced', 'the turn was held for its whole max_hold');
      // A server that does not answer must not let the holder believe that it still has the turn.
      const until = renewed + ttl;
      const alive = [stopped, AbortSignal.timeout(Math.max(0, Math.ceil(until - performance.now())))];
      try {
        if (changed) {
          const { value } = await this.http.answer<Info>({ method: 'GET', path: sessionPath(this.session.id) }, ...alive);
          if (value.turn?.grant !== this.grant) return new HansardError('fenced', 'somebody else has the turn');
          seen = value.last_seq;
        }
        const now = performance.now();
        if (now >= renewed + every) {
          await this.http.answer({ method: 'PUT', path: sessionPath(this.session.id, '/turn'), json: { grant: this.grant } }, ...alive);
          renewed = now;
        }
      } catch (error) {
        if (stopped.aborted) break;
        if (isCode(error, 'fenced', 'deleted', 'not-found', 'closed')) return error;
        if (isCode(error, 'missing-right', 'unauthorized')) watch = false; // a token that can't read can still renew
        if (performance.now() >= until) return new HansardError('fenced', `the turn could not be renewed for ${ttl} ms`, undefined, { cause: error });
        await sleep(Math.min(every / 4, 1000), stopped);
      }
    }
    return new HansardError('released', 'the turn was released');
  }

  /** Waits for a time or, if `seen` is not 0, until the session changes or is gone. */
  private async pause(due: number, seen: number): Promise<boolean> {
    const stopped = this.stopped.signal;
    if (!seen || due - performance.now() <= notice) {
      await sleep(Math.max(0, due - performance.now()), stopped);
      return false;
    }
    await sleep(notice, stopped);
    const waiting = link(stopped, AbortSignal.timeout(Math.max(0, Math.ceil(due - performance.now()))));
    try {
      await this.session.wait(seen, waiting.signal);
    } catch (error) {
      if (isCode(error, 'aborted')) return false;
      // A change, too: the session was deleted, for example.
    } finally {
      waiting.unlink();
    }
    return performance.now() < due;
  }
}
