"""The console: the pages that a browser shows of a dispatcher. Static files only; `federator.api.console` serves them.

- `index.html`, `console.css`: the frame and its looks; colours, sizes and states are custom properties at the top of the style sheet.
- `main.js`: starts, signs in, shows the frame, and opens pages by their path.
- `dom.js`: elements and SVG from data. Text is set as text and never parsed, so markup in a job's name stays text.
- `api.js`: the public HTTP API; its problem details become errors with a remedy. `stream.js`: server-sent events.
- `store.js`: values with subscribers. `format.js`: times, money, GPUs, durations. `states.js`: each state as a colour, a shape and a word.
- `table.js`, `form.js`, `dialog.js`, `bars.js`: what pages are made of. `actions.js`: what people do to jobs, with the consequence told first.
- `logs.js`, `log_text.js`: a log as it is written, as text with its colours.
- `terminal.js`: a shell inside a job. `escapes.js` takes its output apart, `screen.js` has the cells that follow (with `widths.js`), `sgr.js` their looks,
  `screen_view.js` draws them, `keys.js` is what keys send, `mouse.js` what the mouse does. `screens.css`: looks of logs and terminals. They are fetched when a shell is wanted.
- `yaml.js`: job files, and what the schema says of a place in one.
- `gantt.js`: bars on lanes, of which only what is in sight is drawn; `packing.js`: in which rows they lie. `replay.js`: the past day played. `charts.css`: looks of drawings.
- `deadline.js`, `timeline.js`, `gpu_use.js`: parts of the page of a job: the price of each finish with a handle that sets the deadline, its attempts in time, and the use of each of its GPUs.
- `chart.js`: lines and stacked bars, each with a table of the same.
- `pages/`: one module each, which exports `title` and `open(view, context)`; that answers a function that closes the page.

No dependency, no build step, and nothing from elsewhere: the content security policy allows this dispatcher alone, no inline code and no parsed markup.
Types are JSDoc, checked by TypeScript in a test; those of answers (`Api.SiteRow`) are written from the code into `tests/console/api.d.ts`.
"""
