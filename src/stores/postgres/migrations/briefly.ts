/**
 * PL/pgSQL that tries statements until their locks can be had at once. A lock that has to be waited for holds up every
 * writer behind it, so each try waits for a fraction of a second, and writers go on before the next one. `declare` and
 * `unless` (an SQL condition: nothing to do) are optional.
 */
export function briefly({ declare = "", unless, statements }: Brief): string {
  return `do $txbox_do$
declare
  patience integer := 40;
  deadline timestamptz := clock_timestamp() + interval '10 minutes';
  ${declare}
begin
  loop
    ${unless === undefined ? "" : `if ${unless} then return; end if;`}
    begin
      perform set_config('lock_timeout', patience::text, true);
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

export interface Brief {
  declare?: string;
  unless?: string;
  statements: string;
}
