/** A session followed over a WebSocket. Browsers have six connections to a server for all of a page's requests and event streams, and many more for WebSockets. */
import { BrokenOff, type Http } from './http.js';

/** What followers get from a connection of either type. */
export interface Frame {
  name: 'created' | 'message' | 'problem' | 'dropped';
  value: any;
}

/** How much may wait for a slow reader, in characters. A WebSocket accepts whatever arrives, and would buffer any amount. */
const mostWaiting = 8_000_000;
/** An answered ping is a sign of life: the pings of the WebSocket protocol itself are not visible here. */
const pingEvery = 15_000;

/** No WebSocket can be opened: this platform has none, or something in between blocks it. */
export class NoSocket extends Error {}

export type SocketClass = new (url: string, protocols: string[]) => WebSocket;

async function socketClass(http: Http): Promise<SocketClass> {
  const found = http.socketClass ?? (globalThis as { WebSocket?: SocketClass }).WebSocket;
  if (found) return found;
  const name = 'ws'; // Node has its own since version 22
  return import(/* @vite-ignore */ /* webpackIgnore: true */ name).then((m) => m.WebSocket, (cause) => {
    throw new NoSocket('there is no WebSocket here', { cause });
  });
}

async function open(http: Http, signal: AbortSignal): Promise<WebSocket> {
  const Socket = await socketClass(http);
  return new Promise((done, fail) => {
    let socket: WebSocket;
    try {
      socket = new Socket(...http.socketAddress());
    } catch (cause) {
      return fail(new NoSocket('the WebSocket could not be made', { cause }));
    }
    const settle = () => signal.removeEventListener('abort', abort);
    const abort = () => {
      settle();
      socket.close();
      fail(new BrokenOff('it was given up'));
    };
    if (signal.aborted) return abort();
    signal.addEventListener('abort', abort);
    socket.onopen = () => (settle(), done(socket));
    socket.onerror = socket.onclose = () => (settle(), fail(new NoSocket('the WebSocket was not opened')));
  });
}

/** The frames of one connection; it ends in BrokenOff. `heard` is called for each sign of life. */
export async function* socketFrames(http: Http, session: string, after: number, created: string, signal: AbortSignal, heard: () => void): AsyncGenerator<Frame, void, undefined> {
  const socket = await open(http, signal);
  const queue: string[] = [];
  let waiting = 0;
  let over: BrokenOff | undefined;
  let wake = () => {};
  const end = (why: string) => {
    over ??= new BrokenOff(why);
    socket.close();
    wake();
  };
  const abort = () => end('it was given up');
  socket.onmessage = ({ data }) => {
    heard();
    if (over || typeof data !== 'string') return;
    queue.push(data);
    waiting += data.length;
    if (waiting > mostWaiting) end('too much waits to be read'); // the next connection continues after it
    wake();
  };
  socket.onerror = socket.onclose = () => end('the connection was closed');
  signal.addEventListener('abort', abort);
  const ping = setInterval(() => socket.readyState === 1 && socket.send('{"op":"ping"}'), pingEvery);
  try {
    socket.send(JSON.stringify({ op: 'follow', session, after, ...(created ? { created } : {}) }));
    for (;;) {
      const text = queue.shift();
      if (text === undefined) {
        if (over) throw over;
        await new Promise<void>((done) => (wake = done));
        continue;
      }
      waiting -= text.length;
      const message = JSON.parse(text);
      if (message.op === 'following') yield { name: 'created', value: message.created };
      if (message.op === 'events') for (const value of message.events) yield { name: 'message', value };
      if (message.op === 'problem' || message.op === 'ended') yield { name: 'problem', value: message.problem };
      if (message.op === 'dropped') yield { name: 'dropped', value: undefined };
    }
  } finally {
    clearInterval(ping);
    signal.removeEventListener('abort', abort);
    over ??= new BrokenOff('it is over');
    socket.close();
  }
}
