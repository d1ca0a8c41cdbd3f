import type { VNode } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { shellWord } from "../../core/pasted.ts";
import { type ActionAnswer, type ActionPreview, type ActionRequest, WITH_REASON } from "../page-api.ts";
import { rememberActor, rememberedActor } from "./actor.ts";
import { type Asked, usePage } from "./page-context.ts";
import { Command, Loading, Problem } from "./parts.tsx";
import { post, type ServerError } from "./server.ts";
import { plural, visible } from "./words.ts";

const RATES = ["1", "10", "100", "1000"];

/** Asks in words, with the number in it: who, why, and whether. */
export function ActionDialog({ asked, onEnd }: { asked: Asked; onEnd: (done: string | undefined) => void }): VNode {
  const { session } = usePage();
  const { request, title } = asked;
  const box = useRef<HTMLDialogElement>(null);
  const [preview, setPreview] = useState<ActionPreview>();
  const [error, setError] = useState<ServerError>();
  const [actor, setActor] = useState(session.actor ?? rememberedActor());
  const [reason, setReason] = useState("");
  const [perSecond, setPerSecond] = useState("");
  const [busy, setBusy] = useState(false);
  const needsReason = WITH_REASON.includes(request.action);
  const isGrave = ["discard", "drop", "rewind"].includes(request.action);
  useEffect(() => {
    box.current?.showModal();
    post<ActionPreview>("preview", request).then(setPreview, setError);
  }, []);
  useEffect(() => {
    const first = needsReason ? "#ask-reason" : "#ask-sure";
    box.current?.querySelector<HTMLElement>(actor === "" ? "#ask-actor" : first)?.focus();
  }, [preview]);
  const whole: ActionRequest = {
    ...request,
    ...(perSecond === "" ? {} : { perSecond: Number(perSecond) }),
    ...(isLetters(request) && preview?.count != null && !preview.more ? { atMost: Math.max(1, preview.count) } : {}),
    ...(session.actor === null ? { actor } : {}),
    ...(reason === "" ? {} : { reason }),
  };
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    setBusy(true);
    setError(undefined);
    if (session.actor === null) rememberActor(actor);
    try {
      const { done } = await post<ActionAnswer>("act", whole);
      asked.onDone?.();
      onEnd(done);
    } catch (failed) {
      setError(failed as ServerError);
      setBusy(false);
    }
  };
  const many = request.action === "requeue" && (preview?.count ?? 0) > 1;
  const rated =
    many && perSecond !== ""
      ? `${preview?.command.replace("dead requeue", "dead redrive")} --rate ${perSecond}`
      : (preview?.command ?? "");
  const who = session.actor ?? actor;
  const named = who === "" ? rated : `${rated} --actor ${shellWord(who)}`;
  const command = reason === "" ? named : `${named} --reason ${shellWord(reason)}`;
  return (
    <dialog ref={box} aria-labelledby="ask-title" onClose={() => onEnd(undefined)} onCancel={() => onEnd(undefined)}>
      <form onSubmit={(event) => void submit(event)}>
        <h2 id="ask-title">{visible(title)}</h2>
        {preview === undefined && error === undefined ? <Loading /> : null}
        {preview === undefined ? null : (
          <>
            <p class="question">{visible(preview.question)}</p>
            {preview.notes.map((note) => (
              <p key={note} class="faint">
                {visible(note)}
              </p>
            ))}
            {many ? (
              <label>
                How fast
                <select value={perSecond} onChange={(event) => setPerSecond(event.currentTarget.value)}>
                  <option value="">All at once</option>
                  {RATES.map((rate) => (
                    <option key={rate} value={rate}>
                      {rate} in a second, and wait while the target is out
                    </option>
                  ))}
                </select>
              </label>
            ) : null}
            {session.actor === null ? (
              <label>
                Your name
                <input
                  id="ask-actor"
                  required
                  maxLength={100}
                  autocomplete="name"
                  value={actor}
                  onInput={(event) => setActor(event.currentTarget.value)}
                />
              </label>
            ) : (
              <p>
                As <b>{visible(session.actor)}</b>
              </p>
            )}
            <label>
              Reason{needsReason ? "" : " (may be empty)"}
              <input
                id="ask-reason"
                required={needsReason}
                maxLength={500}
                value={reason}
                onInput={(event) => setReason(event.currentTarget.value)}
              />
            </label>
            <p class="same">
              <span class="faint">The command that does the same</span>
              <Command text={command} />
            </p>
          </>
        )}
        {error === undefined ? null : <Problem error={error} />}
        <div class="buttons">
          <button type="button" onClick={() => onEnd(undefined)}>
            Cancel
          </button>
          {preview === undefined ? null : (
            <button
              id="ask-sure"
              type="submit"
              class={isGrave ? "grave" : "main"}
              disabled={busy || (isLetters(request) && preview.count === 0)}
            >
              {busy ? "Working…" : sure(request.action, preview)}
            </button>
          )}
        </div>
      </form>
    </dialog>
  );
}

function isLetters({ action }: Pick<ActionRequest, "action">): boolean {
  return action === "requeue" || action === "discard";
}

/** The button says what happens, with the number. */
function sure(action: ActionRequest["action"], { count, more }: ActionPreview): string {
  const letters = count === null || count === 0 ? "them" : `${more ? "more than " : ""}${plural(count, "letter")}`;
  const words: Readonly<Record<ActionRequest["action"], string>> = {
    requeue: `Requeue ${letters}`,
    discard: `Discard ${letters}`,
    edit: "Keep these contents",
    pause: "Pause",
    resume: "Resume",
    rewind: "Rewind",
    drop: "Drop it",
  };
  return words[action];
}
