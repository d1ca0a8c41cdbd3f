import { blocks, page } from "./markdown.ts";

const PAGE = page("docs/debezium.md");
const DOCUMENTED = blocks(PAGE);

/** The configuration of the connector as the page has it, for this database. */
export function documentedConnector(url: string): Record<string, string> {
  const { hostname, port, username, password, pathname } = new URL(url);
  return {
    ...jsonOf('"connector.class"'),
    "database.hostname": hostname,
    "database.port": port,
    "database.user": username,
    "database.password": password,
    "database.dbname": decodeURIComponent(pathname.slice(1)),
  };
}

/** What the page changes of it after the slot was lost. */
export function documentedRecovery(): Record<string, string> {
  return jsonOf('"snapshot.mode": "initial"');
}

/** The statement of the page with these words in it, with this value in the place of its example. */
export function documentedSql(words: string, value?: string): string {
  const code = only("sql", words);
  if (value === undefined) return code;
  if (!/'(?:0\/)?4711'/.test(code)) throw new Error(`docs/debezium.md: no example value in "${words}"`);
  return code.replace(/'(?:0\/)?4711'/, `'${value}'`);
}

/** The headers that the router of an outbox table writes, so that consumers of txbox can read its records. */
export function documentedHeaders(): string {
  const [, headers] = /`"table\.fields\.additional\.placement": "([^"]+)"`/.exec(PAGE.text) ?? [];
  if (headers === undefined) throw new Error("docs/debezium.md: no headers for the router of an outbox table");
  return headers;
}

function jsonOf(words: string): Record<string, string> {
  return JSON.parse(only("json", words)) as Record<string, string>;
}

function only(language: string, words: string): string {
  const found = DOCUMENTED.filter((block) => block.language === language && block.code.includes(words));
  if (found.length !== 1) throw new Error(`docs/debezium.md: ${found.length} ${language} blocks with ${words}`);
  return found[0]!.code;
}
