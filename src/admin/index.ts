export { redrive, type RedriveOptions, type RedriveProgress, type RedriveReport } from "./redrive.ts";
