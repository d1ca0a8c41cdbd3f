export { readStory, type Story, type StoryOptions } from "./story.ts";
export type { StoryDelivery, StoryMessage, StoryPlace, StoryReceipt } from "./story-tree.ts";
