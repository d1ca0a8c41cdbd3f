import type { PlainMigration } from "./migration.ts";

const PATH = "set search_path = pg_catalog, pg_temp";

/** Ends the call. The code is invalid_parameter_value, and the parameter is told as the column of the error. */
function refuse(field: string, message: string, hint: string, code = "22023"): string {
  return `raise exception using errcode = '${code}', column = '${field}', message = ${message}, hint = '${hint}';`;
}

/** A text as the outbox checks it; half a surrogate pair and NUL cannot come here. */
function checkText(field: string, value: string, most: number): string {
  return `if ${value} = '' then
    ${refuse(field, `'${field} is empty'`, `Give ${field} a value, or leave it out if it is optional`)}
  elsif octet_length(${value}) > ${most} then
    ${refuse(field, `format('${field} has %s bytes, at most ${most} fit', octet_length(${value}))`, `Shorten ${field}`)}
  end if;`;
}

function require(field: string, hint: string): string {
  return `if ${field} is null then
    ${refuse(field, `'${field} is null'`, hint)}
  end if;`;
}

function checkHeader(name: string, most: number): string {
  return `if headers ? '${name}' and jsonb_typeof(headers -> '${name}') <> 'string' then
      ${refuse("headers", `'headers.${name} must be a string'`, "Give it as a string, or leave it out")}
    end if;
    ${checkText(`headers.${name}`, `headers ->> '${name}'`, most).replaceAll(`column = 'headers.${name}'`, "column = 'headers'")}`;
}

/**
 * Functions for writers that are not the outbox: other languages, triggers, psql. Their names carry a version; the
 * parameters and the meaning of a version never change. They run with the rights of their caller.
 */
export const enqueueFromSql: PlainMigration = {
  version: 12,
  name: "enqueue_from_sql",
  sql: `
-- The lane of a key: FNV-1a over the UTF-16 code units of the text, mixed once more. Part of the stored format.
create function "txbox"."lane_of"(key text) returns smallint
language plpgsql immutable strict parallel safe ${PATH} as $txbox_lane_of$
declare
  bytes bytea := convert_to(key, 'UTF8');
  n integer := octet_length(bytes);
  i integer := 0;
  unit integer;
  hash bigint := 2166136261;
begin
  while i < n loop
    unit := get_byte(bytes, i);
    if unit < 128 then
      i := i + 1;
    elsif unit < 224 then
      unit := ((unit & 31) << 6) | (get_byte(bytes, i + 1) & 63);
      i := i + 2;
    elsif unit < 240 then
      unit := ((unit & 15) << 12) | ((get_byte(bytes, i + 1) & 63) << 6) | (get_byte(bytes, i + 2) & 63);
      i := i + 3;
    else
      -- Two units: the character lies beyond the first 65536.
      unit := (((unit & 7) << 18) | ((get_byte(bytes, i + 1) & 63) << 12) | ((get_byte(bytes, i + 2) & 63) << 6)
        | (get_byte(bytes, i + 3) & 63)) - 65536;
      hash := ((hash # (55296 + (unit >> 10))) * 16777619) & 4294967295;
      unit := 56320 + (unit & 1023);
      i := i + 4;
    end if;
    hash := ((hash # unit) * 16777619) & 4294967295;
  end loop;
  hash := hash # (hash >> 16);
  -- Only 19 bits of the product count, and those depend on as many of the factors.
  hash := ((hash & 524287) * 2246822507) & 524287;
  return (hash # (hash >> 13)) & 63;
end
$txbox_lane_of$;

-- Enqueues a message in the caller's transaction, with the checks and the defaults of the outbox. Gives its id, or null
-- when a message with the chosen id was enqueued before and nothing was written.
create function "txbox"."enqueue_v1"(
  stream text, type text, payload anycompatible, key text default null, aggregate_type text default null,
  aggregate_id text default null, headers jsonb default null, id text default null, deliver_at timestamptz default null,
  max_payload_bytes integer default 1048576
) returns text language plpgsql ${PATH} as $txbox_enqueue_v1$
declare
  given_type regtype := pg_typeof(payload);
  is_later boolean := coalesce(deliver_at > statement_timestamp(), false);
  content_type text;
  correlation text;
  document text;
  bytes bytea;
  head text;
  new_id text := id;
  new_key text := coalesce(key, aggregate_id);
  new_lane smallint;
  new_size integer;
begin
  ${require("stream", "Pass stream => …, the topic of the message")}
  ${checkText("stream", "stream", 200)}
  if starts_with(stream, 'inbox.') then
    ${refuse("stream", `format('Stream "%s" is kept for what a stored inbox has received', stream)`, "Use another name")}
  end if;
  ${require("type", "Pass type => …, what happened")}
  ${checkText("type", "type", 200)}
  ${checkText("id", "id", 200)}
  ${checkText("aggregate_type", "aggregate_type", 200)}
  ${checkText("aggregate_id", "aggregate_id", 1024)}
  ${checkText("key", "key", 1024)}
  if deliver_at > '9999-12-31 00:00:00+00' or deliver_at = '-infinity' then
    ${refuse("deliver_at", "'deliver_at lies beyond the year 9999 or is infinite'", "Leave it out to deliver at once")}
  end if;

  if headers is not null then
    if jsonb_typeof(headers) <> 'object' then
      ${refuse("headers", "format('headers must be a JSON object, got %s', jsonb_typeof(headers))", "Pass an object of names and values")}
    end if;
    ${checkHeader("correlationId", 1024)}
    ${checkHeader("traceparent", 200)}
    ${checkHeader("contentType", 200)}
    -- The strict mode of a path wraps nothing: what is no array of pairs of strings is found.
    if headers ? 'causationPath' and (jsonb_typeof(headers -> 'causationPath') <> 'array' or jsonb_path_exists(
      headers -> 'causationPath', 'strict $[*] ? (@.type() != "array" || @.size() != 2 || @[*].type() != "string")'))
    then
      ${refuse("headers", "'headers.causationPath must be an array of [module, type] pairs'", "Leave it out")}
    end if;
    content_type := headers ->> 'contentType';
    correlation := headers ->> 'correlationId';
    headers := headers - 'correlationId';
  end if;

  if num_nulls(payload) = 1 then
    ${refuse("payload", "'payload is null'", "For the value null of JSON pass the text null")}
  elsif given_type = 'bytea'::regtype then
    bytes := payload;
    if content_type is null then
      headers := coalesce(headers, '{}') || '{"contentType": "application/octet-stream"}';
    end if;
  elsif given_type not in ('text'::regtype, 'varchar'::regtype, 'json'::regtype, 'jsonb'::regtype) then
    ${refuse("payload", "format('payload is of type %s', given_type)", "Pass json, jsonb, JSON as text, or bytea; to_jsonb(…) makes JSON of any value")}
  elsif content_type is null or content_type ~* '^(application/json|text/json|[^;]*[+]json)[[:space:]]*(;|$)' then
    document := payload;
  elsif given_type in ('text'::regtype, 'varchar'::regtype) then
    bytes := convert_to(payload, 'UTF8');
  else
    ${refuse("payload", "format('payload is %s, but its contentType is %s', given_type, content_type)", "Pass text or bytea, or leave contentType out")}
  end if;
  new_size := octet_length(coalesce(bytes, convert_to(document, 'UTF8')));
  if new_size > max_payload_bytes then
    ${refuse("payload", "format('payload has %s bytes, at most %s are allowed', new_size, max_payload_bytes)", "Store the data elsewhere and enqueue a reference, or raise max_payload_bytes", "54000")}
  end if;

  if headers <> '{}' then
    head := headers;
    if octet_length(head) > 65536 then
      ${refuse("headers", "format('headers have %s bytes, at most 65536 fit', octet_length(head))", "Move data into the payload")}
    end if;
    new_size := new_size + octet_length(head);
  end if;
  -- Without a key there is no order.
  new_lane := coalesce("txbox"."lane_of"(new_key), floor(random() * 64));
  if new_id is null then
    -- A UUIDv7. That of a later message carries the time of its delivery, as receipts are kept by the time inside an id.
    new_id := lpad(to_hex(floor(extract(epoch from case when is_later then deliver_at else clock_timestamp() end) * 1000)::bigint), 12, '0');
    new_id := substr(new_id, 1, 8) || '-' || substr(new_id, 9) || '-7' || substr(gen_random_uuid()::text, 16);
  else
    insert into "txbox"."enqueued_id" (id) values (new_id) on conflict do nothing;
    if not found then
      return null;
    end if;
  end if;
  if is_later then
    insert into "txbox"."scheduled" (id, size, lane, stream, type, key, aggregate_type, aggregate_id, correlation_id, headers, payload, body, deliver_at)
      values (new_id, new_size, new_lane, $1, $2, new_key, $5, $6, correlation, head::json, document::json, bytes, $9) on conflict do nothing;
    if not found then
      return null;
    end if;
  else
    insert into "txbox"."message" (id, size, lane, stream, type, key, aggregate_type, aggregate_id, correlation_id, headers, payload, body)
      values (new_id, new_size, new_lane, $1, $2, new_key, $5, $6, correlation, head::json, document::json, bytes);
  end if;
  return new_id;
end
$txbox_enqueue_v1$;

-- Takes back a message whose time has not come. Its id is free again. False: it is too late, or there is no such message.
create function "txbox"."cancel_v1"(id text) returns boolean language sql ${PATH} as $txbox_cancel_v1$
  with gone as (delete from "txbox"."scheduled" s where s.id = $1 returning s.id),
    freed as (delete from "txbox"."enqueued_id" e using gone where e.id = gone.id)
  select exists (select from gone)
$txbox_cancel_v1$;
`,
};
