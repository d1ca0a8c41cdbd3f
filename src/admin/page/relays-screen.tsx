import type { VNode } from "preact";
import { useState } from "preact/hooks";
import type { AdminAction, ConsumerView, RelayView, StoreView } from "../page-api.ts";
import { shellWord } from "../../core/pasted.ts";
import { useNow } from "./live.ts";
import { useMay, usePage } from "./page-context.ts";
import { Command, Empty, Loading, Sign, Span, Text, Time } from "./parts.tsx";
import { href, type Params } from "./route.ts";
import { bytes, count, formatMs, plural, rate, visible } from "./words.ts";

/** Who runs, what each holds, and how to stop, go on or go back. */
export function RelaysScreen({ params }: { params: Params }): VNode {
  const { live } = usePage();
  const { overview } = live;
  if (overview === undefined) return <Loading />;
  const fits = ({ store, name }: { store: string; name: string }, wanted: string | undefined): boolean =>
    (params["store"] === undefined || params["store"] === store) && (wanted === undefined || wanted === name);
  const isOne = params["relay"] !== undefined || params["consumer"] !== undefined;
  const relays =
    params["consumer"] === undefined
      ? overview.stores.flatMap((one) => one.relays).filter((one) => fits(one, params["relay"]))
      : [];
  const consumers =
    params["relay"] === undefined
      ? overview.stores.flatMap((one) => one.consumers).filter((one) => fits(one, params["consumer"]))
      : [];
  return (
    <>
      <h1>Relays</h1>
      {isOne ? (
        <p class="back">
          <a href={href("relays")}>All relays and consumers</a>
        </p>
      ) : null}
      {overview.stores.map(({ name, down }) =>
        down === null ? null : (
          <div key={name} class="problem" role="status">
            <Sign level="bad" />
            <span>
              The store {visible(name)} gives no answer since <Time at={down.since} />. This is what was known last.{" "}
              <Text text={down.error} most={200} />
            </span>
          </div>
        ),
      )}
      {relays.length === 0 && params["consumer"] === undefined ? (
        <Empty title={isOne ? "There is no such relay." : "No relay has run yet."}>
          <p>A relay publishes what services enqueue. Start one, and it shows up here:</p>
          <Command text="txbox relay NAME" />
        </Empty>
      ) : null}
      {relays.map((relay) => (
        <RelayCard key={`${relay.store}/${relay.name}`} relay={relay} several={overview.stores.length > 1} />
      ))}
      {consumers.map((consumer) => (
        <ConsumerCard
          key={`${consumer.store}/${consumer.name}`}
          consumer={consumer}
          several={overview.stores.length > 1}
        />
      ))}
      {isOne ? null : overview.stores.map((store) => <StoreFacts key={store.name} store={store} />)}
    </>
  );
}

function RelayCard({ relay, several }: { relay: RelayView; several: boolean }): VNode {
  const { ask } = usePage();
  const may = useMay();
  const now = useNow();
  const { store, name } = relay;
  const [to, setTo] = useState<string>();
  const act = (action: AdminAction, title: string, point?: string): void =>
    ask({ title, request: { action, store, relay: name, ...(point === undefined ? {} : { to: point }) } });
  return (
    <article class="panel relay" aria-label={`Relay ${visible(name)}`} data-row>
      <header>
        <h2>
          <Sign level={relay.level} />
          <a href={href("relays", { store, relay: name })}>{visible(name)}</a>
          {several ? <span class="faint"> in {visible(store)}</span> : null}
        </h2>
        <p>
          {visible(relay.words)}
          {relay.since === null || / for \d/.test(relay.words) || relay.state === "late" ? null : (
            <span class="faint">
              , for <Span since={relay.since} now={now} />
            </span>
          )}
        </p>
      </header>
      <Lanes relay={relay} />
      {relay.processes.length === 0 ? (
        <p>
          No process runs it now.{" "}
          <Command text={`txbox relay ${shellWord(name)}${several ? ` --store ${shellWord(store)}` : ""}`} />
        </p>
      ) : (
        <ul class="processes">
          {relay.processes.map(({ owner, lanes, leaseMs, since, source }, i) => (
            <li key={owner}>
              <span class={`owner owner-${(i % 6) + 1}`} aria-hidden="true">
                {letterOf(i)}
              </span>
              <Text text={owner} most={90} />
              <span class="faint">
                {plural(lanes, "lane")}, lease ends in {formatMs(leaseMs)}
                {source === null ? "" : source === "stream" ? ", new messages by the database's stream" : `, ${source}`}
                {since === null ? (
                  ""
                ) : (
                  <>
                    , began <Time at={since} now={now} />
                  </>
                )}
              </span>
            </li>
          ))}
        </ul>
      )}
      <dl class="facts">
        <dt>in, out</dt>
        <dd>
          {rate(relay.inPerSecond)}, {rate(relay.outPerSecond)}
        </dd>
        <dt>pending</dt>
        <dd>
          {relay.pendingEstimated ? "about " : ""}
          {count(relay.pending)}
          {relay.lagMs === null ? "" : `, the first for ${formatMs(relay.lagMs)}`}
        </dd>
        <dt>parked</dt>
        <dd>
          {relay.blockedKeys === 0 ? (
            "nothing"
          ) : (
            <>
              {plural(relay.parked, "message")} behind{" "}
              <a href={href("dead", { tab: "blocked", store, relay: name })}>
                {plural(relay.blockedKeys, "blocked key")}
              </a>
            </>
          )}
        </dd>
        <dt>dead</dt>
        <dd>
          {relay.dead === 0 ? (
            "none"
          ) : (
            <a href={href("dead", { store, relay: name })}>{plural(relay.dead, "letter")}</a>
          )}
        </dd>
        <dt>published</dt>
        <dd>{count(Number(relay.published))} in all</dd>
        <dt>streams</dt>
        <dd>
          <Text text={relay.streams === null ? "all of them" : relay.streams.join(", ")} most={120} />
        </dd>
        <dt>retention</dt>
        <dd>
          {relay.holdsBackRetention ? "held back: messages past their time are kept for this relay" : "not held back"}
        </dd>
        <dt>last error</dt>
        <dd>
          {relay.lastError === null ? (
            "none today"
          ) : (
            <>
              <Time at={relay.lastErrorAt} now={now} />: <Text text={relay.lastError} most={200} />
            </>
          )}
        </dd>
      </dl>
      <div class="buttons">
        {may("drop") ? (
          <button type="button" onClick={() => act("drop", `Drop relay ${name}`)}>
            Drop…
          </button>
        ) : null}
        {may("rewind") ? (
          <button
            type="button"
            aria-expanded={to !== undefined}
            onClick={() => setTo(to === undefined ? "earliest" : undefined)}
          >
            Rewind…
          </button>
        ) : null}
        {relay.paused && may("resume") ? (
          <button type="button" class="main" onClick={() => act("resume", `Resume relay ${name}`)}>
            Resume
          </button>
        ) : null}
        {!relay.paused && may("pause") ? (
          <button type="button" onClick={() => act("pause", `Pause relay ${name}`)}>
            Pause…
          </button>
        ) : null}
      </div>
      {to === undefined ? null : (
        <RewindForm to={to} onChange={setTo} onAsk={() => act("rewind", `Rewind relay ${name}`, pointOf(to))} />
      )}
    </article>
  );
}

/** A time in the reader's own zone becomes one that the server takes. */
function pointOf(to: string): string {
  return /^\d{4}-/.test(to) ? new Date(to).toISOString() : to;
}

/** As a field for a time has it: in the reader's own zone. */
function localMinute(at: number): string {
  const time = new Date(at);
  return new Date(at - time.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

function RewindForm({ to, onChange, onAsk }: { to: string; onChange: (to: string) => void; onAsk: () => void }): VNode {
  const isTime = to !== "earliest" && to !== "now";
  return (
    <form
      class="rewind"
      onSubmit={(event) => {
        event.preventDefault();
        onAsk();
      }}
    >
      <label>
        Go on from
        <select
          value={isTime ? "time" : to}
          onChange={({ currentTarget: { value } }) =>
            onChange(value === "time" ? localMinute(Date.now() - 3_600_000) : value)
          }
        >
          <option value="earliest">the earliest message there is: send all again</option>
          <option value="time">a time: send again what was enqueued since</option>
          <option value="now">now: skip what waits</option>
        </select>
      </label>
      {isTime ? (
        <label>
          Time
          <input type="datetime-local" required value={to} onInput={(event) => onChange(event.currentTarget.value)} />
        </label>
      ) : null}
      <button type="submit">See what would be sent…</button>
    </form>
  );
}

function letterOf(i: number): string {
  return String.fromCodePoint(65 + (i % 26));
}

/** 64 lanes by owner: a letter in each, so that the colours are not needed to tell them apart. */
function Lanes({ relay: { processes, freeLanes } }: { relay: RelayView }): VNode {
  const cells = processes.flatMap(({ lanes }, i) => Array.from({ length: lanes }, () => i));
  const label =
    processes.length === 0
      ? "No process holds a lane"
      : `${processes.map(({ lanes }, i) => `process ${letterOf(i)} holds ${plural(lanes, "lane")}`).join(", ")}${freeLanes === 0 ? "" : `, ${freeLanes} free`}`;
  return (
    <div class="lanes" role="img" aria-label={label} title={label}>
      {cells.map((i, n) => (
        <span key={n} class={`owner-${(i % 6) + 1}`}>
          {letterOf(i)}
        </span>
      ))}
      {Array.from({ length: freeLanes }, (_, n) => (
        <span key={`free-${n}`} class="free" />
      ))}
    </div>
  );
}

function ConsumerCard({ consumer, several }: { consumer: ConsumerView; several: boolean }): VNode {
  const now = useNow(5000);
  const { name, store, level, words, perSecond, failed, lastError, lastErrorAt } = consumer;
  return (
    <article class="panel" aria-label={`Consumer ${visible(name)}`} data-row>
      <h2>
        <Sign level={level} />
        {visible(name)} <span class="faint">consumer{several ? ` in ${visible(store)}` : ""}</span>
      </h2>
      <p>{visible(words)}</p>
      <dl class="facts">
        <dt>handled</dt>
        <dd>{rate(perSecond)} in the last minute</dd>
        <dt>failed</dt>
        <dd>
          {failed === null ? "not counted: there are too many receipts" : `${plural(failed, "receipt")} not made good`}
        </dd>
        <dt>last error</dt>
        <dd>
          {lastError === null ? (
            "none today"
          ) : (
            <>
              <Time at={lastErrorAt} now={now} />: <Text text={lastError} most={200} />
            </>
          )}
        </dd>
      </dl>
    </article>
  );
}

function StoreFacts({ store: { name, kind, scheduled, unread, logBytes, receiptBytes } }: { store: StoreView }): VNode {
  return (
    <article class="panel" aria-label={`Store ${visible(name)}`}>
      <h2>
        {visible(name)} <span class="faint">store, {kind}</span>
      </h2>
      <dl class="facts">
        <dt>log</dt>
        <dd>{bytes(logBytes)} with indexes</dd>
        <dt>receipts</dt>
        <dd>{bytes(receiptBytes)}</dd>
        <dt>scheduled</dt>
        <dd>
          {scheduled.estimated ? "about " : ""}
          {plural(scheduled.count, "message")}
          {scheduled.nextAt === null ? null : (
            <>
              , the next <Time at={scheduled.nextAt} />
            </>
          )}
        </dd>
        {unread.length === 0 ? null : (
          <>
            <dt>not read</dt>
            <dd>
              <Text text={unread.map(({ stream }) => stream).join(", ")} most={200} />: no relay reads these streams
            </dd>
          </>
        )}
      </dl>
    </article>
  );
}
