import { createAdmin, type AdminHandler } from "txbox/admin";
import { store } from "./database.ts";

/** Who is on call, by the cookie of a login that the application has anyway. */
const PEOPLE = new Map([["session=of-ada", "ada"]]);

/** The page under /txbox, behind a token or the login of the application. */
export const page: AdminHandler = createAdmin({
  stores: { orders: store },
  prefix: "/txbox",
  title: "orders",
  hosts: ["ops.example.com"],
  ...(process.env.PAGE_TOKEN === undefined
    ? {
        authorize: (request: Request) => {
          const actor = PEOPLE.get(request.headers.get("cookie") ?? "");
          return actor === undefined ? null : { actor };
        },
      }
    : { token: process.env.PAGE_TOKEN }),
});
