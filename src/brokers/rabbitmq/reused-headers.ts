type Headers = Record<string, unknown>;

/**
 * The headers of one message after another in one object, for as long as the client encodes them. amqplib makes what it is
 * given the prototype of another object, and V8 rebuilds every object that becomes a prototype: with one for each message,
 * that takes as long as all the rest of the encoding.
 */
export class ReusedHeaders {
  #object: Headers = {};
  #names: readonly string[] = [];
  #wasEncoded = false;

  /** An object with these headers; it must be released before it is used again. */
  use(headers: Headers): Headers {
    this.#wasEncoded = false;
    let count = 0;
    for (const name in headers) {
      if (name !== this.#names[count]) return this.#anew(headers);
      this.#object[name] = headers[name];
      count++;
    }
    return count > 0 && count === this.#names.length ? this.#object : this.#anew(headers);
  }

  /** The object is used again only if the client is done with it, and nothing has been added to it or taken away. */
  release(): void {
    let count = 0;
    for (const name in this.#object) if (name !== this.#names[count++]) this.#wasEncoded = false;
    if (!this.#wasEncoded || count !== this.#names.length) this.#names = [];
  }

  /** An object that tells when it is encoded: the client reads it through an object that inherits from it, others do not. */
  #anew(headers: Headers): Headers {
    const object = { ...headers };
    this.#object = object;
    this.#names = Object.keys(object);
    const [first] = this.#names;
    if (first === undefined) return object;
    let value = object[first];
    const encoded = (): void => void (this.#wasEncoded = true);
    return Object.defineProperty(object, first, {
      get(this: unknown) {
        if (this !== object) encoded();
        return value;
      },
      set(given: unknown) {
        value = given;
      },
    });
  }
}
