import type { TestProject } from "vitest/node";

export default function setup(_project: TestProject): void {}
