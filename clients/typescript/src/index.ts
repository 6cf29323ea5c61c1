/**
 * Client of Hansard, the session store for AI agents.
 *
 *     const store = new Client('http://127.0.0.1:4267', { token: process.env.HANSARD_TOKEN });
 *     const chat = store.session('demo');
 *     await chat.append(message('user', 'Hello'), { create: true });
 *     for await (const event of chat.follow()) console.log(event.seq, event.data);
 */
export { Client, message, Session, type ClientOptions } from './client.js';
export { HansardError, isCode, type Code, type Problem } from './errors.js';
export { Turn } from './turn.js';
export type { AppendOptions, Attachment, Claim, Event, ForkOptions, Grant, Hit, Info, Json, Meta, NewEvent, Patch, Pruned, Query, Range, Receipt, Search, StateOp } from './types.js';
