import { render } from "preact";
import { App } from "./app.tsx";
import { followLinks } from "./route.ts";

const box = document.querySelector("#page");
if (box !== null) {
  followLinks();
  render(<App />, box);
}
