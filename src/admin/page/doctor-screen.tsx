import type { VNode } from "preact";
import type { DoctorAnswer, Level } from "../page-api.ts";
import { shellWord } from "../../core/pasted.ts";
import { useNow } from "./live.ts";
import { usePage } from "./page-context.ts";
import { Command, Empty, Loading, Problem, Sign, Text, Time } from "./parts.tsx";
import { useLoaded } from "./server.ts";
import { plural, visible } from "./words.ts";

const LEVELS: Readonly<Record<string, Level>> = { error: "bad", warning: "attention", info: "unknown" };

/** Commands of ours, each by itself, or advice in words. */
function Fix({ text, store }: { text: string; store?: string }): VNode {
  const parts = text.split(/(?:,|;) or /);
  if (!parts.every((part) => /^txbox (?:dead|relays) [^;]+$/.test(part))) return <Command text={text} prose />;
  const where = store === undefined ? "" : ` --store ${shellWord(store)}`;
  return (
    <>
      {parts.map((part) => (
        <Command key={part} text={`${part}${where}`} />
      ))}
    </>
  );
}

/** Everything that is known to go wrong, with what comes of it and how to mend it. */
export function DoctorScreen(): VNode {
  const { session } = usePage();
  const now = useNow(5000);
  const { value, error, loading, reload } = useLoaded<DoctorAnswer>("doctor", {});
  return (
    <>
      <h1>Doctor</h1>
      <p class="faint">
        {value === undefined ? null : (
          <>
            {plural(value.checks, "check")}, <Time at={value.at} now={now} />.{" "}
          </>
        )}
        <button type="button" disabled={loading} onClick={reload}>
          {loading ? "Looking…" : "Look again"}
        </button>{" "}
        <Command text="txbox doctor" />
      </p>
      {error === undefined ? null : <Problem error={error} onRetry={reload} />}
      {value === undefined && error === undefined ? <Loading /> : null}
      {value !== undefined && value.findings.length === 0 ? (
        <Empty title="Nothing is wrong.">
          <p>The doctor looked at the database, its settings, the relays and their letters.</p>
        </Empty>
      ) : null}
      <ul class="findings">
        {value?.findings.map((finding) => (
          <li key={JSON.stringify([finding.store, finding.check, finding.finding])} class="panel" data-row>
            <h2>
              <Sign level={LEVELS[finding.severity] ?? "unknown"} />
              <Text text={finding.finding} most={400} />
            </h2>
            <p>
              <Text text={finding.consequence} most={400} />
            </p>
            <p class="same">
              <Fix text={finding.fix} {...(session.stores.length > 1 ? { store: finding.store } : {})} />
            </p>
            <p class="faint">
              {visible(finding.check)}
              {session.stores.length > 1 ? ` of ${visible(finding.store)}` : ""}, first seen by this page{" "}
              <Time at={finding.since} now={now} />
            </p>
          </li>
        ))}
      </ul>
    </>
  );
}
