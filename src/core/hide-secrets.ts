const HIDDEN = "…";

/**
 * The beginning of a URL of any scheme. `file:` URLs stay, for they are what stack traces consist of, and so do hosts with a
 * port, such as `postgres:5432`. Looked for by its colon, then backwards: from each letter on, it would be read again and again.
 */
const URL_START =
  /(?::\/\/(?<=[a-z][a-z0-9+.-]*:\/\/)(?<!(?<![a-z0-9+.-])file:\/\/)|\b(?:jdbc|postgres(?:ql)?|mongodb(?:\+srv)?|amqps?|rediss?|nats|mysql|mariadb|kafka):(?!\d+\b)\/?(?!\/))(?=[^\s,…])/gi;
/** The rest of a URL that has no password, or of what follows the password. */
const URL_REST = /[^\s"'`<>]*[^\s"'`<>,.;:)]/y;

/** `password=…` and `password: "…"`, as in the connection strings of libpq and in printed objects. */
const PASSWORD_PAIR =
  /((?:password|passwd|passphrase|pwd|secret|token)["'`]?\s*[=:]\s*)(?:'(?:[^'\\]|\\[^])*'|"(?:[^"\\]|\\[^])*"|`[^`]*`|[^\s,;&'"`]+)/gi;

/**
 * Takes URLs and passwords out of a text about a failure, also one that a driver, a broker or a configuration wrote.
 */
export function hideSecrets(text: string): string {
  return hideUrls(text).replaceAll(PASSWORD_PAIR, (_, name: string) => `${name}${HIDDEN}`);
}

/** A URL goes up to the last "@" of the text, if there is one behind it: a password may hold blanks, slashes and more. */
function hideUrls(text: string): string {
  const behindPassword = text.lastIndexOf("@") + 1;
  let shown = "";
  let end = 0;
  for (const { 0: start, index } of text.matchAll(URL_START)) {
    if (index < end) continue;
    const from = index + start.length;
    URL_REST.lastIndex = Math.max(from, behindPassword);
    const hasRest = URL_REST.test(text);
    if (!hasRest && behindPassword <= from) continue;
    shown += `${text.slice(end, from)}${HIDDEN}`;
    end = hasRest ? URL_REST.lastIndex : behindPassword;
    URL_REST.lastIndex = 0;
  }
  return shown + text.slice(end);
}
