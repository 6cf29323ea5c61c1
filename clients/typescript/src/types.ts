/** Any JSON value. */
export type Json = unknown;

export interface Attachment {
  digest: string;
  size: number;
  media_type?: string;
  name?: string;
}

/** An event to append. `data` is any JSON value; `raw` is its text, for exact bytes. */
export interface NewEvent {
  kind?: string;
  role?: string;
  author?: string;
  /** The writer's own name for the event: an event is stored once per id and session. */
  id?: string;
  at?: string | Date;
  inbox?: boolean;
  attachments?: Attachment[];
  data?: Json;
  raw?: string;
}

export interface StateOp {
  op: 'add' | 'replace' | 'remove' | 'test';
  path: string;
  value?: Json;
}

/** A change to a session's metadata and state; a null label is removed. */
export interface Patch {
  title?: string;
  labels?: Record<string, string | null>;
  state?: Json;
  state_ops?: StateOp[];
}

/** What a session is created with. */
export interface Meta {
  title?: string;
  labels?: Record<string, string>;
  state?: Json;
}

export interface Event<Data = any> {
  seq: number;
  time: string;
  kind: string;
  role: string;
  author: string;
  turn: string;
  by?: string;
  id?: string;
  at?: string;
  inbox?: boolean;
  patch?: Patch;
  attachments?: Attachment[];
  redacted?: boolean;
  redacts?: number[];
  fork?: { id: string; at: number };
  data: Data;
}

export interface Receipt {
  session: string;
  first: number;
  last: number;
  replayed: boolean;
  created?: boolean;
  seqs?: number[];
}

/** What a prune removed. */
export interface Pruned {
  erased?: { session: string; bytes?: number; files?: string[] }[];
  attachments?: string[];
  scrubbed?: string[];
}

export interface Grant {
  grant: string;
  seq: number;
  since: string;
  ttl_ms: number;
  max_hold_ms?: number;
  exclusive?: boolean;
  holder: { label?: string; host?: string; pid?: number };
  reason?: string;
  by?: string;
}

export interface Info {
  id: string;
  title: string;
  labels: Record<string, string>;
  state: any;
  created: string;
  updated: string;
  last_seq: number;
  bytes: number;
  turn: Grant | null;
  damaged: boolean;
  damage?: { safe_seq: number; reason?: string };
  unreadable?: string;
  preview?: string;
  cursor?: string;
  parent?: { id: string; at: number };
}

export interface Range {
  after?: number;
  before?: number;
  limit?: number;
  last?: number;
  kinds?: string[];
  from_kind?: string;
  after_id?: string;
  /** Newest first. */
  reverse?: boolean;
  signal?: AbortSignal;
}

export interface Query {
  prefix?: string;
  ids?: string[];
  labels?: Record<string, string>;
  /** The forks of this session. */
  parent?: string;
  text?: string;
  since?: string | Date;
  before?: string | Date;
  created_since?: string | Date;
  created_before?: string | Date;
  held?: boolean;
  damaged?: boolean;
  archived?: 'no' | 'only';
  order?: 'updated' | 'created';
  limit?: number;
  cursor?: string;
  preview?: boolean;
  signal?: AbortSignal;
}

export interface Search {
  role?: string;
  kind?: string;
  labels?: Record<string, string>;
  since?: string | Date;
  before?: string | Date;
  /** Only this session. */
  session?: string;
  prefix?: string;
  limit?: number;
  offset?: number;
  signal?: AbortSignal;
}

/** An event that a search found. `marks` count bytes of the snippet. */
export interface Hit {
  session: string;
  seq: number;
  id?: string;
  time: string;
  kind: string;
  role: string;
  author: string;
  title: string;
  snippet: string;
  marks: { start: number; end: number }[];
  score: number;
}

/** Where a session is forked, and what the fork overrides. */
export interface ForkOptions {
  /** The last event of the history; the session's last if it is not given. */
  at?: number;
  id?: string;
  title?: string;
  labels?: Record<string, string>;
  state?: Json;
  signal?: AbortSignal;
}

export interface Claim {
  /** How long to wait for the turn, in milliseconds; Infinity waits for ever. */
  wait?: number;
  ttl?: number;
  max_hold?: number;
  exclusive?: boolean;
  label?: string;
  steal?: string;
  signal?: AbortSignal;
}

export interface AppendOptions {
  patch?: Patch;
  /** The seq that the session must end with. */
  expect?: number;
  turn?: string | { grant: string };
  key?: string;
  create?: boolean;
  meta?: Meta;
  signal?: AbortSignal;
}
