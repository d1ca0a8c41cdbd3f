import type { VNode } from "preact";
import type { BlockedAnswer, BlockedView, ChangesAnswer, ChangeView, GroupsAnswer, GroupView } from "../page-api.ts";
import { shellWord } from "../../core/pasted.ts";
import { useFollowed } from "./followed.ts";
import { LettersView } from "./letters-view.tsx";
import { useNow } from "./live.ts";
import { Jobs } from "./overview-screen.tsx";
import { relayNames, useMay, usePage } from "./page-context.ts";
import { More, usePages } from "./pages.tsx";
import { Choice, Command, Empty, Loading, Missing, Problem, Status, Text, Time } from "./parts.tsx";
import { change, href, type Params } from "./route.ts";
import { type Column, Rows } from "./rows.tsx";
import { useLoaded } from "./server.ts";
import { count, plural, visible } from "./words.ts";

const TABS = [
  { tab: "", title: "Groups" },
  { tab: "blocked", title: "Blocked keys" },
  { tab: "changes", title: "Changes" },
];

/** What died, by cause; what waits; who changed what. */
export function DeadScreen({ params }: { params: Params }): VNode {
  const { live, session } = usePage();
  const tab = params["tab"] ?? "";
  const isInside = params["group"] !== undefined || params["letter"] !== undefined || params["state"] !== undefined;
  return (
    <>
      <h1>Dead letters</h1>
      <nav class="tabs" aria-label="Views of dead letters">
        {TABS.map((one) => (
          <a
            key={one.tab}
            href={href("dead", { tab: one.tab, store: params["store"], relay: params["relay"] })}
            {...(one.tab === tab ? { "aria-current": "page" as const } : {})}
          >
            {one.title}
          </a>
        ))}
      </nav>
      {isInside ? null : (
        <div class="chips" role="group" aria-label="Filters">
          {session.stores.length < 2 ? null : (
            <Choice
              label="store"
              value={params["store"] ?? ""}
              options={[{ value: "", title: "all" }, ...session.stores.map((value) => ({ value, title: value }))]}
              onChange={(store) => change({ store })}
            />
          )}
          <Choice
            label="relay"
            value={params["relay"] ?? ""}
            options={[
              { value: "", title: "any" },
              ...relayNames(live.overview, params["store"]).map((value) => ({ value, title: visible(value) })),
            ]}
            onChange={(relay) => change({ relay })}
          />
          {tab === "" ? (
            <a
              class="chip"
              href={href("dead", {
                store: params["store"] ?? session.stores[0],
                relay: params["relay"],
                state: "requeued",
              })}
            >
              what was requeued
            </a>
          ) : null}
        </div>
      )}
      <Jobs jobs={live.overview?.jobs ?? []} />
      {tab === "blocked" ? (
        <Blocked params={params} />
      ) : tab === "changes" ? (
        <Changes params={params} />
      ) : isInside ? (
        <LettersView params={params} />
      ) : (
        <Groups params={params} />
      )}
    </>
  );
}

const GROWS_MS = 120_000;

function Groups({ params }: { params: Params }): VNode {
  const { session, ask } = usePage();
  const may = useMay();
  const now = useNow(5000);
  const { value, error, reload } = useLoaded<GroupsAnswer>("groups", {
    store: params["store"],
    relay: params["relay"],
  });
  useFollowed(reload, "dead");
  if (error !== undefined && value === undefined) return <Problem error={error} onRetry={reload} />;
  if (value === undefined) return <Loading />;
  const { groups, missing, cut } = value;
  if (groups.length === 0) {
    return (
      <>
        <Missing missing={missing} />
        <Empty title="No dead letters. Every message got through.">
          <p>
            A message that fails again and again, or can never work, is put aside here with its errors, so that others
            go on. Mend the cause, then requeue it.
          </p>
        </Empty>
      </>
    );
  }
  const total = groups.reduce((sum, group) => sum + group.count, 0);
  const about = cut || groups.some(({ estimated }) => estimated) ? "about " : "";
  const columns: Column<GroupView>[] = [
    {
      title: "error",
      width: "minmax(14rem, 5fr)",
      two: true,
      cell: ({ error: text }) => <Text text={text} most={110} />,
    },
    {
      title: "letters",
      width: "5rem",
      align: "right",
      cell: (group) => <b>{`${group.estimated ? "~" : ""}${count(group.count)}`}</b>,
    },
    { title: "type", width: "minmax(7rem, 1.5fr)", cell: ({ type }) => <Text text={type} most={30} /> },
    {
      title: "relay",
      width: session.stores.length > 1 ? "minmax(12.5rem, 1.8fr)" : "minmax(8rem, 1.2fr)",
      line: true,
      cell: ({ relay, store }) => <Text text={session.stores.length > 1 ? `${relay} in ${store}` : relay} most={40} />,
    },
    {
      title: "keys",
      width: "4rem",
      align: "right",
      wide: true,
      cell: ({ keys }) => (keys === null ? "–" : count(keys)),
    },
    {
      title: "first",
      width: "6.5rem",
      align: "right",
      wide: true,
      cell: ({ firstDiedAt }) => <Time at={firstDiedAt} now={now} />,
    },
    {
      title: "last",
      width: "10rem",
      line: true,
      align: "right",
      cell: ({ lastDiedAt }) => (
        <>
          <Time at={lastDiedAt} now={now} />
          {now - lastDiedAt < GROWS_MS ? <span class="status attention">grows</span> : null}
        </>
      ),
    },
    {
      title: "do",
      width: "6.5rem",
      align: "right",
      cell: (group) =>
        may("requeue") ? (
          <button
            type="button"
            data-action="requeue"
            aria-label={`Requeue the ${count(group.count)} letters of ${visible(group.type)}`}
            onClick={() =>
              ask({
                title: "Requeue a group of dead letters",
                request: { action: "requeue", store: group.store, choice: { relay: group.relay, group: group.group } },
                onDone: reload,
              })
            }
          >
            Requeue
          </button>
        ) : (
          ""
        ),
    },
  ];
  return (
    <>
      <Missing missing={missing} />
      <p class="lead">
        {about}
        {plural(total, "dead letter")} of {plural(groups.length, "cause")}
        {groups.length === 1 ? ": all of them have the same cause." : ". Most letters first."}
      </p>
      <Rows
        label="Groups of dead letters"
        items={groups}
        columns={columns}
        rowKey={({ store, relay, group }) => `${store}/${relay}/${group}`}
        href={({ store, relay, group }) => href("dead", { store, relay, group })}
      />
    </>
  );
}

function Blocked({ params }: { params: Params }): VNode {
  const { session } = usePage();
  const now = useNow();
  const store = params["store"] ?? session.stores[0] ?? "";
  const asked = { store, relay: params["relay"], limit: "500" };
  const { value, error, reload } = useLoaded<BlockedAnswer>("blocked", asked);
  const all = usePages("blocked", asked, value);
  useFollowed(reload, "blockedKeys");
  if (error !== undefined && value === undefined) return <Problem error={error} onRetry={reload} />;
  if (value === undefined) return <Loading />;
  const { next } = all;
  const keys = all.pages.flatMap((page) => page.keys);
  if (keys.length === 0) {
    return (
      <Empty title="No key is blocked.">
        <p>
          Messages with one key leave in order: when the first of them fails, the others wait here until it is through.
        </p>
      </Empty>
    );
  }
  const columns: Column<BlockedView>[] = [
    {
      title: "key",
      width: "minmax(7rem, 1.5fr)",
      cell: ({ key, id }) => <Text text={key ?? id} most={40} none="no key" />,
    },
    { title: "waiting", width: "5.5rem", align: "right", cell: ({ waiting }) => <b>{count(waiting)}</b> },
    {
      title: "why",
      width: "minmax(14rem, 4fr)",
      line: true,
      cell: ({ heldByDead, lastError, attempts }) => (
        <>
          {heldByDead ? <Status status="dead" /> : <Status status="retrying" />}{" "}
          <Text text={lastError ?? (attempts === 0 ? "its first attempt takes long" : null)} most={90} />
        </>
      ),
    },
    { title: "relay", width: "minmax(6rem, 1fr)", wide: true, cell: ({ relay }) => <Text text={relay} most={30} /> },
    { title: "since", width: "6.5rem", align: "right", cell: ({ since }) => <Time at={since} now={now} /> },
    {
      title: "next attempt",
      width: "8rem",
      align: "right",
      wide: true,
      cell: ({ nextAttemptAt, heldByDead }) => (heldByDead ? "needs you" : <Time at={nextAttemptAt} now={now} />),
    },
  ];
  const held = keys.filter(({ heldByDead }) => heldByDead).length;
  return (
    <>
      <p class="lead">
        {next === null ? "" : "More than "}
        {plural(keys.length, "key")} {keys.length === 1 ? "waits" : "wait"}
        {held === 0
          ? ", all tried again by themselves."
          : `${held === keys.length ? "" : `, ${count(held)} of them`} until a dead letter is requeued or discarded.`}
      </p>
      <Rows
        label="Blocked keys"
        items={keys}
        columns={columns}
        rowKey={({ relay, stream, key, position }) => JSON.stringify([relay, stream, key, position])}
        href={(key) =>
          key.heldByDead && key.position !== null
            ? href("dead", { store: key.store, relay: key.relay, letter: key.position })
            : href(
                "messages",
                key.key === null ? { id: key.id ?? "" } : { store: key.store, key: key.key, stream: key.stream },
              )
        }
      />
      <div class="foot">
        <More of={all} words="Show more" />{" "}
        <Command text={session.stores.length > 1 ? `txbox blocked --store ${shellWord(store)}` : "txbox blocked"} />
      </div>
    </>
  );
}

function Changes({ params }: { params: Params }): VNode {
  const now = useNow(5000);
  const { value, error, reload } = useLoaded<ChangesAnswer>("changes", {
    store: params["store"],
    relay: params["relay"],
  });
  if (error !== undefined && value === undefined) return <Problem error={error} onRetry={reload} />;
  if (value === undefined) return <Loading />;
  if (value.changes.length === 0)
    return (
      <Empty title="Nothing has been changed.">
        <p>
          Requeued, discarded and edited letters, paused, rewound and dropped relays are noted here, with who and why.
        </p>
      </Empty>
    );
  const columns: Column<ChangeView>[] = [
    { title: "what", width: "6.5rem", cell: ({ action }) => <Text text={action} /> },
    { title: "who", width: "minmax(7rem, 1fr)", cell: ({ actor }) => <Text text={actor} most={40} /> },
    { title: "letters", width: "5rem", align: "right", cell: (one) => (one.count === null ? "–" : count(one.count)) },
    {
      title: "why",
      width: "minmax(10rem, 3fr)",
      line: true,
      cell: ({ reason }) => <Text text={reason} most={80} none="no reason given" />,
    },
    { title: "relay", width: "minmax(6rem, 1fr)", cell: ({ relay }) => <Text text={relay} most={30} /> },
    { title: "when", width: "7rem", align: "right", cell: ({ at }) => <Time at={at} now={now} /> },
  ];
  return <Rows label="Changes" items={value.changes} columns={columns} rowKey={(one) => JSON.stringify(one)} />;
}
