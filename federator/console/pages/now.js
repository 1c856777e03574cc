// What happens now.
import { get } from "../api.js";
import { h, show } from "../dom.js";
import { problemBox } from "../dialog.js";
import { keepFresh } from "../stream.js";
import { stateMark } from "../states.js";
import { number } from "../format.js";
import { Table } from "../table.js";

export const title = "Now";

/** @param {HTMLElement} view */
export function open(view) {
  const said = h("div");
  /** @type {Table<any>} */
  const sites = new Table({
    caption: "Sites",
    keyOf: (row) => row.name,
    empty: "No site has joined yet.",
    columns: [
      { id: "name", title: "Site", cell: (row) => row.name, by: (row) => row.name },
      { id: "status", title: "Status", cell: (row) => stateMark(row.status) },
      { id: "gpus", title: "GPUs", numeric: true, cell: (row) => number(row.gpus), by: (row) => row.gpus },
      { id: "busy", title: "Busy", numeric: true, cell: (row) => number(row.busy), by: (row) => row.busy },
    ],
  });
  show(view, h("h1", null, title), said, sites.element);
  const fresh = keepFresh(
    async () => {
      const overview = await get("/v1/overview");
      sites.show(overview.sites);
      show(said);
    },
    { onError: (error) => error.code !== "unreachable" && show(said, problemBox(error)) },
  );
  return fresh.stop;
}
