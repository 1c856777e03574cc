// The page on which a browser signs in: with a token, or at the organisation's OpenID Connect provider.
import { get, post, Problem, request } from "./api.js";
import { problemBox } from "./dialog.js";
import { h, show } from "./dom.js";
import { field, text } from "./form.js";

const RETURN = "federator-return";

/**
 * Show it; `onDone` is called with who has signed in.
 * @param {Element} view
 * @param {string} why Why there is no session any more; empty: there was none.
 * @param {(who: Api.WhoAmI) => void} onDone
 */
export async function signIn(view, why, onDone) {
  const said = h("div", { "aria-live": "polite" });
  const token = field("Token", text("token", { type: "password", required: true, autocomplete: "current-password" }), "From an administrator: federator token create. The first one of a new dispatcher is in its state folder, in the file admin.token.");
  const submit = h("button", { type: "submit", class: "main" }, "Sign in");
  const form = h("form", { class: "stack", on: { submit: begin } }, token.element, h("div", null, submit));
  const provider = h("div");
  show(view, h("main", { id: "view", class: "sign-in", tabindex: -1 }, h("h1", null, "Federator"), why && h("p", { role: "status" }, why), provider, form, said));
  token.input.focus();

  /** @param {Event} event */
  async function begin(event) {
    event.preventDefault();
    await attempt({ token: token.input.value });
  }
  /** @param {Record<string, string>} body */
  async function attempt(body) {
    submit.disabled = true;
    try {
      onDone(await post("/v1/session", body));
    } catch (error) {
      show(said, problemBox(error));
    }
    submit.disabled = false;
  }

  const given = new URLSearchParams(location.search);
  if (location.pathname === "/sign-in") {
    // A link may bring a token, which no server is sent. It signs nobody in by itself: it may be somebody else's.
    token.input.value = location.hash.slice(1);
    history.replaceState(null, "", sessionStorage.getItem(RETURN) ?? "/");
    sessionStorage.removeItem(RETURN);
    if (given.has("code")) {
      show(said, "Signing in …");
      await attempt({ code: given.get("code") ?? "", state: given.get("state") ?? "" });
    } else if (given.has("error")) show(said, problemBox(new Problem({ detail: `the provider refuses: ${given.get("error_description") ?? given.get("error")}` })));
  }
  try {
    const way = await get("/v1/sign-in");
    const go = h("button", { type: "button", class: "main", on: { click: leave } }, `Sign in at ${new URL(way.issuer).host}`);
    show(provider, go, h("p", { class: "faint" }, "or with a token:"));
  } catch {
    // There is none: a token is the way.
  }

  async function leave() {
    try {
      const { url } = await request("POST", "/v1/session/start");
      sessionStorage.setItem(RETURN, location.pathname + location.search);
      location.assign(url);
    } catch (error) {
      show(said, problemBox(error));
    }
  }
}
