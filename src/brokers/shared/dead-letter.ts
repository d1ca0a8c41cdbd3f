export { deadHeaders, type DeadHeaders } from "../../core/dead-letter.ts";
