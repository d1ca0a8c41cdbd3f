import { createHash } from "node:crypto";

/** A script of the server: it runs alone, and whole or not at all as far as others and the append-only file can see. */
export interface Script {
  readonly source: string;
  readonly sha: string;
}

function script(source: string): Script {
  return { source, sha: createHash("sha1").update(source).digest("hex") };
}

/**
 * Adds entries in order and ends at the first that fails: nothing behind it has been tried. Requests that are sent at
 * once pass a baton: one adds nothing unless all entries of the one before were added.
 * KEYS: baton, streams. ARGV: "1" to create streams, how to trim, its threshold, the baton to wait for, the one to pass on;
 * how many shapes follow, each with the number of its fields and their names; then for each entry the number of its
 * shape, that of its stream, and its values. Answers {how many were added, error of the next}; no error: all.
 */
export const ADD: Script = script(`
local create, trim, threshold, after, pass = ARGV[1] == '1', ARGV[2], ARGV[3], ARGV[4], ARGV[5]
if after ~= '' and redis.call('GET', KEYS[1]) ~= after then return {0, 'HELD'} end
local shapes, at = {}, 7
for shape = 1, tonumber(ARGV[6]) do
  local fields, entry = tonumber(ARGV[at]), {'XADD', '', '*'}
  if not create then entry = {'XADD', '', 'NOMKSTREAM', '*'} end
  local head = #entry
  for field = 1, fields do
    entry[head + 2 * field - 1] = ARGV[at + field]
    entry[head + 2 * field] = ''
  end
  shapes[shape] = {entry, head, fields}
  at = at + 1 + fields
end
local last, added, failure = #ARGV, 0, nil
while at <= last do
  local shape = shapes[tonumber(ARGV[at])]
  local entry, head, fields = shape[1], shape[2], shape[3]
  at = at + 1
  entry[2] = KEYS[1 + ARGV[at]]
  for field = 1, fields do entry[head + 2 * field] = ARGV[at + field] end
  local reply = redis.pcall(unpack(entry))
  if not reply then failure = 'MISSING' break end
  if type(reply) == 'table' and reply.err then failure = reply.err break end
  added = added + 1
  at = at + fields + 1
end
if trim ~= '' and added > 0 then
  if trim == 'MINID' then
    local now = redis.call('TIME')
    threshold = string.format('%.0f', math.max(0, now[1] * 1000 + math.floor(now[2] / 1000) - threshold))
  end
  for stream = 2, #KEYS do redis.pcall('XTRIM', KEYS[stream], trim, '~', threshold) end
end
if pass ~= '' and not failure then redis.call('SET', KEYS[1], pass, 'PX', 60000)
elseif after ~= '' then redis.pcall('DEL', KEYS[1]) end
return {added, failure}
`);

/**
 * A lock holds its owner and, behind that, a turn. KEYS: lock. ARGV: owner, ms, the next turn or "" to keep the present
 * one. Answers 1 when it is still ours, 0 when it is free, -1 when another has it.
 */
export const RENEW: Script = script(`
local token = redis.call('GET', KEYS[1])
if not token then return 0 end
if string.sub(token, 1, #ARGV[1]) ~= ARGV[1] then return -1 end
if ARGV[3] ~= '' then redis.call('SET', KEYS[1], ARGV[1] .. ARGV[3], 'PX', ARGV[2]) return 1 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
`);

/** KEYS: lock. ARGV: owner. */
export const LET_GO: Script = script(`
local token = redis.call('GET', KEYS[1])
if token and string.sub(token, 1, #ARGV[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
`);

/**
 * Adds the dead letter, then acknowledges; neither when the entry is not pending any more.
 * KEYS: stream, dead-letter stream. ARGV: group, id, fields and values.
 */
export const BURY: Script = script(`
if #redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[2], ARGV[2], 1) == 0 then return 0 end
local entry = {'XADD', KEYS[2], '*'}
for at = 3, #ARGV do entry[#entry + 1] = ARGV[at] end
redis.call(unpack(entry))
return redis.call('XACK', KEYS[1], ARGV[1], ARGV[2])
`);

/** KEYS: stream. ARGV: group, consumer, ids. Says that they are being worked on; answers those that are another's by now. */
export const TOUCH: Script = script(`
local lost = {}
for at = 3, #ARGV do
  local id = ARGV[at]
  if #redis.call('XPENDING', KEYS[1], ARGV[1], id, id, 1, ARGV[2]) == 0 then
    lost[#lost + 1] = id
  else
    redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, id, 'JUSTID')
  end
end
return lost
`);

/** KEYS: stream. ARGV: group, consumer, id, number of the next attempt. Keeps that number, unless the entry is another's. */
export const COUNT: Script = script(`
if #redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[3], ARGV[3], 1, ARGV[2]) == 0 then return 0 end
redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, ARGV[3], 'RETRYCOUNT', ARGV[4], 'JUSTID')
return 1
`);

/**
 * Leaves the group: any other member may take what is pending at once, and the present attempt does not count. KEYS:
 * stream. ARGV: group, consumer, "1" to delete the consumer when it leaves nothing.
 */
export const LEAVE: Script = script(`
local start = '-'
local left = 0
while true do
  local rows = redis.call('XPENDING', KEYS[1], ARGV[1], start, '+', 500, ARGV[2])
  for _, row in ipairs(rows) do
    local attempts = math.max(0, row[4] - 1)
    redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, row[1], 'IDLE', 86400000, 'RETRYCOUNT', attempts, 'JUSTID')
    start = '(' .. row[1]
    left = left + 1
  end
  if #rows < 500 then break end
end
if left == 0 and ARGV[3] == '1' then redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2]) end
return left
`);

/** KEYS: stream. ARGV: group, ms. Deletes consumers with nothing pending that have not come by for so long. */
export const SWEEP: Script = script(`
local deleted = 0
for _, info in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
  local about = {}
  for at = 1, #info, 2 do about[info[at]] = info[at + 1] end
  if about.pending == 0 and about.idle > tonumber(ARGV[2]) then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], about.name)
    deleted = deleted + 1
  end
end
return deleted
`);

/** KEYS: what to remember. ARGV: ms. */
export const REMEMBER: Script = script(`
for _, key in ipairs(KEYS) do redis.call('SET', key, '', 'PX', ARGV[1]) end
return #KEYS
`);
