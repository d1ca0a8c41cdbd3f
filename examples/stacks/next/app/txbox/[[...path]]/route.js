import { createAdmin } from "txbox/admin";
import { store } from "../../../lib/messaging.js";

export const runtime = "nodejs";
export const dynamic = "force-dynamic";

/** Who is on call, by the cookie of a login that the application has anyway. */
const PEOPLE = new Map([["session=of-ada", "ada"]]);

const page = createAdmin({
  stores: { orders: store },
  prefix: "/txbox",
  title: "orders",
  hosts: ["ops.example.com"],
  ...(process.env.PAGE_TOKEN === undefined
    ? {
        authorize: (request) => {
          const actor = PEOPLE.get(request.headers.get("cookie") ?? "");
          return actor === undefined ? null : { actor };
        },
      }
    : { token: process.env.PAGE_TOKEN }),
});

// Next waits for open connections when it is told to stop.
process.once("SIGTERM", () => void page.close());

export const GET = (request) => page(request);
export const POST = GET;
