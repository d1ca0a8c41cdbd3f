export type { Connection } from "./admin-guard.ts";
export type { AdminOptions, AdminUser } from "./admin-options.ts";
export { createAdmin, type AdminHandler } from "./create-admin.ts";
export { toNodeHandler, type NodeRequest, type NodeResponse } from "./node-handler.ts";
export type { AdminAction } from "./page-api.ts";
export type { Redact, RedactedMessage, RedactInput, RedactOption } from "./shown-text.ts";
export { redrive, type RedriveOptions, type RedriveProgress, type RedriveReport } from "./redrive.ts";
export { readStory, type Story, type StoryOptions } from "./story.ts";
export type { StoryDelivery, StoryMessage, StoryPlace, StoryReceipt } from "./story-tree.ts";
