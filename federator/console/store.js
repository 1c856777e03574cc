// A value, and those who want to know when it changes.

/** @template T */
export class Store {
  /** @param {T} value */
  constructor(value) {
    this.value = value;
    /** @type {Set<(value: T) => void>} */
    this.subscribers = new Set();
  }

  /** @param {T} value */
  set(value) {
    if (value === this.value) return;
    this.value = value;
    for (const each of [...this.subscribers]) each(value);
  }

  /**
   * Call it now and on every change; answers how to stop that.
   * @param {(value: T) => void} subscriber
   */
  subscribe(subscriber) {
    this.subscribers.add(subscriber);
    subscriber(this.value);
    return () => void this.subscribers.delete(subscriber);
  }
}
