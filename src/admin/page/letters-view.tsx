import type { VNode } from "preact";
import { useState } from "preact/hooks";
import type { LetterAnswer, LetterChoice, LettersAnswer, LetterView } from "../page-api.ts";
import { ContentsView } from "./contents-view.tsx";
import { useFollowed } from "./followed.ts";
import { useNow } from "./live.ts";
import { MessageRows } from "./messages-screen.tsx";
import { useMay, usePage } from "./page-context.ts";
import { More, usePages } from "./pages.tsx";
import { Empty, Loading, Problem, Status, Text, Time } from "./parts.tsx";
import { href, type Params } from "./route.ts";
import { type Column, Rows } from "./rows.tsx";
import { useLoaded } from "./server.ts";
import { plural } from "./words.ts";

/** How often a letter is asked for that waits for its relay, or may die again. */
const UNDER_WAY_MS = 2000;
const STATES = ["dead", "requeued", "discarded"];

/** The letters of a group or a state, or one of them. */
export function LettersView({ params }: { params: Params }): VNode {
  return params["letter"] === undefined ? <Letters params={params} /> : <Letter params={params} />;
}

function Letters({ params }: { params: Params }): VNode {
  const { session, ask } = usePage();
  const may = useMay();
  const now = useNow(5000);
  const store = params["store"] ?? session.stores[0] ?? "";
  const { relay, group, state = "dead" } = params;
  const asked = { store, relay, group, state };
  const { value, error, reload } = useLoaded<LettersAnswer>("letters", asked);
  const all = usePages("letters", asked, value);
  const letters = all.pages.flatMap((page) => page.letters);
  useFollowed(reload, "dead", letters.some(({ command }) => command !== null) ? UNDER_WAY_MS : undefined);
  const choice: LetterChoice = {
    ...(relay === undefined ? {} : { relay }),
    ...(group === undefined ? { all: true } : { group }),
  };
  const request = (action: "requeue" | "discard", one: LetterChoice): void =>
    ask({
      title: action === "requeue" ? "Requeue dead letters" : "Discard dead letters",
      request: { action, store, choice: one },
      onDone: reload,
    });
  const oneOf = ({ relay: of, position }: LetterView): LetterChoice => ({ relay: of, position });
  const [first] = letters;
  const columns: Column<LetterView>[] = [
    { title: "letter", width: "minmax(9rem, 2fr)", cell: ({ id }) => <Text text={id} most={40} /> },
    { title: "key", width: "minmax(6rem, 1fr)", cell: ({ key }) => <Text text={key} most={30} none="no key" /> },
    {
      title: "error",
      width: "minmax(12rem, 4fr)",
      line: true,
      cell: ({ lastError }) => <Text text={lastError} most={90} />,
    },
    { title: "attempts", width: "5.5rem", align: "right", wide: true, cell: ({ attempts }) => attempts },
    { title: "died", width: "6.5rem", align: "right", cell: ({ diedAt }) => <Time at={diedAt} now={now} /> },
    {
      title: "do",
      width: "7.5rem",
      align: "right",
      cell: (letter) =>
        letter.command !== null ? (
          <span class="faint">{letter.command} waits</span>
        ) : letter.state === "dead" && may("requeue") ? (
          <button type="button" data-action="requeue" onClick={() => request("requeue", oneOf(letter))}>
            Requeue
          </button>
        ) : (
          <Status status={letter.state} />
        ),
    },
  ];
  return (
    <>
      <p class="back">
        <a href={href("dead", { store: params["store"], relay })}>All groups</a>
      </p>
      <nav class="tabs small" aria-label="State of the letters">
        {STATES.map((one) => (
          <a
            key={one}
            href={href("dead", { ...params, store, state: one })}
            {...(one === state ? { "aria-current": "page" as const } : {})}
          >
            {one}
          </a>
        ))}
      </nav>
      {first === undefined || group === undefined ? null : (
        <div class="panel">
          <p class="lead">
            <Text text={first.lastError} most={400} />
          </p>
          <p class="faint">
            Letters of type <Text text={first.type} most={60} /> at relay <Text text={first.relay} most={60} />.
          </p>
          {state !== "dead" ? null : (
            <div class="buttons">
              {may("discard") ? (
                <button type="button" onClick={() => request("discard", choice)}>
                  Discard all…
                </button>
              ) : null}
              {may("requeue") ? (
                <>
                  <button type="button" onClick={() => request("requeue", oneOf(first))}>
                    Requeue one, to see whether it works
                  </button>
                  <button type="button" class="main" onClick={() => request("requeue", choice)}>
                    Requeue all…
                  </button>
                </>
              ) : null}
            </div>
          )}
        </div>
      )}
      {error === undefined ? null : <Problem error={error} onRetry={reload} />}
      {value === undefined && error === undefined ? <Loading /> : null}
      {value !== undefined && letters.length === 0 ? (
        <Empty title={state === "dead" ? "None left of these." : `No letter is ${state}.`}>
          <a class="button" href={href("dead")}>
            All groups
          </a>
        </Empty>
      ) : null}
      {letters.length === 0 ? null : (
        <Rows
          label="Dead letters"
          items={letters}
          columns={columns}
          rowKey={({ relay: of, position }) => `${of}/${position}`}
          href={({ relay: of, position }) =>
            href("dead", { store, relay: of, ...(group === undefined ? {} : { group }), letter: position })
          }
        />
      )}
      {all.next === null ? null : (
        <div class="foot">
          <More of={all} words="Show more" />
        </div>
      )}
    </>
  );
}

function Letter({ params }: { params: Params }): VNode {
  const { session, ask } = usePage();
  const may = useMay();
  const now = useNow(5000);
  const store = params["store"] ?? session.stores[0] ?? "";
  const { relay, group, letter: position = "" } = params;
  const { value, error, reload } = useLoaded<LetterAnswer>("letter", { store, relay, position });
  const [editing, setEditing] = useState(false);
  const isUnderWay = value !== undefined && (value.letter.command !== null || value.letter.state === "requeued");
  useFollowed(reload, "dead", isUnderWay ? UNDER_WAY_MS : undefined);
  const back = (
    <p class="back">
      <a href={href("dead", { store, relay, ...(group === undefined ? {} : { group }) })}>
        {group === undefined ? "All groups" : "All letters of the group"}
      </a>
    </p>
  );
  if (value === undefined) {
    return (
      <>
        {back}
        {error === undefined ? <Loading /> : <Problem error={error} onRetry={reload} />}
      </>
    );
  }
  const { letter, contents, original, waiting, notEditable } = value;
  const choice: LetterChoice = { relay: letter.relay, position: letter.position };
  const isOpen = letter.state === "dead" && letter.command === null;
  const act = (action: "requeue" | "discard", title: string): void =>
    ask({ title, request: { action, store, choice }, onDone: reload });
  return (
    <>
      {back}
      <div class="panel" data-row>
        <h2>
          <Text text={letter.type} most={80} /> <Status status={letter.state} />
          {letter.edited ? <span class="status attention">edited</span> : null}
        </h2>
        <p class="lead">
          <Text text={letter.lastError} most={400} />
        </p>
        <dl class="facts">
          <dt>id</dt>
          <dd>
            <a href={href("story", { store, id: letter.id })}>
              <Text text={letter.id} most={80} />
            </a>
          </dd>
          <dt>key</dt>
          <dd>
            <Text text={letter.key} most={80} none="none: it holds up nothing" />
          </dd>
          <dt>relay</dt>
          <dd>
            <Text text={letter.relay} most={80} />, position {letter.position}
          </dd>
          <dt>died</dt>
          <dd>
            <Time at={letter.diedAt} now={now} />, after {plural(letter.attempts, "attempt")}
          </dd>
        </dl>
        {letter.command === null ? null : (
          <p>
            <b>{letter.command}</b> is written and waits for the relay to carry it out.
          </p>
        )}
        {isOpen && may("edit") && notEditable !== null ? <p class="faint">{notEditable}.</p> : null}
        <div class="buttons">
          {isOpen && may("discard") ? (
            <button type="button" onClick={() => act("discard", "Discard a dead letter")}>
              Discard…
            </button>
          ) : null}
          {isOpen && may("edit") && notEditable === null ? (
            <button type="button" onClick={() => setEditing(!editing)}>
              {editing ? "Close the editor" : "Edit…"}
            </button>
          ) : null}
          {isOpen && may("requeue") ? (
            <button
              type="button"
              class="main"
              data-action="requeue"
              onClick={() => act("requeue", "Requeue a dead letter")}
            >
              Requeue
            </button>
          ) : null}
        </div>
      </div>
      {editing ? (
        <Editor
          contents={contents}
          onSave={(edited) =>
            ask({
              title: "Edit a dead letter",
              request: { action: "edit", store, choice, ...edited },
              onDone: () => {
                setEditing(false);
                reload();
              },
            })
          }
        />
      ) : null}
      <section>
        <h2>
          {plural(letter.errors.length, "error")} that {letter.errors.length === 1 ? "is" : "are"} known
        </h2>
        <ol class="errors">
          {letter.errors.map(({ at, error: text }, i) => (
            <li key={i}>
              <span class="faint">
                <Time at={at} now={now} />
              </span>{" "}
              <Text text={text} most={400} />
            </li>
          ))}
        </ol>
      </section>
      <ContentsView contents={contents} title={letter.edited ? "Body and headers, as edited" : "Body and headers"} />
      {original === null ? null : <ContentsView contents={original} title="The original" />}
      {waiting === null ? null : (
        <section>
          <h2>
            {waiting.length === 0
              ? "Nothing waits behind it"
              : `What waits behind it: ${waiting.length < 50 ? "" : "at least "}${plural(waiting.length, "message")}`}
          </h2>
          {waiting.length === 0 ? null : <MessageRows messages={waiting} severalStores={false} />}
        </section>
      )}
    </>
  );
}

function Editor({
  contents,
  onSave,
}: {
  contents: LetterAnswer["contents"];
  /** Only what is different. */
  onSave: (change: { payload?: string; headers?: string }) => void;
}): VNode {
  const [payload, setPayload] = useState(contents.body.text);
  const [headers, setHeaders] = useState(contents.headers.text);
  const wrong = whyNoJson("The body", payload) ?? whyNoJson("Headers", headers);
  const change = {
    ...(payload === contents.body.text ? {} : { payload }),
    ...(headers === contents.headers.text ? {} : { headers }),
  };
  const isSame = Object.keys(change).length === 0;
  return (
    <div class="panel editor">
      <label>
        Body
        <textarea
          rows={12}
          spellcheck={false}
          value={payload}
          onInput={(event) => setPayload(event.currentTarget.value)}
        />
      </label>
      <label>
        Headers
        <textarea
          rows={6}
          spellcheck={false}
          value={headers}
          onInput={(event) => setHeaders(event.currentTarget.value)}
        />
      </label>
      <p class="faint">Headers that say where it came from stay as they are: correlation, cause and trace.</p>
      {wrong === undefined ? null : <p role="status">{wrong}</p>}
      <div class="buttons">
        <button type="button" class="main" disabled={wrong !== undefined || isSame} onClick={() => onSave(change)}>
          Keep these contents…
        </button>
      </div>
    </div>
  );
}

function whyNoJson(what: string, text: string): string | undefined {
  try {
    JSON.parse(text);
    return undefined;
  } catch (error) {
    return `${what} must be JSON: ${(error as Error).message}`;
  }
}
