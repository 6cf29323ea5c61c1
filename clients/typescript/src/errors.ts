/** What a server says about an error: problem+json. `type` is stable. */
export interface Problem {
  type: string;
  title?: string;
  status?: number;
  detail?: string;
  hint?: string;
  instance?: string;
  session?: string;
  field?: string;
  last_seq?: number;
  expected?: number;
  state_op?: number;
  path?: string;
  key?: string;
  first?: number;
  last?: number;
  ids?: string[];
  grant?: string;
  holder?: Record<string, unknown> | null;
  damage?: { safe_seq?: number; reason?: string } | null;
  retry_after?: number;
}

/** The names of errors: those of the server's problems, and four of the client's own. */
export type Code =
  | 'unreachable' // the server did not answer
  | 'outcome-unknown' // a write may or may not be stored; repeating it with its key or ids settles it
  | 'closed' // the client was closed
  | 'aborted' // the caller's signal
  | 'invalid' | 'too-large' | 'not-found' | 'deleted' | 'exists' | 'conflict' | 'key-reused' | 'id-reused' | 'no-event' | 'no-attachment'
  | 'held' | 'fenced' | 'damaged' | 'unreadable' | 'busy' | 'no-space' | 'read-only' | 'store-failed' | 'newer-version' | 'unsupported' | 'closing'
  | 'malformed' | 'unauthorized' | 'missing-right' | 'wrong-host' | 'wrong-origin' | 'no-such-route' | 'wrong-method' | 'timeout' | 'wrong-media-type'
  | 'too-many-requests' | 'overloaded' | 'internal' | (string & {});

/** Every error of this package. Compare `code`. */
export class HansardError extends Error {
  override readonly name = 'HansardError';
  /** Whether a try whose answer was lost may have been executed. */
  uncertain = false;

  constructor(readonly code: Code, message: string, readonly problem: Problem | undefined = undefined, options?: { cause?: unknown }) {
    super(message, options);
  }

  get hint(): string {
    return this.problem?.hint ?? '';
  }
}

export function isCode(error: unknown, ...codes: Code[]): error is HansardError {
  return error instanceof HansardError && codes.includes(error.code);
}

export function fromProblem(problem: Problem): HansardError {
  const code = problem.type.replace(/^\/problems\//, '');
  const text = problem.detail || problem.title || code;
  return new HansardError(code, problem.field ? `${problem.field}: ${text}` : text, problem);
}

/** Errors that say nothing about an earlier try of a write. */
const unclear: Code[] = ['unreachable', 'closed', 'aborted', 'closing', 'unauthorized', 'missing-right', 'overloaded', 'too-many-requests', 'internal', 'malformed', 'timeout', 'error'];

/** The error of a write: it is outcome-unknown if a try may have been, or may still be, executed. */
export function openOutcome(error: unknown, ...refusals: Code[]): unknown {
  if (!(error instanceof HansardError) || !error.uncertain || error.code === 'outcome-unknown') return error;
  if (![...unclear, ...refusals].includes(error.code)) return error;
  const unknown = new HansardError('outcome-unknown', `it may or may not be stored: ${error.message}`, error.problem, { cause: error });
  unknown.uncertain = true;
  return unknown;
}
