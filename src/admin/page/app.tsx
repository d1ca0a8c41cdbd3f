import type { VNode } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { PageSession } from "../page-api.ts";
import { ActionDialog } from "./action-dialog.tsx";
import { DeadScreen } from "./dead-screen.tsx";
import { DoctorScreen } from "./doctor-screen.tsx";
import { KEYS, listenToKeys } from "./keys.ts";
import { type Live, useLive, useNow } from "./live.ts";
import { MessagesScreen } from "./messages-screen.tsx";
import { OverviewScreen } from "./overview-screen.tsx";
import { type Asked, Page } from "./page-context.ts";
import { Loading, Problem, Sign, Span } from "./parts.tsx";
import { RelaysScreen } from "./relays-screen.tsx";
import { go, href, type Route, type Screen, useRoute } from "./route.ts";
import { get, isRefusal, post, type ServerError, SIGNED_OUT } from "./server.ts";
import { StoryScreen } from "./story-screen.tsx";
import { count, exactly, visible } from "./words.ts";

const NAV: readonly { screen: Screen; title: string }[] = [
  { screen: "", title: "Overview" },
  { screen: "messages", title: "Messages" },
  { screen: "dead", title: "Dead letters" },
  { screen: "relays", title: "Relays" },
  { screen: "doctor", title: "Doctor" },
];

/** Asks who it is first; then the six screens. */
export function App(): VNode {
  const [session, setSession] = useState<PageSession>();
  const [error, setError] = useState<ServerError>();
  const load = (): void => {
    setError(undefined);
    get<PageSession>("session").then(setSession, (failed: ServerError) => {
      // What was shown before is not for this person any more.
      if (isRefusal(failed)) setSession(undefined);
      setError(failed);
    });
  };
  useEffect(() => {
    load();
    addEventListener(SIGNED_OUT, load);
    return () => removeEventListener(SIGNED_OUT, load);
  }, []);
  useEffect(() => {
    const color = session?.color;
    if (color != null) document.documentElement.style.setProperty("--environment", color);
  }, [session]);
  if (session === undefined) {
    return <main>{error === undefined ? <Loading /> : <Problem error={error} onRetry={load} />}</main>;
  }
  return session.tokenNeeded ? <SignIn onDone={load} /> : <Signed session={session} onSignOut={load} />;
}

function SignIn({ onDone }: { onDone: () => void }): VNode {
  const [token, setToken] = useState("");
  const [error, setError] = useState<ServerError>();
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    try {
      await post("sign-in", { token });
      onDone();
    } catch (failed) {
      setError(failed as ServerError);
    }
  };
  return (
    <main class="sign-in">
      <h1>txbox</h1>
      <form onSubmit={(event) => void submit(event)}>
        <label>
          Token
          <input
            type="password"
            required
            autocomplete="current-password"
            value={token}
            onInput={(event) => setToken(event.currentTarget.value)}
          />
        </label>
        {error === undefined ? null : <Problem error={error} />}
        <button type="submit" class="main">
          Open the page
        </button>
      </form>
    </main>
  );
}

function Signed({ session, onSignOut }: { session: PageSession; onSignOut: () => void }): VNode {
  const live = useLive();
  const route = useRoute();
  const [asked, setAsked] = useState<Asked>();
  const [done, setDone] = useState<Done>();
  const [help, setHelp] = useState(false);
  useEffect(() => listenToKeys({ onHelp: () => setHelp(true) }), []);
  const level = live.overview?.verdict.level;
  useEffect(() => {
    const sign = live.lostSince !== null ? "? " : level === "bad" ? "✕ " : level === "attention" ? "! " : "";
    document.title = `${sign}${titleOf(route.screen)} · ${visible(session.title)}`;
  }, [route, level, live.lostSince, session]);
  useEffect(() => {
    if (done === undefined) return undefined;
    const timer = setTimeout(() => setDone(undefined), done.undo === undefined ? 8000 : 30_000);
    return () => clearTimeout(timer);
  }, [done]);
  return (
    <Page.Provider value={{ session, live, ask: setAsked }}>
      <a class="skip" href="#content">
        To the content
      </a>
      <Top session={session} live={live} route={route} onHelp={() => setHelp(true)} onSignOut={onSignOut} />
      <Lost since={live.lostSince} />
      <main id="content" class={live.lostSince === null ? "" : "stale"}>
        <Shown route={route} />
      </main>
      <div class="done" role="status" aria-live="polite">
        {done === undefined ? null : <DoneWords done={done} onUndo={setAsked} />}
      </div>
      {asked === undefined ? null : (
        <ActionDialog
          asked={asked}
          onEnd={(words) => {
            setAsked(undefined);
            if (words !== undefined) setDone({ words, undo: undoOf(asked, session) });
          }}
        />
      )}
      {help ? <Help onEnd={() => setHelp(false)} /> : null}
    </Page.Provider>
  );
}

/** What was done, and what undoes it. */
interface Done {
  words: string;
  undo: Asked | undefined;
}

/** A pause and its end undo each other. What else can be undone has its place elsewhere: a redrive is stopped, an edit is edited. */
function undoOf({ request: { action, store, relay = "" } }: Asked, { may }: PageSession): Asked | undefined {
  const opposite = action === "pause" ? "resume" : action === "resume" ? "pause" : undefined;
  if (opposite === undefined || !may.includes(opposite)) return undefined;
  const title = `${opposite === "pause" ? "Pause" : "Resume"} relay ${relay}`;
  return { title, request: { action: opposite, store, relay } };
}

function DoneWords({ done: { words, undo }, onUndo }: { done: Done; onUndo: (asked: Asked) => void }): VNode {
  return (
    <p>
      {visible(words)}{" "}
      {undo === undefined ? null : (
        <button type="button" onClick={() => onUndo(undo)}>
          Undo…
        </button>
      )}
    </p>
  );
}

function titleOf(screen: Screen): string {
  return screen === "story" ? "Story" : (NAV.find((one) => one.screen === screen)?.title ?? "Overview");
}

function Shown({ route: { screen, params } }: { route: Route }): VNode {
  switch (screen) {
    case "messages":
      return <MessagesScreen params={params} />;
    case "story":
      return <StoryScreen params={params} />;
    case "dead":
      return <DeadScreen params={params} />;
    case "relays":
      return <RelaysScreen params={params} />;
    case "doctor":
      return <DoctorScreen />;
    case "":
      return <OverviewScreen />;
  }
}

interface TopProps {
  session: PageSession;
  live: Live;
  route: Route;
  onHelp: () => void;
  onSignOut: () => void;
}

function Top({ session, live, route, onHelp, onSignOut }: TopProps): VNode {
  const dead = live.overview?.stores.flatMap(({ relays }) => relays).reduce((sum, relay) => sum + relay.dead, 0) ?? 0;
  const isOn = (screen: Screen): boolean =>
    route.screen === screen || (screen === "messages" && route.screen === "story");
  const signOut = (): void => void post("sign-out", {}).then(onSignOut, onSignOut);
  return (
    <header class="top">
      <a class="brand" href={href("")}>
        {visible(session.title)}
      </a>
      <nav aria-label="Screens">
        {NAV.map(({ screen, title }) => (
          <a key={screen} href={href(screen)} {...(isOn(screen) ? { "aria-current": "page" as const } : {})}>
            {title.split(" ")[0]}
            <span class="long">{title.includes(" ") ? ` ${title.split(" ")[1]}` : ""}</span>
            {screen === "dead" && dead > 0 ? <span class="number">{count(dead)}</span> : null}
          </a>
        ))}
      </nav>
      <Search route={route} />
      <span class="tools">
        {session.may.length === 0 ? <span class="status plain">read-only</span> : null}
        <span class={`live ${live.lostSince === null ? "" : "lost"}`}>
          {live.lostSince === null ? (live.overview === undefined ? "connecting" : "live") : "not live"}
        </span>
        <button type="button" class="quiet" onClick={onHelp} aria-label="Keys">
          ?
        </button>
        {session.canSignOut ? (
          <button type="button" class="quiet" onClick={signOut}>
            Sign out
          </button>
        ) : null}
      </span>
    </header>
  );
}

function Search({ route }: { route: Route }): VNode {
  const inUrl = route.screen === "messages" ? (route.params["q"] ?? "") : "";
  const [text, setText] = useState(inUrl);
  useEffect(() => setText(inUrl), [inUrl]);
  const submit = (event: Event): void => {
    event.preventDefault();
    const filters = route.screen === "messages" ? route.params : {};
    go(href("messages", { ...filters, q: text.trim() }));
  };
  return (
    <form role="search" class="search" onSubmit={submit}>
      <input
        id="search"
        type="search"
        aria-label="Search messages by id, key, aggregate, correlation or type"
        placeholder="id, key, order:4711, correlation, type"
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
      />
    </form>
  );
}

function Lost({ since }: { since: number | null }): VNode | null {
  const now = useNow();
  if (since === null) return null;
  return (
    <div class="lost-banner" role="alert">
      <Sign level="bad" />
      <span>
        Not connected since <time title={exactly(since)}>{new Date(since).toLocaleTimeString()}</time>, for{" "}
        <Span since={since} now={now} />. What you see is from then. It is tried again every few seconds.
      </span>
    </div>
  );
}

function Help({ onEnd }: { onEnd: () => void }): VNode {
  return (
    <dialog
      aria-labelledby="help-title"
      ref={(box) => {
        if (box !== null && !box.open) box.showModal();
      }}
      onClose={onEnd}
    >
      <h2 id="help-title">Keys</h2>
      <dl class="facts">
        {KEYS.map(([keys, what]) => (
          <>
            <dt key={keys}>
              <kbd>{keys}</kbd>
            </dt>
            <dd key={what}>{what}</dd>
          </>
        ))}
      </dl>
      <div class="buttons">
        <button type="button" onClick={onEnd}>
          Close
        </button>
      </div>
    </dialog>
  );
}
