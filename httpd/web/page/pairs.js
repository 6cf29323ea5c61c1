// Pairs brings calls of tools and their results together, in whatever order the
// events come into the window.
export class Pairs {
  #known = new Map(); // call id → { call, result }: { seq, … } as they were given
  #told = new Map(); // seq → the call ids that the event told of

  // add tells about a call or a result; both sides hear of each other by meet.
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

  // forget drops what an event that left the window had told.
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
