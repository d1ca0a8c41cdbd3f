const HIDDEN = "…";

/**
 * A URL of any scheme with something in it, up to the last "@" of the text: a password may hold blanks, slashes and more.
 * `file:` URLs stay, for they are what stack traces consist of, and so do hosts with a port, such as `postgres:5432`.
 */
const URL_TEXT =
  /\b((?!file:)(?:[a-z][a-z0-9+.-]*:\/\/|(?:jdbc|postgres(?:ql)?|mongodb(?:\+srv)?|amqps?|rediss?|nats|mysql|mariadb|kafka):(?!\d+\b)\/?(?!\/)))(?=[^\s,…])(?:[^]*@)?[^\s"'`<>]*[^\s"'`<>,.;:)]/gi;

/** `password=…` and `password: "…"`, as in the connection strings of libpq and in printed objects. */
const PASSWORD_PAIR =
  /((?:password|passwd|passphrase|pwd|secret|token)["'`]?\s*[=:]\s*)(?:'(?:[^'\\]|\\[^])*'|"(?:[^"\\]|\\[^])*"|`[^`]*`|[^\s,;&'"`]+)/gi;

/** Takes URLs and passwords out of a text about a failure, whoever wrote it: drivers, brokers, configurations. */
export function hideSecrets(text: string): string {
  return text
    .replaceAll(URL_TEXT, (_, scheme: string) => `${scheme}${HIDDEN}`)
    .replaceAll(PASSWORD_PAIR, (_, name: string) => `${name}${HIDDEN}`);
}
