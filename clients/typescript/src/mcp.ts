/**
 * The EventStore of the MCP SDK: what a Streamable HTTP server sent outlives it, so that a client
 * that lost its connection, or its server, gets the rest.
 *
 *     new StreamableHTTPServerTransport({ eventStore: new HansardEventStore(client, 'mcp:' + id), … })
 *
 * One session of the store per MCP session. An event's id is its seq and its stream.
 */
import type { Client, Session } from './client.js';
import { HansardError, isCode } from './errors.js';
import { bytes, hash } from './ids.js';

export class HansardEventStore {
  private readonly session: Session;

  constructor(client: Client, sessionId: string) {
    this.session = client.session(sessionId);
  }

  async storeEvent(streamId: string, message: unknown): Promise<string> {
    const receipt = await this.session.append({ kind: await kindOf(streamId), author: 'mcp', data: { stream: streamId, message } }, { create: true });
    return idOf(receipt.first, streamId);
  }

  async getStreamIdForEventId(eventId: string): Promise<string | undefined> {
    return parse(eventId)?.stream;
  }

  /** Sends the events of the stream after this one. An id that this store did not issue is an error. */
  async replayEventsAfter<M = any>(lastEventId: string, { send }: { send: (eventId: string, message: M) => Promise<void> }): Promise<string> {
    const last = parse(lastEventId);
    const kinds = last ? [await kindOf(last.stream)] : [];
    let known = false;
    if (last) {
      try {
        // Starting with the event itself, which shows whether the id is one of ours.
        for await (const e of this.session.read({ after: last.seq - 1, kinds })) {
          if (!known && (e.seq !== last.seq || e.data?.stream !== last.stream)) break;
          if (known) await send(idOf(e.seq, last.stream), e.data.message as M);
          known = true;
        }
      } catch (error) {
        if (!isCode(error, 'not-found', 'deleted')) throw error;
      }
    }
    if (!known) throw new HansardError('no-event', `there is no event ${JSON.stringify(lastEventId)}`);
    return last!.stream;
  }
}

const idOf = (seq: number, stream: string) => `${seq}_${encodeURIComponent(stream)}`;

function parse(eventId: string): { seq: number; stream: string } | undefined {
  const found = /^([1-9]\d{0,15})_(.*)$/.exec(eventId);
  try {
    return found ? { seq: Number(found[1]), stream: decodeURIComponent(found[2]!) } : undefined;
  } catch {
    return undefined;
  }
}

/** Events of a stream have their own kind, by which the server finds them. */
async function kindOf(stream: string): Promise<string> {
  return /^[\w.-]+$/.test(stream) && bytes(stream) <= 200 ? 'mcp.' + stream : 'mcp.~' + (await hash(stream)).slice(0, 32);
}
