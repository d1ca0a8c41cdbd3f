import { describe, expect, it } from "vitest";
import { refuseTransactionControl } from "../../../../src/stores/postgres/transaction-control.ts";

const REFUSED = [
  "commit",
  "select 1 /* begin atomic */; commit",
  "select E'it\\'s'; commit; select ''",
  "create function f() returns int begin atomic select case when true then 1 end; end; commit",
  "set search_path = a",
  "SET SESSION statement_timeout = 1",
  "set session characteristics as transaction read only",
  "set role x",
  "set time zone 'UTC'",
  "-- first\nset a.b = 'c'",
  "select 1; set a.b to 'c'",
  "select set_config('a.b', 'c', false)",
  "reset all",
  "reset a.b",
  "discard temp",
  "listen x",
  "unlisten *",
  "prepare q as select 1",
  "deallocate all",
  "declare c cursor with hold for select 1",
  "create temp table t (a int)",
  "create temporary view v as select 1",
  "create local temp table t (a int)",
  "select 1 into temp t",
  "load 'auto_explain'",
  "select pg_advisory_lock(1)",
  "select pg_try_advisory_lock_shared (1)",
];

const FREE = [
  "update t set a = 1",
  "insert into t values (1) on conflict (a) do update set b = 1",
  "set local search_path = a",
  "set transaction isolation level serializable",
  "set constraints all deferred",
  "select set_config('a.b', 'c', true)",
  "savepoint a",
  "release a",
  "rollback to savepoint a",
  "rollback transaction to a",
  "notify x, 'y'",
  "execute q",
  "declare c cursor for select 1",
  "create temp table t (a int) on commit drop",
  "create table temp (a int)",
  "select \"set\", 'commit; reset all', $x$; discard all$x$ from t -- ; commit",
  "select pg_advisory_xact_lock(1)",
  "alter role x set search_path = a",
  "create function f() returns int language sql begin atomic select case when true then 1 end; select 2; end",
  "create function f() returns int language sql set search_path = a as 'select 1'",
  "select case when a then b end from t",
  "",
];

describe("statements of a handler", () => {
  it.each(REFUSED)("refuses %s", (text) => {
    expect(() => refuseTransactionControl(text)).toThrow(
      expect.objectContaining({ code: "no_transaction", field: "tx", fix: expect.stringMatching(/\w/) }),
    );
  });

  it.each(FREE)("lets %s through", (text) => {
    expect(() => refuseTransactionControl(text)).not.toThrow();
  });
});
