/** Builds `where` clauses with text parameters. */
export class Conditions {
  readonly params: string[] = [];
  readonly #parts: string[] = [];

  add(value: string | undefined, sql: (parameter: string) => string): this {
    if (value !== undefined) this.#parts.push(sql(this.parameter(value)));
    return this;
  }

  and(sql: string): this {
    this.#parts.push(sql);
    return this;
  }

  parameter(value: string): string {
    return `$${this.params.push(value)}::text`;
  }

  get where(): string {
    return this.#parts.length === 0 ? "" : `where ${this.#parts.join(" and ")}`;
  }
}
