import type { VNode } from "preact";
import { useState } from "preact/hooks";
import type { Cause, ConsumerView, History, HistorySeries, JobView, Overview, RelayView } from "../page-api.ts";
import { rememberedActor } from "./actor.ts";
import { Chart, type Line } from "./chart.tsx";
import { useNow } from "./live.ts";
import { useMay, usePage } from "./page-context.ts";
import { Command, Empty, Loading, Problem, Sign, Span, Spark, Text, Time } from "./parts.tsx";
import { href, hrefOf } from "./route.ts";
import { type Column, Rows } from "./rows.tsx";
import { post, type ServerError } from "./server.ts";
import { count, formatMs, rate, visible } from "./words.ts";

/** Whether messages leave; if not, which relay or consumer, since when, why, and what to do. */
export function OverviewScreen(): VNode {
  const { live } = usePage();
  const { overview, history } = live;
  if (overview === undefined) return <Loading />;
  const relays = overview.stores.flatMap((store) => store.relays);
  const consumers = overview.stores.flatMap((store) => store.consumers);
  return (
    <>
      <h1 class="unseen">Overview</h1>
      <VerdictBlock overview={overview} />
      <Jobs jobs={overview.jobs} />
      <section aria-labelledby="relays-title">
        <h2 id="relays-title">Relays</h2>
        {relays.length === 0 ? <NoRelay /> : <Relays relays={relays} history={history} overview={overview} />}
      </section>
      <section aria-labelledby="consumers-title">
        <h2 id="consumers-title">Consumers</h2>
        {consumers.length === 0 ? (
          <Empty title="No consumer of these stores has handled a message today.">
            <p>A service that receives messages through an inbox shows up here by itself.</p>
          </Empty>
        ) : (
          <Consumers consumers={consumers} history={history} overview={overview} />
        )}
      </section>
      {history === undefined || relays.length === 0 ? null : <Charts history={history} />}
    </>
  );
}

function NoRelay(): VNode {
  return (
    <Empty title="No relay has run yet.">
      <p>A relay publishes what services enqueue. Start one, and it shows up here:</p>
      <Command text="txbox relay NAME" />
    </Empty>
  );
}

const MOST_CAUSES = 12;

/** The headline is the worst cause: it leads there, and the first row says why without saying it again. */
function VerdictBlock({ overview: { verdict } }: { overview: Overview }): VNode {
  const now = useNow();
  const { live } = usePage();
  const { causes } = verdict;
  // What was well when the connection was lost may not be so now.
  const level = live.lostSince === null ? verdict.level : "unknown";
  const text = live.lostSince === null ? verdict.text : `Not known now. Before: ${verdict.text}`;
  const link = causes[0]?.link ?? null;
  return (
    <section class={`verdict ${level}`} aria-live="polite" aria-label="Verdict">
      <p class="verdict-text">
        <Sign level={level} />
        {link === null ? <span>{visible(text)}</span> : <a href={hrefOf(link)}>{visible(text)}</a>}
      </p>
      {causes.length === 0 ? null : (
        <ul class="causes">
          {causes.slice(0, MOST_CAUSES).map((cause, i) => (
            <CauseRow
              key={`${cause.link} ${cause.text.replaceAll(/\d/g, "")}`}
              cause={cause}
              isFirst={i === 0}
              now={now}
            />
          ))}
          {causes.length > MOST_CAUSES ? <li class="faint">and {causes.length - MOST_CAUSES} more</li> : null}
        </ul>
      )}
    </section>
  );
}

function CauseRow({
  cause: { level, text, so, link, command, since },
  isFirst,
  now,
}: {
  cause: Cause;
  isFirst: boolean;
  now: number;
}): VNode {
  // Some say so themselves.
  const span =
    since === null || text.includes(" for ") ? null : (
      <span class="faint">
        {isFirst ? "For " : "for "}
        <Span since={since} now={now} />
        {isFirst && so !== null ? ": " : ""}
      </span>
    );
  const why = so === null ? null : <Text text={so} most={240} />;
  return (
    <li>
      {isFirst ? null : <Sign level={level} />}
      <div class="cause">
        {isFirst ? (
          <p>
            {span}
            {why}
          </p>
        ) : (
          <>
            <p>
              {link === null ? visible(text) : <a href={hrefOf(link)}>{visible(text)}</a>} {span}
            </p>
            {why === null ? null : <p class="faint">{why}</p>}
          </>
        )}
      </div>
      {command === null ? null : <Command text={command} />}
    </li>
  );
}

export function Jobs({ jobs }: { jobs: readonly JobView[] }): VNode | null {
  const may = useMay();
  if (jobs.length === 0) return null;
  return (
    <section aria-labelledby="jobs-title">
      <h2 id="jobs-title">Redrives</h2>
      <ul class="jobs">
        {jobs.map((job) => (
          <li key={job.id}>
            <span class={`status ${job.state === "failed" ? "bad" : job.state === "waiting" ? "attention" : "plain"}`}>
              {job.state}
            </span>
            <span>
              {count(job.requeued)}
              {job.of === null ? "" : ` of ${count(job.of)}`} requeued; <Text text={job.words} />
            </span>
            {job.of === null ? null : <progress max={job.of} value={job.requeued} aria-label="Letters requeued" />}
            <span class="faint">by {visible(job.actor)}</span>
            {job.endedAt === null && may("requeue") ? <StopJob job={job} /> : null}
          </li>
        ))}
      </ul>
    </section>
  );
}

/** One click: what goes wrong should not go on while a form is filled in. Noted under the name that was given before. */
function StopJob({ job }: { job: JobView }): VNode {
  const { session } = usePage();
  const [error, setError] = useState<ServerError>();
  const actor = rememberedActor() || "(no name given)";
  const stop = (): void => {
    setError(undefined);
    post("stop", { job: job.id, ...(session.actor === null ? { actor } : {}) }).catch(setError);
  };
  return (
    <>
      <button type="button" onClick={stop}>
        Stop
      </button>
      {error === undefined ? null : <Problem error={error} />}
    </>
  );
}

const SPARK_MS = 10 * 60_000;
/** Processes tell of ten seconds when they are over: of the last of them little is known yet. */
const UNTOLD_MS = 20_000;
/** A young system has its history over the whole width. */
const SHORTEST_MS = 10 * 60_000;

function sparkOf(history: History | undefined, store: string, relay: string | null, consumer: string | null): number[] {
  const until = (history?.until ?? Date.now()) - UNTOLD_MS;
  const series = history?.series.find((one) => one.store === store && one.relay === relay && one.consumer === consumer);
  const points = Array.from({ length: 60 }, () => 0);
  for (const [at, done] of series?.points ?? []) {
    const i = 60 - Math.ceil((until - at) / (SPARK_MS / 60));
    if (i >= 0 && i < 60) points[i] = done;
  }
  return points;
}

function Relays({
  relays,
  history,
  overview,
}: {
  relays: readonly RelayView[];
  history: History | undefined;
  overview: Overview;
}): VNode {
  const columns: Column<RelayView>[] = [
    {
      title: "relay",
      width: "minmax(10rem, 2.6fr)",
      cell: ({ name, store, level }) => (
        <>
          <Sign level={level} />
          {visible(name)}
          {overview.stores.length > 1 ? <span class="faint"> in {visible(store)}</span> : null}
        </>
      ),
    },
    { title: "state", width: "minmax(13rem, 2fr)", line: true, cell: ({ words }) => <Text text={words} /> },
    { title: "in", width: "5rem", align: "right", cell: ({ inPerSecond }) => rate(inPerSecond) },
    { title: "out", width: "5rem", align: "right", cell: ({ outPerSecond }) => rate(outPerSecond) },
    {
      title: "10 min",
      width: "7rem",
      wide: true,
      cell: ({ store, name }) => (
        <Spark
          points={sparkOf(history, store, name, null)}
          label={`Messages that ${visible(name)} published in the last ten minutes`}
        />
      ),
    },
    { title: "lag", width: "5rem", align: "right", cell: ({ lagMs }) => (lagMs === null ? "0 s" : formatMs(lagMs)) },
    {
      title: "pending",
      width: "6rem",
      align: "right",
      cell: ({ pending, pendingEstimated }) => `${pendingEstimated ? "~" : ""}${count(pending)}`,
    },
    {
      title: "blocked keys",
      width: "7rem",
      align: "right",
      cell: ({ blockedKeys, store, name }) =>
        blockedKeys === 0 ? (
          "0"
        ) : (
          <a href={href("dead", { tab: "blocked", store, relay: name })}>{count(blockedKeys)}</a>
        ),
    },
    {
      title: "dead",
      width: "5rem",
      align: "right",
      cell: ({ dead, store, name }) =>
        dead === 0 ? "0" : <a href={href("dead", { store, relay: name })}>{count(dead)}</a>,
    },
    { title: "processes", width: "6rem", align: "right", cell: ({ processes }) => count(processes.length) },
  ];
  return (
    <Rows
      label="Relays"
      items={relays}
      columns={columns}
      rowKey={({ store, name }) => `${store}/${name}`}
      href={({ store, name }) => href("relays", { store, relay: name })}
    />
  );
}

function Consumers({
  consumers,
  history,
  overview,
}: {
  consumers: readonly ConsumerView[];
  history: History | undefined;
  overview: Overview;
}): VNode {
  const now = useNow(5000);
  const columns: Column<ConsumerView>[] = [
    {
      title: "consumer",
      width: "minmax(9rem, 1.6fr)",
      cell: ({ name, store, level }) => (
        <>
          <Sign level={level} />
          {visible(name)}
          {overview.stores.length > 1 ? <span class="faint"> in {visible(store)}</span> : null}
        </>
      ),
    },
    { title: "state", width: "minmax(13rem, 2fr)", line: true, cell: ({ words }) => <Text text={words} /> },
    { title: "handled", width: "5rem", align: "right", cell: ({ perSecond }) => rate(perSecond) },
    {
      title: "10 min",
      width: "7rem",
      wide: true,
      cell: ({ store, name }) => (
        <Spark
          points={sparkOf(history, store, null, name)}
          label={`Messages that ${visible(name)} handled in the last ten minutes`}
        />
      ),
    },
    {
      title: "failed receipts",
      width: "8rem",
      align: "right",
      cell: ({ failed }) => (failed === null ? <span class="faint">not counted</span> : count(failed)),
    },
    {
      title: "last error",
      width: "minmax(10rem, 3fr)",
      wide: true,
      cell: ({ lastError, lastErrorAt }) =>
        lastError === null ? (
          <span class="faint">none today</span>
        ) : (
          <>
            <Time at={lastErrorAt} now={now} />: <Text text={lastError} most={80} />
          </>
        ),
    },
  ];
  return (
    <Rows label="Consumers" items={consumers} columns={columns} rowKey={({ store, name }) => `${store}/${name}`} />
  );
}

function nameOf({ store, relay, consumer }: HistorySeries, several: boolean): string {
  const name = visible(relay ?? `${consumer} (consumer)`);
  return several ? `${name} in ${visible(store)}` : name;
}

function Charts({ history }: { history: History }): VNode {
  const { series, marks, since, until } = history;
  const several = new Set(series.map(({ store }) => store)).size > 1;
  const throughput = series
    .filter(({ relay }) => relay !== null)
    .map((one): Line => ({
      name: nameOf(one, several),
      points: one.points.map(([at, done]) => [at, done / 10] as const),
    }));
  const lag = series
    .filter((one) => one.lag.length > 0)
    .map((one): Line => ({ name: nameOf(one, several), points: one.lag.map(([at, ms]) => [at, ms / 1000] as const) }));
  const perMinute = new Map<number, number>();
  // What a consumer rejects is a dead letter of its relay: it counts there.
  for (const one of series.filter(({ relay }) => relay !== null))
    for (const [at, , , dead] of one.points) {
      const minute = Math.floor(at / 60_000) * 60_000;
      perMinute.set(minute, (perMinute.get(minute) ?? 0) + dead);
    }
  const dead = [...perMinute].filter(([, n]) => n > 0);
  const told = until - UNTOLD_MS;
  const begin = Math.min(told - SHORTEST_MS, ...series.flatMap(({ points }) => points[0]?.[0] ?? []));
  const common = { marks, since: Math.max(since, begin), until: told };
  return (
    <section aria-labelledby="charts-title">
      <h2 id="charts-title">The last hour</h2>
      <div class="charts">
        <Chart
          title="Messages published in a second"
          lines={throughput}
          format={(n) => count(Math.round(n * 10) / 10)}
          {...common}
        />
        <Chart
          title="Lag, while a page was open"
          lines={lag}
          format={(n) => formatMs(n * 1000)}
          {...common}
          until={until + 10_000}
          gaps
        />
        <Chart
          title="Dead letters in a minute"
          lines={dead.length === 0 ? [] : [{ name: "dead letters", points: dead }]}
          format={(n) => count(Math.round(n))}
          bars
          alarm
          {...common}
        />
      </div>
      {marks.length === 0 ? null : (
        <p class="faint">
          Dotted lines:{" "}
          {marks
            .slice(-3)
            .map(({ at, text }) => `${visible(text)} at ${new Date(at).toLocaleTimeString()}`)
            .join("; ")}
          .
        </p>
      )}
    </section>
  );
}
