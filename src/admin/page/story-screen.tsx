import type { VNode } from "preact";
import { useState } from "preact/hooks";
import type { StoryAnswer, StoryNode, StoryRelay } from "../page-api.ts";
import { ContentsView } from "./contents-view.tsx";
import { useNow } from "./live.ts";
import { useMay, usePage } from "./page-context.ts";
import { Command, copyText, Empty, Loading, Missing, Problem, Status, Text, Time } from "./parts.tsx";
import { href, type Params } from "./route.ts";
import { shellWord } from "../../core/pasted.ts";
import { useLoaded } from "./server.ts";
import { exactly, formatMs, plural, visible } from "./words.ts";

/** One message as a tree over services, with a timeline beside it. */
export function StoryScreen({ params }: { params: Params }): VNode {
  const id = params["id"] ?? "";
  const { value, error, reload } = useLoaded<StoryAnswer>("story", { id });
  const [copied, setCopied] = useState(false);
  if (id === "") {
    return (
      <>
        <h1>Story</h1>
        <Empty title="Which message?">
          <p>Find one by its key, its id or whatever is known of it, and open it.</p>
          <a class="button" href={href("messages")}>
            Look for a message
          </a>
        </Empty>
      </>
    );
  }
  const copy = (): void => {
    void copyText(JSON.stringify(value, null, 2)).then(() => {
      setCopied(true);
      setTimeout(() => setCopied(false), 1500);
    });
  };
  return (
    <>
      <h1>
        Story of <Text text={id} most={60} />
      </h1>
      {error === undefined ? null : <Problem error={error} onRetry={reload} />}
      {value === undefined ? (
        error === undefined ? (
          <Loading />
        ) : null
      ) : (
        <>
          <Missing missing={value.missing} />
          {value.roots.length === 0 ? (
            <Empty title="No store has this message.">
              <p>It was never committed, or its retention is over. An archive may have it.</p>
            </Empty>
          ) : (
            <>
              <p class="faint">
                {plural(nodesOf(value.roots).length, "message")} of the correlation{" "}
                <a href={href("messages", { correlation: value.correlationId ?? "" })}>
                  <Text text={value.correlationId} most={60} />
                </a>
                {value.cut ? ". There are more than are shown here" : ""}.{" "}
                <button type="button" class="quiet" onClick={copy}>
                  {copied ? "Copied" : "Copy as JSON"}
                </button>{" "}
                <button type="button" class="quiet" onClick={reload}>
                  Look again
                </button>
              </p>
              <div class="story">
                <div class="tree">
                  {value.roots.map((node) => (
                    <Node key={`${node.store}/${node.id}`} node={node} asked={value.asked} onChange={reload} />
                  ))}
                </div>
                <Timeline roots={value.roots} />
              </div>
              <p class="same">
                <span class="faint">The command that shows the same</span>
                <Command text={`txbox story ${shellWord(value.asked)}`} />
              </p>
            </>
          )}
        </>
      )}
    </>
  );
}

function nodesOf(roots: readonly StoryNode[]): StoryNode[] {
  return roots.flatMap((node) => [node, ...nodesOf(node.children)]);
}

function Node({ node, asked, onChange }: { node: StoryNode; asked: string; onChange: () => void }): VNode {
  const { session } = usePage();
  const now = useNow(5000);
  const { store, relays, receipts, contents, traceId, createdAt } = node;
  return (
    <article class={`node ${node.id === asked ? "asked" : ""}`} data-row>
      <header>
        <h2>
          <a href={href("story", { id: node.id })}>
            <Text text={node.type} most={60} />
          </a>
        </h2>
        <span class="faint">
          <Text text={node.aggregate ?? node.key} most={40} none="no key" /> · <Text text={node.id} most={40} />
        </span>
      </header>
      <ol class="steps">
        {store === null ? null : (
          <li>
            <b>Enqueued</b> in {visible(store)}, stream <Text text={node.stream} most={40} />,{" "}
            {node.key === null ? (
              "without a key"
            ) : (
              <>
                key{" "}
                <a href={href("messages", { key: node.key })}>
                  <Text text={node.key} most={40} />
                </a>
              </>
            )}
            , <Time at={createdAt} now={now} />
            {node.position === null ? "" : `, position ${node.position}`}
            {node.deliverAt === null ? null : (
              <>
                , to be delivered <Time at={node.deliverAt} now={now} />
              </>
            )}
          </li>
        )}
        {relays.map((step) => (
          <RelayStep key={`${step.store}/${step.relay}`} step={step} node={node} onChange={onChange} />
        ))}
        {receipts.map((receipt) => (
          <li key={`${receipt.store}/${receipt.consumer}`}>
            <b>Consumer {visible(receipt.consumer)}</b> in {visible(receipt.store)} <Status status={receipt.status} />{" "}
            <After at={receipt.processedAt} since={createdAt} />
            {receipt.attempts > 1
              ? `${receipt.processedAt === null ? "after" : ","} ${plural(receipt.attempts, "attempt")}`
              : ""}
            {receipt.lastError === null ? null : (
              <Errors errors={[{ at: receipt.receivedAt, error: receipt.lastError }]} since={createdAt} />
            )}
          </li>
        ))}
        {receipts.length === 0 && relays.some(({ status }) => status === "published") ? (
          <li class="faint">No consumer of these stores has a receipt of it.</li>
        ) : null}
      </ol>
      <ContentsView contents={contents} />
      {traceId === null || session.traceUrl === null ? null : (
        <a href={`${session.traceUrl}${traceId}`} target="_blank" rel="noreferrer noopener">
          Open its trace
        </a>
      )}
      {node.children.length === 0 ? null : (
        <div class="children">
          <p class="faint">caused</p>
          {node.children.map((child) => (
            <Node key={`${child.store}/${child.id}`} node={child} asked={asked} onChange={onChange} />
          ))}
        </div>
      )}
    </article>
  );
}

function RelayStep({ step, node, onChange }: { step: StoryRelay; node: StoryNode; onChange: () => void }): VNode {
  const { ask } = usePage();
  const may = useMay();
  const { store, relay, status, attempts, publishedAt, errors } = step;
  const { position } = node;
  return (
    <li>
      <b>{relay === null ? "No relay" : `Relay ${visible(relay)}`}</b>
      {store === node.store ? "" : ` in ${visible(store)}`} <Status status={status} />{" "}
      <After at={publishedAt} since={node.createdAt} />
      {attempts < 2 ? "" : `${publishedAt === null ? "after" : ","} ${plural(attempts, "attempt")}`}
      <Errors errors={errors} since={node.createdAt} />
      {status === "dead" && relay !== null && position !== null && store === node.store ? (
        <span class="inline-actions">
          <a class="button" href={href("dead", { store, relay, letter: position })}>
            Open the dead letter
          </a>
          {may("requeue") ? (
            <button
              type="button"
              data-action="requeue"
              onClick={() =>
                ask({
                  title: "Requeue this message",
                  request: { action: "requeue", store, choice: { relay, position } },
                  onDone: onChange,
                })
              }
            >
              Requeue
            </button>
          ) : null}
        </span>
      ) : null}
    </li>
  );
}

function After({ at, since }: { at: number | null; since: number | null }): VNode | null {
  if (at === null) return null;
  return <span title={exactly(at)}>{since === null ? "" : `after ${formatMs(at - since)}`}</span>;
}

function Errors({
  errors,
  since,
}: {
  errors: readonly { at: number | null; error: string }[];
  since: number | null;
}): VNode | null {
  if (errors.length === 0) return null;
  return (
    <ul class="errors">
      {errors.map(({ at, error }, i) => (
        <li key={i}>
          {at === null ? null : (
            <span class="faint" title={exactly(at)}>
              {since === null ? "" : `after ${formatMs(at - since)} `}
            </span>
          )}
          <Text text={error} most={300} />
        </li>
      ))}
    </ul>
  );
}

interface Moment {
  at: number;
  text: string;
  level: string;
}

function momentsOf(roots: readonly StoryNode[]): Moment[] {
  const all = nodesOf(roots).flatMap(({ type, createdAt, relays, receipts }): Moment[] => [
    ...(createdAt === null ? [] : [{ at: createdAt, text: `${type} enqueued`, level: "plain" }]),
    ...relays.flatMap(({ relay, publishedAt, errors }): Moment[] => [
      ...errors.flatMap(({ at }) => (at === null ? [] : [{ at, text: `${type} failed at ${relay}`, level: "bad" }])),
      ...(publishedAt === null ? [] : [{ at: publishedAt, text: `${type} published by ${relay}`, level: "good" }]),
    ]),
    ...receipts.flatMap(({ consumer, processedAt }): Moment[] =>
      processedAt === null ? [] : [{ at: processedAt, text: `${type} handled by ${consumer}`, level: "good" }],
    ),
  ]);
  return all.toSorted((a, b) => a.at - b.at);
}

function Timeline({ roots }: { roots: readonly StoryNode[] }): VNode {
  const moments = momentsOf(roots).slice(0, 200);
  const first = moments[0]?.at ?? 0;
  return (
    <aside class="timeline" aria-label="Timeline">
      <h2>Timeline</h2>
      <ol>
        {moments.map(({ at, text, level }, i) => (
          <li key={i} class={level}>
            <span class="when" title={exactly(at)}>
              {i === 0 ? new Date(at).toLocaleTimeString() : `+${formatMs(at - first)}`}
            </span>
            <Text text={text} most={80} />
          </li>
        ))}
      </ol>
    </aside>
  );
}
