import type { VNode } from "preact";
import { useState } from "preact/hooks";
import type { MessagesAnswer, MessageView } from "../page-api.ts";
import { useNow } from "./live.ts";
import { relayNames, usePage } from "./page-context.ts";
import { More, usePages } from "./pages.tsx";
import { Choice, Empty, Loading, Missing, Problem, Status, Text, Time } from "./parts.tsx";
import { change, href, type Params } from "./route.ts";
import { type Column, Rows } from "./rows.tsx";
import { useLoaded } from "./server.ts";
import { exactly, plural, visible } from "./words.ts";

const STATUSES = ["scheduled", "pending", "processing", "published", "retrying", "dead"];
const SPANS = [
  { value: "15m", title: "15 minutes" },
  { value: "1h", title: "hour" },
  { value: "24h", title: "day" },
  { value: "7d", title: "week" },
];
const SPAN_MS: Readonly<Record<string, number>> = {
  "15m": 900_000,
  "1h": 3_600_000,
  "24h": 86_400_000,
  "7d": 604_800_000,
};
/** Filters that hold a text. */
const TEXTS = ["id", "key", "aggregate", "correlation", "stream", "type"] as const;

/** Finds a message by anything that is known of it. */
export function MessagesScreen({ params }: { params: Params }): VNode {
  const { session, live } = usePage();
  const span = params["span"] ?? "";
  const since = useSince(span);
  const asked = {
    q: params["q"],
    store: params["store"],
    relay: params["relay"],
    status: params["status"],
    since,
    ...Object.fromEntries(TEXTS.map((name) => [name, params[name]])),
  };
  const first = useLoaded<MessagesAnswer>("messages", asked);
  const all = usePages("messages", asked, first.value);
  const messages = all.pages.flatMap((page) => page.messages);
  const last = all.pages.at(-1);
  const isFiltered = Object.values(asked).some((value) => value !== undefined && value !== "");
  return (
    <>
      <h1>Messages</h1>
      <div class="chips" role="group" aria-label="Filters">
        {TEXTS.filter((name) => params[name] !== undefined).map((name) => (
          <span key={name} class="chip on">
            <span>
              {name} <b>{visible(params[name] ?? "").slice(0, 60)}</b>
            </span>
            <button
              type="button"
              aria-label={`Remove the filter ${name}`}
              onClick={() => change({ [name]: undefined })}
            >
              ×
            </button>
          </span>
        ))}
        <TextFilter />
        <Choice
          label="status"
          value={params["status"] ?? ""}
          options={[{ value: "", title: "any" }, ...STATUSES.map((value) => ({ value, title: value }))]}
          onChange={(status) => change({ status })}
        />
        <Choice
          label="relay"
          value={params["relay"] ?? ""}
          options={[
            { value: "", title: "any" },
            ...relayNames(live.overview, params["store"]).map((value) => ({ value, title: visible(value) })),
          ]}
          onChange={(relay) => change({ relay })}
        />
        <Choice
          label="enqueued in the last"
          value={span}
          options={[{ value: "", title: "any time" }, ...SPANS]}
          onChange={(value) => change({ span: value })}
        />
        {session.stores.length < 2 ? null : (
          <Choice
            label="store"
            value={params["store"] ?? ""}
            options={[{ value: "", title: "all" }, ...session.stores.map((value) => ({ value, title: value }))]}
            onChange={(store) => change({ store })}
          />
        )}
      </div>
      {first.error === undefined ? null : <Problem error={first.error} onRetry={first.reload} />}
      {first.value === undefined && first.error === undefined ? <Loading /> : null}
      {last === undefined ? null : (
        <>
          <Missing missing={last.missing} />
          {messages.length === 0 ? (
            <NothingFound isFiltered={isFiltered} hasMore={last.next !== null} />
          ) : (
            <MessageRows messages={messages} severalStores={session.stores.length > 1} />
          )}
          <div class="faint foot">
            {messages.length === 0
              ? ""
              : `${plural(messages.length, "row")}, one for each message and relay, newest first. `}
            {last.lookedBackTo === null ? "" : `Looked back to ${exactly(last.lookedBackTo)}. `}
            <More of={all} words="Look further back" />
          </div>
        </>
      )}
    </>
  );
}

/** A time that stays while the span does, so that the same question is not asked again and again. */
function useSince(span: string): string | undefined {
  const [since, setSince] = useState<{ span: string; at: string }>();
  const ms = SPAN_MS[span];
  if (ms === undefined) return undefined;
  if (since?.span === span) return since.at;
  const at = new Date(Date.now() - ms).toISOString();
  setSince({ span, at });
  return at;
}

function TextFilter(): VNode {
  const [name, setName] = useState("type");
  const [value, setValue] = useState("");
  const add = (event: Event): void => {
    event.preventDefault();
    if (value.trim() !== "") change({ [name]: value.trim() });
    setValue("");
  };
  return (
    <form class="chip add" onSubmit={add}>
      <select aria-label="Field to filter by" value={name} onChange={(event) => setName(event.currentTarget.value)}>
        {TEXTS.map((one) => (
          <option key={one}>{one}</option>
        ))}
      </select>
      <input
        aria-label="Value to filter by"
        placeholder="is…"
        value={value}
        onInput={(event) => setValue(event.currentTarget.value)}
      />
      <button type="submit">Add</button>
    </form>
  );
}

function NothingFound({ isFiltered, hasMore }: { isFiltered: boolean; hasMore: boolean }): VNode {
  if (hasMore) {
    return (
      <Empty title="Nothing found so far.">
        <p>Only a part was looked at yet. Look further back, or narrow it down.</p>
      </Empty>
    );
  }
  if (isFiltered) {
    return (
      <Empty title="No message fits.">
        <p>
          The search box takes an id, a key, an aggregate such as <code>order:4711</code>, a correlation or a type,
          written exactly as it was enqueued. Messages past their retention are gone.
        </p>
      </Empty>
    );
  }
  return (
    <Empty title="There are no messages yet.">
      <p>A service enqueues one in its own transaction. Once that commits, it shows up here.</p>
    </Empty>
  );
}

export function MessageRows({
  messages,
  severalStores,
}: {
  messages: readonly MessageView[];
  severalStores: boolean;
}): VNode {
  const now = useNow(5000);
  const columns: Column<MessageView>[] = [
    { title: "type", width: "minmax(8rem, 2fr)", cell: ({ type }) => <Text text={type} most={40} /> },
    { title: "status", width: "6.5rem", cell: ({ status }) => <Status status={status} /> },
    { title: "key", width: "minmax(6rem, 1.5fr)", cell: ({ key }) => <Text text={key} most={30} none="no key" /> },
    {
      title: "aggregate",
      width: "minmax(6rem, 1.5fr)",
      wide: true,
      cell: ({ aggregate }) => <Text text={aggregate} most={30} />,
    },
    {
      title: "relay",
      width: "minmax(7.5rem, 1.2fr)",
      cell: ({ relay }) => <Text text={relay} most={30} none="none yet" />,
    },
    ...(severalStores
      ? [{ title: "store", width: "6rem", cell: ({ store }: MessageView) => <Text text={store} most={20} /> }]
      : []),
    { title: "enqueued", width: "7.5rem", align: "right", cell: ({ createdAt }) => <Time at={createdAt} now={now} /> },
    { title: "attempts", width: "5.5rem", align: "right", wide: true, cell: ({ attempts }) => attempts },
    {
      title: "id or error",
      width: "minmax(10rem, 3fr)",
      wide: true,
      cell: ({ id, lastError }) => <Text text={lastError ?? id} most={70} />,
    },
  ];
  return (
    <Rows
      label="Messages"
      items={messages}
      columns={columns}
      rowKey={({ store, id, relay }) => `${store}/${id}/${relay}`}
      href={({ store, id }) => href("story", { store, id })}
    />
  );
}
