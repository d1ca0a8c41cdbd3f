type Headers = Record<string, unknown>;

/**
 * The headers of one message after another in one object, for as long as the client encodes them. amqplib makes what it is
 * given the prototype of another object, and V8 rebuilds every object that becomes a prototype: with one for each message,
 * that takes as long as all the rest of the encoding.
 */
export class LentHeaders {
  #lent: Headers = {};
  #names: string[] = [];
  /** What is lent reads them at once and is done with them; undefined: not known yet. */
  #mayShare: boolean | undefined;
  #wasRead = false;

  /** The same headers; until `takeBack` nothing else may be lent. */
  lend(headers: Headers): Headers {
    if (this.#mayShare === undefined) return this.#watched(headers);
    if (!this.#mayShare) return headers;
    let count = 0;
    for (const name in headers) {
      if (name !== this.#names[count]) return this.#anew(headers);
      this.#lent[name] = headers[name];
      count++;
    }
    return count === this.#names.length ? this.#lent : this.#anew(headers);
  }

  takeBack(): void {
    if (this.#mayShare === undefined) {
      this.#mayShare = this.#wasRead;
    } else if (this.#mayShare) {
      let count = 0;
      for (const _ in this.#lent) count++;
      // What watches the client may have added its own: no other message must get that.
      if (count !== this.#names.length) this.#anew({});
    }
  }

  #anew(headers: Headers): Headers {
    this.#lent = { ...headers };
    this.#names = Object.keys(headers);
    return this.#lent;
  }

  /** Tells whether the first of them was read. */
  #watched(headers: Headers): Headers {
    const watched = { ...headers };
    const [first] = Object.keys(headers);
    if (first === undefined) return watched;
    const get = (): unknown => {
      this.#wasRead = true;
      return headers[first];
    };
    return Object.defineProperty(watched, first, { enumerable: true, get });
  }
}
