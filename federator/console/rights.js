// What who has signed in may do, as far as roles and the token's scopes tell: what they may not is left out, or says why. The dispatcher judges in the end.

/** @typedef {Api.WhoAmI} Who */

/** Whether the token is limited to other things. @param {Who} who @param {string} scope */
const scoped = (who, scope) => !who.scopes.length || who.scopes.includes(scope);

/** Whether they act for the whole federation: policies, approvals, replays. @param {Who} who */
export const mayRun = (who) => (who.role === "admin" || who.role === "platform") && scoped(who, "manage");

/** Whether they try policies and decide again, which changes nothing. @param {Who} who */
export const mayTry = (who) => (who.role === "admin" || who.role === "platform") && scoped(who, "read");

/** Whether they submit jobs. @param {Who} who */
export const maySubmit = (who) => scoped(who, "submit");

/** Whether they administer a site. @param {Who} who @param {string} site */
export const mayManage = (who, site) => (who.role === "admin" || (who.role === "site-admin" && who.sites.includes(site))) && scoped(who, "manage");

/** The sites that they may join hosts to: null for any, also new ones; empty: none. @param {Who} who @returns {string[] | null} */
export function joinable(who) {
  if (!scoped(who, "manage")) return [];
  if (who.role === "admin") return null;
  return who.role === "site-admin" ? who.sites : [];
}
