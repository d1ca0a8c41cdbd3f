/**
 * PL/pgSQL that tries statements until their locks can be had at once. A lock that has to be waited for holds up every
 * writer behind it, so each try waits for a fraction of a second, and writers go on before the next one. `declare`,
 * `unless` (an SQL condition: nothing to do) and `unvacuumed` are optional.
 */
export function briefly({ declare = "", unless, unvacuumed, statements }: Brief): string {
  return `do $txbox_do$
declare
  patience integer := 40;
  deadline timestamptz := clock_timestamp() + interval '10 minutes';
  ${declare}
begin
  loop
    ${unless === undefined ? "" : `if ${unless} then return; end if;`}
    begin
      ${unvacuumed === undefined ? "" : withoutVacuum(unvacuumed)}perform set_config('lock_timeout', patience::text, true);
      ${statements}
      return;
    exception when lock_not_available then
      if clock_timestamp() > deadline then
        raise exception using errcode = 'lock_not_available', message = 'txbox: the log was in use for ten minutes by transactions that did not end',
          hint = 'Look for old ones in pg_stat_activity (xact_start) and pg_prepared_xacts, then migrate again: what is done stays done.';
      end if;
    end;
    patience := least(patience * 3 / 2, 300);
    perform pg_sleep(0.2 + random() * 0.3);
  end loop;
end
$txbox_do$;
`;
}

/**
 * An automatic vacuum holds a table for hours, and gives way to a session that waits for longer than deadlock_timeout.
 * This lock keeps out other vacuums too, and neither readers nor writers.
 */
function withoutVacuum(tables: string): string {
  return `perform set_config('lock_timeout', (select (setting::integer + 500)::text from pg_settings where name = 'deadlock_timeout'), true);
      declare
        one regclass;
      begin
        for one in ${tables} loop
          execute format('lock table %s in share update exclusive mode', one);
        end loop;
      end;
      `;
}

export interface Brief {
  declare?: string;
  unless?: string;
  /** A query for the tables that an automatic vacuum is to leave first. */
  unvacuumed?: string;
  statements: string;
}
