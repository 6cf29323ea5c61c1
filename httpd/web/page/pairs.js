// Pairs matches tool calls with their results, in whatever order the events enter
// the window.
export class Pairs {
  #known = new Map(); // call id → { call, result }: { seq, … } as they were given
  #told = new Map(); // seq → the call ids in the event

  // add adds a call or a result; each side gets the other through meet.
  add(side, id, entry) {
    if (!id) return;
    const pair = this.#known.get(id) ?? {};
    pair[side] = entry;
    this.#known.set(id, pair);
    const ids = this.#told.get(entry.seq) ?? new Set();
    this.#told.set(entry.seq, ids.add(id));
    if (pair.call && pair.result) {
      pair.call.meet(pair.result);
      pair.result.meet(pair.call);
    }
  }

  // forget drops the calls and results of an event that left the window.
  forget(seq) {
    for (const id of this.#told.get(seq) ?? []) {
      const pair = this.#known.get(id);
      for (const side of ["call", "result"]) if (pair?.[side]?.seq === seq) delete pair[side];
      if (pair && !pair.call && !pair.result) this.#known.delete(id);
    }
    this.#told.delete(seq);
  }

  clear() {
    this.#known.clear();
    this.#told.clear();
  }
}
