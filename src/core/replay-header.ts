/** Set on a message that is published again on purpose, beside the relay's own work; its value says by what. */
export const REPLAY_HEADER = "txboxReplay";
