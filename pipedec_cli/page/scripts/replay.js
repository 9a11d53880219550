// Replays the grids of the block #data-replay in the element #replay: the baseline above, a chosen decoder below,
// both at one clock. All data go into the page as text.
"use strict";
(() => {
  const section = document.getElementById("replay");
  const data = JSON.parse(document.getElementById("data-replay").textContent);
  const find = (selector) => section.querySelector(selector);
  const control = (name) => find(`[name="${name}"]`);
  const make = (tag, values) => Object.assign(document.createElement(tag), values);
  const FOLDED = data.part === "field" ? 8 : 2;  // more empty rows than these are folded
  const state = { clock: 0, playing: null, chosen: null, runs: [] };

  // Token (i1, t1) sees token (i2, t2) if and only if i2 ≤ i1 and t2 ≤ t1, as in pipeline/attention.py.
  const sees = (one, other) => other.row <= one.row && other.time <= one.time;

  const timed = () => control("clock").value === "time";
  // The clock after some calls of a run, in calls or in milliseconds. The calls that made its draft come first.
  const milliseconds = (run, calls) => (calls + run.draft ? run.timing[0] + (calls + run.draft) * run.timing[1] : 0);
  const written = (ms) => (ms < 1000 ? `${ms.toFixed(ms < 10 ? 1 : 0)} ms` : `${(ms / 1000).toFixed(1)} s`);
  const clockAt = (run, calls) => (timed() ? milliseconds(run, calls) : calls + run.draft);
  function callsAt(run, clock) {
    const each = timed() ? run.timing[1] : 1;
    const before = timed() ? run.timing[0] : 0;
    return Math.max(0, Math.min(run.steps, Math.floor((clock - before) / each + 1e-6) - run.draft));
  }
  const end = () => Math.max(...state.runs.map((run) => clockAt(run, run.steps)));

  // Rows that never live at the same time are lines of text: a time axis would leave all but a corner of the grid blank.
  const last = ([start, ended, text]) => start + (text ? text.split(data.between).length : 0) + (ended ? 1 : 0);
  const follows = ({ rows }) => rows.every(([start], at) => !at || start >= last(rows[at - 1]));
  const inTurn = data.decoders.map((_, at) => data.examples.every(({ runs }) => !runs[at] || follows(runs[at])));

  /* The drawing of a run: every token has its cell from the start, and is shown when the clock has reached it. */
  function draw(decoder, trace) {
    const run = { ...decoder, ...trace, draft: trace.draft || 0, gone: trace.gone || [], cells: [], labels: [], vain: [] };
    run.timing = decoder.clock;
    run.times = trace.calls || Array.from({ length: trace.steps }, (_, call) => call + 1);
    run.flows = inTurn[data.decoders.indexOf(decoder)];
    run.panel = make("div", { className: "run" });
    run.caption = make("p", { className: "note" });
    const heading = make("h3", { textContent: decoder.name, dir: "auto" });
    const box = make("div", { className: run.flows ? "scroll line" : "scroll" });
    const grid = make(run.flows ? "div" : "table", { className: run.flows ? "flow" : "grid" });
    grid.setAttribute("role", "grid");
    grid.setAttribute("aria-label", `tokens of ${decoder.name}`);
    run.panel.append(heading, run.caption, box);
    box.append(grid);
    const body = run.flows ? grid : grid.appendChild(make("tbody"));
    for (let number = 1; number <= run.rows.length; number++) drawRow(run, body, number);
    const empty = run.labels.filter((label) => label.empty && label.ended);
    if (empty.length > FOLDED) fold(run, box, empty);
    if (!run.flows) frame(run, grid);
    run.cells.forEach((cell, at) => { cell.element.tabIndex = at ? -1 : 0; });
    grid.addEventListener("click", (event) => choose(run, event.target.closest("[data-at]")));
    grid.addEventListener("keydown", (event) => walk(run, event));
    return run;
  }
  /* Many empty rows are hidden until they are asked for. */
  function fold(run, box, empty) {
    const button = make("button", { type: "button", className: "fold" });
    for (const { label } of empty) label.parentElement.classList.add("empty");
    button.addEventListener("click", () => set(!box.classList.contains("folded")));
    function set(folded) {
      box.classList.toggle("folded", folded);
      button.textContent = `${folded ? "Show" : "Hide"} ${empty.length} empty ${data.part}s`;
      button.setAttribute("aria-expanded", !folded);
    }
    set(true);
    run.panel.append(button);
  }
  function drawRow(run, body, number) {
    const [start, ended, text, opening = "<bos>"] = run.rows[number - 1];
    const tokens = text ? text.split(data.between) : [];
    const row = body.appendChild(make(run.flows ? "div" : "tr"));
    let column = 0;
    row.setAttribute("role", "row");
    function add(time, values) {
      if (!run.flows) {
        // a span of columns has its bound
        for (let left = time - column; left > 0; left -= 1000) row.append(make("td", { colSpan: Math.min(left, 1000) }));
        column = time + 1;
      }
      const element = row.appendChild(make(run.flows ? "span" : "td", { dir: "auto", ...values }));
      element.setAttribute("role", "gridcell");
      return element;
    }
    if (!run.flows || run.rows.length > 1) {
      const label = row.appendChild(run.flows ? make("span", { className: "label" }) : make("th", { scope: "row" }));
      run.labels.push({ label, number, start, end: start + tokens.length + (ended ? 1 : 0), ended, empty: !tokens.length });
    }
    [opening, ...tokens, ...(ended ? ["<eos>"] : [])].forEach((said, place, all) => {
      const first = place === 0, special = first || (ended && place === all.length - 1);
      const cell = { row: number, time: start + place, said, first, special };
      cell.element = add(cell.time, { textContent: said, title: said.length > 20 ? said : "" });
      Object.assign(cell.element.dataset, { at: run.cells.length, row: number, time: cell.time });
      run.cells.push(cell);
    });
    for (const [call, at, time, said] of run.gone) if (at === number) run.vain.push({ call, time, said });
  }
  function frame(run, grid) {
    const times = (cells) => Math.max(0, ...cells.map((cell) => cell.time));
    const last = times(run.cells), shown = times(run.cells.filter((cell) => !cell.element.closest(".empty")));
    const top = grid.createTHead().insertRow();
    const foot = grid.createTFoot().insertRow();
    top.append(make("th", { textContent: "time", scope: "col" }));
    foot.append(make("th", { textContent: "tokens", scope: "row" }));
    run.columns = [];
    for (let time = 0; time <= last; time++) {
      const made = run.cells.filter((cell) => cell.time === time && !cell.special).length;
      const className = time > shown ? "beyond" : "";
      top.append(make("th", { textContent: time, scope: "col", className }));
      run.columns.push({ element: Object.assign(foot.insertCell(), { className }), made, called: run.times.includes(time) });
    }
  }

  /* Everything that depends on the clock and on the chosen token. */
  function update() {
    for (const run of state.runs) {
      const calls = callsAt(run, state.clock);
      const time = calls ? run.times[calls - 1] : 0;
      const before = calls > 1 ? run.times[calls - 2] : 0;
      const over = calls === run.steps;
      const chosen = state.chosen && state.chosen.run === run ? state.chosen : null;
      let newest = null, made = 0;
      for (const cell of run.cells) {
        const there = cell.first ? cell.time < Math.max(time, 1) || over : calls > 0 && cell.time <= time;
        const fresh = there && !cell.first && cell.time > before && !over;
        if (there && !cell.special) made += 1;
        if (there && cell.time === time) newest = cell.element;
        const seen = chosen && there && sees(chosen, cell);
        const name = [
          "token", cell.special ? "special" : "", there ? "" : "later", fresh ? "new" : "",
          fresh && run.role === "exact" && cell.time < time ? "drafted" : "",
          seen ? (cell.time < chosen.time ? "seen" : "beside") : chosen ? "unseen" : "",
          chosen === cell ? "asked" : "",
        ].filter(Boolean).join(" ");
        if (cell.element.className !== name) cell.element.className = name;
        cell.there = there;
      }
      for (const { label, number, start, end, ended, empty } of run.labels) {
        const begun = start < Math.max(time, 1) || over;
        const mark = !begun ? "" : ended && end <= time ? (empty ? "∅" : "✓") : over ? "✂" : "▸";
        label.textContent = `${number} ${mark}`;
      }
      for (const { element, made, called } of run.columns || []) {
        const at = element.cellIndex - 1;
        element.textContent = called && at <= time && calls ? made : "";
      }
      takeBack(run, over ? 0 : calls, newest);
      const rate = calls ? (made / calls).toFixed(1) : "0";
      const drafting = run.draft ? ` after ${run.draft} for a draft` : "";
      const ms = run.timing ? `, ${written(milliseconds(run, calls))}` : "";
      const ending = over ? `finished${run.cut ? `, cut at ${run.cut}` : ""}` : `time-step ${time}`;
      run.caption.textContent = `${ending}: ${calls} decoder calls${drafting}, ${made} tokens, ${rate} a call${ms}`;
      if (newest?.offsetParent) follow(newest, run.panel.querySelector(".scroll"));
    }
    control("position").value = state.clock;
    for (const name of ["start", "back"]) control(name).disabled = state.clock <= 0;
    for (const name of ["step", "end"]) control(name).disabled = state.clock >= end() - 1e-9;
    tellSight();
  }
  /* The wrong guesses of the newest call, after the text. */
  function takeBack(run, calls, newest) {
    for (const one of run.vain) {
      if (one.element) { one.element.remove(); one.element = null; }
    }
    const wrong = run.vain.filter((one) => one.call === calls && calls);
    for (const one of wrong.reverse()) {
      one.element = make("span", { className: "token gone", textContent: one.said, dir: "auto" });
      if (newest) newest.after(one.element);
    }
  }
  function follow(element, box) {
    const room = box.clientWidth - element.offsetWidth;
    if (element.offsetLeft > box.scrollLeft + room || element.offsetLeft < box.scrollLeft) {
      box.scrollLeft = element.offsetLeft - box.clientWidth / 2;
    }
    const below = element.offsetTop + element.offsetHeight - box.clientHeight;
    if (below > box.scrollTop || element.offsetTop < box.scrollTop) box.scrollTop = Math.max(0, below);
  }

  function choose(run, element) {
    if (!element) return;
    const cell = run.cells[element.dataset.at];
    if (!cell.there) return;
    const same = state.chosen === cell;
    state.chosen = same ? null : Object.assign(cell, { run });
    focus(run, cell, false);
    update();
  }
  function focus(run, cell, really = true) {
    for (const other of run.cells) other.element.tabIndex = other === cell ? 0 : -1;
    if (really) cell.element.focus();
  }
  function walk(run, event) {
    const from = run.cells[event.target.dataset.at];
    const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!from) return;
    if (event.key === "Enter" || event.key === " ") choose(run, event.target);
    else if (event.key === "Escape") { state.chosen = null; update(); }
    else if (move) {
      const place = (cell) => cell.there && cell.element.offsetParent && cell.row === from.row + move[0] && cell.time === from.time + move[1];
      const to = run.cells.find(place);
      if (to) focus(run, to);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }
  function tellSight() {
    const { chosen } = state;
    const words = find(".sight");
    if (!chosen) { words.textContent = ""; return; }
    const all = chosen.run.cells.filter((cell) => cell.there && sees(chosen, cell));
    const before = all.filter((cell) => cell !== chosen && (chosen.first || cell.time < chosen.time));
    const rows = [...new Set(before.map((cell) => cell.row))].map((row) => {
      const said = before.filter((cell) => cell.row === row && !cell.special).map((cell) => cell.said).join(" ");
      return `\n${row}: ${said.length > 200 ? `… ${said.slice(-200)}` : said || "(nothing yet)"}`;
    });
    const where = `“${chosen.said}” in ${data.part} ${chosen.row} at time-step ${chosen.time}`;
    const beside = all.length - before.length - 1;
    const more = beside ? ` What follows it sees ${beside} more, of its own time-step.` : "";
    const told = chosen.first
      ? `opens it: what follows it sees the source and ${all.length - 1} tokens`
      : `was chosen with the source and ${before.length} tokens in sight.${more} By ${data.part}`;
    words.textContent = `${where} ${told}${rows.length ? ":" : "."}${rows.join("")}`;
  }

  function go(clock) {
    state.clock = Math.max(0, Math.min(end(), clock));
    update();
  }
  /* Go to the next or the previous call of any run. */
  function step(forwards) {
    const marks = state.runs.flatMap((run) => Array.from({ length: run.steps + 1 }, (_, calls) => clockAt(run, calls)));
    const beyond = marks.filter((mark) => (forwards ? mark > state.clock + 1e-6 : mark < state.clock - 1e-6));
    if (timed() || beyond.length) go(beyond.length ? (forwards ? Math.min(...beyond) : Math.max(...beyond)) : state.clock);
  }
  /* Clock units per second: calls, or the milliseconds in which the baseline makes as many calls. */
  function pace() {
    const speed = Number(control("speed").value);
    const timing = state.runs[0].timing;
    const each = timed() && timing ? timing[1] : 1;
    const slower = timed() ? `, ${Math.round(1000 / (speed * each)).toLocaleString("en")} times slower than measured` : "";
    control("pace").textContent = `${speed} ${timed() ? "baseline steps" : "steps"} a second${slower}`;
    return speed * each;
  }
  function play(on) {
    if (state.playing !== null) cancelAnimationFrame(state.playing);
    state.playing = null;
    control("play").textContent = on ? "Pause" : "Play";
    if (!on) return;
    let last = null, exact = state.clock >= end() ? 0 : state.clock;
    state.playing = requestAnimationFrame(function frame(now) {
      if (last !== null) exact += ((now - last) / 1000) * pace();
      last = now;
      go(timed() ? exact : Math.floor(exact));
      if (state.clock >= end()) play(false);
      else state.playing = requestAnimationFrame(frame);
    });
  }

  function show() {
    play(false);
    const example = data.examples[control("example").value];
    const decoder = Number(control("decoder").value);
    const both = [...new Set([0, decoder])].filter((at) => example.runs[at] && (!timed() || data.decoders[at].clock));
    state.runs = both.map((at) => draw(data.decoders[at], example.runs[at]));
    state.chosen = null;
    find(".source").textContent = example.source;
    find(".runs").replaceChildren(...state.runs.map((run) => run.panel));
    find(".runs").hidden = !both.length;
    for (const name of ["start", "back", "play", "step", "end", "position"]) control(name).disabled = !both.length;
    if (!both.length) return;
    control("position").max = end();
    pace();
    legend();
    go(end());
    for (const box of find(".runs").querySelectorAll(".scroll")) box.scrollTo(0, 0);
  }
  /* The legend explains the signs of these grids and no others. */
  function legend() {
    const labels = state.runs.flatMap((run) => run.labels);
    const used = {
      "▸": labels.length,
      "✓": labels.some((row) => row.ended && !row.empty),
      "∅": labels.some((row) => row.ended && row.empty),
      "✂": labels.some((row) => !row.ended),
      drafted: state.runs.some((run) => run.role === "exact"),
      gone: state.runs.some((run) => run.gone.length),
    };
    for (const element of section.querySelectorAll("[data-sign]")) element.hidden = !used[element.dataset.sign];
  }

  data.examples.forEach((example, at) => {
    control("example").append(make("option", { value: at, textContent: `${example.place}: ${example.id}` }));
  });
  data.decoders.forEach(({ name }, at) => control("decoder").append(make("option", { value: at, textContent: name })));
  control("decoder").value = data.usual;
  for (const name of ["example", "decoder", "clock"]) control(name).addEventListener("change", show);
  control("start").addEventListener("click", () => go(0));
  control("end").addEventListener("click", () => { play(false); go(end()); });
  control("back").addEventListener("click", () => { play(false); step(false); });
  control("step").addEventListener("click", () => { play(false); step(true); });
  control("play").addEventListener("click", () => play(state.playing === null));
  control("speed").addEventListener("input", pace);
  control("position").addEventListener("input", (event) => {
    play(false);
    go(timed() ? Number(event.target.value) : Math.round(event.target.value));
  });
  section.addEventListener("keydown", (event) => {
    const free = event.target.matches("select, [name=speed]") || event.ctrlKey || event.metaKey || event.altKey;
    if (free || !["ArrowLeft", "ArrowRight"].includes(event.key)) return;
    event.preventDefault();
    play(false);
    step(event.key === "ArrowRight");
  });
  // An example chosen elsewhere on the page, by its place in the list.
  document.addEventListener("replay", ({ detail }) => {
    const at = data.examples.findIndex((example) => example.at === detail.at);
    if (at < 0) return;
    control("example").value = at;
    control("decoder").value = Math.max(0, data.decoders.findIndex(({ name }) => name === detail.decoder));
    show();
    section.scrollIntoView();
    control("play").focus({ preventScroll: true });
  });
  // Paper shows the whole grid. After printing the screen is as before.
  let before = 0;
  addEventListener("beforeprint", () => { play(false); before = state.clock; if (state.runs.length) go(end()); });
  addEventListener("afterprint", () => { if (state.runs.length) go(before); });
  show();
})();
