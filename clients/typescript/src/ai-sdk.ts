/**
 * For the Vercel AI SDK: persistent chats, and resumable streams, without Redis.
 *
 *     const chats = new HansardChats(client);
 *     const messages = await chats.load(id);
 *     … toUIMessageStreamResponse({ originalMessages: messages, onFinish: ({ messages }) => chats.save(id, messages) })
 *
 * A message is an event, with its place in the chat and a digest of the chat up to it. So only
 * changes are stored, and only the end of the log is read to find them. Regenerating or editing
 * replaces what follows; the log keeps the old messages.
 */
import type { Client } from './client.js';
import { isCode } from './errors.js';
import { link } from './http.js';
import { hash, partOf } from './ids.js';
import type { NewEvent } from './types.js';

/** The members that all versions of UIMessage have. */
export interface ChatMessage {
  id: string;
  role: string;
}

const kindCut = 'chat.cut';
const kindChunks = 'chunks';
const kindEnd = 'end';

export class HansardChats<M extends ChatMessage = any> {
  constructor(private readonly client: Client, private readonly prefix = 'chat:') {}

  /** The messages of a chat; none if there is no such chat. */
  async load(chatId: string): Promise<M[]> {
    return (await this.stored(chatId, () => false)).messages.reverse();
  }

  /** Stores the chat as given. If others have changed it in between it is read again, and the last to save wins. */
  async save(chatId: string, messages: M[]): Promise<void> {
    const digests: string[] = [];
    for (const m of messages) digests.push(await hash((digests.at(-1) ?? '') + JSON.stringify(m)));
    const session = this.client.session(await this.id(chatId));
    for (;;) {
      // The newest event whose chat up to its place is the same as this one: nothing before it has changed.
      const found = await this.stored(chatId, (index, digest) => digests[index] === digest);
      const same = found.same + 1;
      const events = messages.slice(same).map((message, n): NewEvent => {
        const index = same + n;
        return { role: message.role, data: { ...message, hansard: { index, digest: digests[index] } } };
      });
      if (!events.length && found.length <= messages.length) return;
      if (!events.length) events.push({ kind: kindCut, data: { length: messages.length } });
      try {
        await session.append(events, { create: true, expect: found.last });
        return;
      } catch (error) {
        if (!isCode(error, 'conflict')) throw error;
      }
    }
  }

  /** Messages from the end back to the first one that `enough` accepts; the length of the chat, and the session's last seq. */
  private async stored(chatId: string, enough: (index: number, digest: string) => boolean): Promise<{ messages: M[]; length: number; same: number; last: number }> {
    const messages: M[] = [];
    let [next, length, last] = [Infinity, 0, 0];
    try {
      for await (const e of this.client.session(await this.id(chatId)).read({ reverse: true })) {
        last ||= e.seq;
        if (e.kind === kindCut) next = Math.min(next, e.data.length);
        const place = e.kind === 'message' ? e.data?.hansard : undefined;
        if (next === 0) break;
        // A message that was replaced, or cut off, has a place at or after that of a later one.
        if (!place || place.index >= next) continue;
        length ||= place.index + 1;
        if (enough(place.index, place.digest)) return { messages, length, same: place.index, last };
        next = place.index;
        const { hansard: _, ...message } = e.data;
        messages.push(message);
        if (next === 0) break;
      }
    } catch (error) {
      if (!isCode(error, 'not-found')) throw error;
    }
    return { messages, length, same: -1, last };
  }

  private async id(chatId: string): Promise<string> {
    return this.prefix + (await partOf(chatId));
  }
}

/**
 * Streams that survive the connection and the server they began on, with the methods of the package
 * resumable-stream: `consumeSseStream: ({ stream }) => streams.createNewResumableStream(id, () => stream)`
 * and, in the route that reconnects, `resumeExistingStream(id)`.
 */
export class HansardStreams {
  constructor(private readonly client: Client, private readonly prefix = 'stream:') {}

  /** Stores a stream as it passes. It returns the stream unchanged; whether anyone reads that does not matter. */
  async createNewResumableStream(streamId: string, make: () => ReadableStream<string>): Promise<ReadableStream<string>> {
    const session = await this.client.create({ id: await this.id(streamId) });
    const source = make().getReader();
    let mine: ReadableStreamDefaultController<string> | undefined;
    const passed = new ReadableStream<string>({ start: (controller) => void (mine = controller), cancel: () => void (mine = undefined) });
    void this.keep(session.id, source, { piece: (p) => mine?.enqueue(p), end: () => mine?.close(), fail: (e) => mine?.error(e) });
    return passed;
  }

  /** Stores pieces; those that arrive during one append go into the next. */
  private async keep(id: string, source: ReadableStreamDefaultReader<string>, pass: { piece(p: string): void; end(): void; fail(e: unknown): void }): Promise<void> {
    const session = this.client.session(id);
    let waiting: string[] = [];
    // A store that can't be reached must not break the answer in progress: only resuming it will not work.
    let sending: Promise<boolean> = Promise.resolve(true);
    const flush = async (well: boolean): Promise<boolean> => {
      const pieces = waiting;
      waiting = [];
      return well && session.append({ kind: kindChunks, data: pieces }).then(() => true, () => false);
    };
    let failed: string | null = null;
    try {
      for (let read = await source.read(); !read.done; read = await source.read()) {
        pass.piece(read.value);
        waiting.push(read.value);
        if (waiting.length === 1) sending = sending.then(flush);
      }
      pass.end();
    } catch (error) {
      failed = error instanceof Error ? error.message : String(error);
      pass.fail(error);
    }
    if (!(await sending)) failed ??= 'a part of the stream could not be stored';
    await session.append({ kind: kindEnd, data: { failed } }).catch(() => undefined);
  }

  /** The stream from its beginning, continued as it arrives; null if there is none, or if it is over and `finished` is not set. */
  async resumeExistingStream(streamId: string, options: { finished?: boolean; signal?: AbortSignal } = {}): Promise<ReadableStream<string> | null> {
    const session = this.client.session(await this.id(streamId));
    try {
      for await (const e of session.read({ reverse: true, limit: 1 })) if (e.kind === kindEnd && !options.finished) return null;
    } catch (error) {
      if (isCode(error, 'not-found', 'deleted')) return null;
      throw error;
    }
    const stop = new AbortController();
    const { signal, unlink } = link(stop.signal, options.signal);
    stop.signal.addEventListener('abort', unlink);
    const events = session.follow({ signal });
    return new ReadableStream<string>({
      async pull(controller) {
        for (;;) {
          const { done, value: e } = await events.next();
          if (done) return stop.signal.aborted ? undefined : controller.close();
          if (e.kind === kindChunks) {
            for (const piece of e.data as string[]) controller.enqueue(piece);
            return;
          }
          if (e.kind !== kindEnd) continue;
          stop.abort();
          return e.data.failed === null ? controller.close() : controller.error(new Error(e.data.failed));
        }
      },
      async cancel() {
        stop.abort();
      },
    });
  }

  /** resumable-stream's other method: makes the stream, or resumes an existing one. */
  async resumableStream(streamId: string, make: () => ReadableStream<string>): Promise<ReadableStream<string> | null> {
    try {
      return await this.createNewResumableStream(streamId, make);
    } catch (error) {
      if (!isCode(error, 'exists')) throw error;
      return this.resumeExistingStream(streamId);
    }
  }

  private async id(streamId: string): Promise<string> {
    return this.prefix + (await partOf(streamId));
  }
}
