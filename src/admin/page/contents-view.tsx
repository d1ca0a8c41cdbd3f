import type { VNode } from "preact";
import type { Contents, Shown } from "../page-api.ts";
import { count, visible } from "./words.ts";

/** Body and headers of a message, folded. */
export function ContentsView({ contents, title = "Body and headers" }: { contents: Contents; title?: string }): VNode {
  const { kind, body, headers, masked } = contents;
  if (kind === "hidden") return <p class="faint">{body.text}.</p>;
  return (
    <details class="contents">
      <summary>{title}</summary>
      {masked ? <p class="faint">Some values are masked: what is shown is not what is stored.</p> : null}
      <h4>{kind === "base64" ? "Body, in base64" : "Body"}</h4>
      <Whole shown={body} unit={kind === "base64" ? "bytes" : "characters"} />
      <h4>Headers</h4>
      <Whole shown={headers} unit="characters" />
    </details>
  );
}

function Whole({ shown: { text, length }, unit }: { shown: Shown; unit: string }): VNode {
  return (
    <>
      <pre tabIndex={0}>{visible(text, { lines: true })}</pre>
      {length === null ? null : (
        <p class="faint">
          The beginning of {count(length)} {unit}.
        </p>
      )}
    </>
  );
}
