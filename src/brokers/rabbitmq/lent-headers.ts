type Headers = Record<string, unknown>;

/**
 * The headers of one message after another in one object, for as long as the client encodes them. amqplib makes what it is
 * given the prototype of another object, and V8 rebuilds every object that becomes a prototype: with one for each message,
 * that takes as long as all the rest of the encoding.
 */
export class LentHeaders {
  #lent: Headers = {};
  #names: readonly string[] = [];
  #wasEncoded = false;

  /** The same headers; until `takeBack` nothing else may be lent. */
  lend(headers: Headers): Headers {
    this.#wasEncoded = false;
    let count = 0;
    for (const name in headers) {
      if (name !== this.#names[count]) return this.#anew(headers);
      this.#lent[name] = headers[name];
      count++;
    }
    return count > 0 && count === this.#names.length ? this.#lent : this.#anew(headers);
  }

  /** The object is used again only if the client is done with it, and nothing has been added to it or taken away. */
  takeBack(): void {
    let count = 0;
    for (const name in this.#lent) if (name !== this.#names[count++]) this.#wasEncoded = false;
    if (!this.#wasEncoded || count !== this.#names.length) this.#names = [];
  }

  /** An object that tells when it is encoded: whatever watches the client reads it too, but not by way of an heir. */
  #anew(headers: Headers): Headers {
    const lent = { ...headers };
    this.#lent = lent;
    this.#names = Object.keys(lent);
    const [first] = this.#names;
    if (first === undefined) return lent;
    let value = lent[first];
    const encoded = (): void => void (this.#wasEncoded = true);
    return Object.defineProperty(lent, first, {
      get(this: unknown) {
        if (this !== lent) encoded();
        return value;
      },
      set(given: unknown) {
        value = given;
      },
    });
  }
}
