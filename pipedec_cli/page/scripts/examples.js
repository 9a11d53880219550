// Lists, filters and shows the examples of the block #data-examples in the element #examples. All
// data go into the page as text.
"use strict";
(() => {
  const section = document.getElementById("examples");
  const data = JSON.parse(document.getElementById("data-examples").textContent);
  const find = (selector) => section.querySelector(selector);
  const control = (name) => find(`[name="${name}"]`);
  const make = (tag, values) => Object.assign(document.createElement(tag), values);
  const replayable = document.getElementById("data-replay");
  const replays = replayable ? new Set(JSON.parse(replayable.textContent).examples.map(({ at }) => at)) : new Set();
  const list = find(".list");
  const state = { shown: [], at: 0 };

  const decoder = () => Number(control("decoder").value || 0);
  const score = (run) => (data.metric === null ? null : run.scores[data.metric]);
  const signed = (value) => (value === null ? "" : `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(1)}`);
  function difference(example) {
    const [usual, own] = [example.runs[0], example.runs[decoder()]].map(score);
    return usual === null || own === null ? null : own - usual;
  }
  /* The faults of a run in words. */
  function marks(run) {
    return [
      run.cut ? `✂ cut at ${run.cut}` : "",
      run.missing ? `∅ not in the text: ${run.missing}` : "",
      run.duplicated ? `≡ ${run.duplicated} duplicated` : "",
      run.dropped ? `∅ ${run.dropped} dropped` : "",
      run.wrong ? `≠ ${run.wrong} wrong` : "",
    ].filter(Boolean).join(" · ");
  }
  const KINDS = {
    all: () => true,
    differing: (run) => !run.same,
    cut: (run) => run.cut,
    duplicated: (run) => run.duplicated,
    dropped: (run) => run.dropped,
    wrong: (run) => run.wrong,
  };
  const texts = data.examples.map((example) =>
    [example.id, example.source, ...(example.gold || []), ...example.references, ...example.runs.flatMap((run) => run.texts)]
      .join("\n").toLowerCase());

  function filter() {
    const wanted = control("search").value.toLowerCase();
    const kind = KINDS[control("kind").value];
    const count = control("count").value;
    const sort = control("sort").value;
    const before = state.shown[state.at];
    state.shown = [...data.examples.keys()].filter((at) => {
      const example = data.examples[at];
      return texts[at].includes(wanted) && kind(example.runs[decoder()]) && (!count || example.count === Number(count));
    });
    if (sort !== "place") {
      const sign = sort === "worst" ? 1 : -1;
      const by = new Map(state.shown.map((at) => [at, difference(data.examples[at])]));
      // Examples without a difference come last.
      state.shown.sort((one, other) => (by.get(one) === null) - (by.get(other) === null) || sign * (by.get(one) - by.get(other)));
    }
    list.replaceChildren(...state.shown.map(option));
    control("found").textContent = `${state.shown.length} of ${data.examples.length} shown.`;
    select(Math.max(0, state.shown.indexOf(before)));
  }
  function option(at, row) {
    const example = data.examples[at];
    const item = make("li", { id: `example-${at}`, dir: "auto" });
    item.setAttribute("role", "option");
    item.dataset.row = row;
    item.append(make("span", { textContent: `${example.place}: ${example.id}`, className: "id" }));
    const said = [marks(example.runs[decoder()]), signed(difference(example))].filter(Boolean).join(" · ");
    item.append(make("span", { textContent: said, className: "note" }));
    return item;
  }

  function select(row) {
    state.at = Math.max(0, Math.min(state.shown.length - 1, row));
    for (const item of list.children) item.setAttribute("aria-selected", Number(item.dataset.row) === state.at);
    const item = list.children[state.at];
    find(".example").hidden = !item;
    if (!item) { list.removeAttribute("aria-activedescendant"); return; }
    list.setAttribute("aria-activedescendant", item.id);
    list.scrollTop = Math.min(item.offsetTop, Math.max(list.scrollTop, item.offsetTop + item.offsetHeight - list.clientHeight));
    show(state.shown[state.at]);
  }

  function show(at) {
    const example = data.examples[at];
    const columns = [...new Set([0, decoder()])];
    find(".heading").textContent = `${example.place}: ${example.id}`;
    find(".marks").textContent = `${example.count} ${data.part}${example.count === 1 ? "" : "s"} in the ${example.gold ? "target" : "baseline's text"}`;
    find(".source").textContent = example.source;
    control("replay").hidden = !replays.has(at);
    scores(example, columns);
    table(example, columns);
    const more = example.references.map((text) => make("p", { textContent: text, className: "text", dir: "auto" }));
    if (more.length) more.unshift(make("h4", { textContent: example.gold ? "Other references" : "References" }));
    const left = example.otherReferences - example.references.length;
    if (left > 0) more.push(make("p", { textContent: `… ${left} more references`, className: "note" }));
    find(".references").replaceChildren(...more);
  }
  function scores(example, columns) {
    const grid = make("table");
    const head = grid.createTHead().insertRow();
    for (const name of ["", ...data.metrics, "steps", "what went wrong"]) {
      head.append(make("th", { textContent: name, scope: "col", className: name && name !== "what went wrong" ? "figures" : "" }));
    }
    for (const column of columns) {
      const run = example.runs[column];
      const row = grid.appendChild(make("tbody")).insertRow();
      row.append(make("th", { textContent: data.decoders[column], scope: "row", dir: "auto" }));
      const figures = [...run.scores.map((value) => (value === null ? "–" : value.toFixed(1))), run.steps];
      for (const textContent of figures) Object.assign(row.insertCell(), { textContent, className: "figures" });
      row.insertCell().textContent = marks(run) || "nothing";
    }
    find(".scores").replaceChildren(...grid.children);
  }
  /* A row for each subsequence of the target, or of the baseline, and beside it the texts that say the same. */
  function table(example, columns) {
    const grid = make("table");
    const head = grid.createTHead().insertRow();
    const names = [...(example.gold ? ["target"] : []), ...columns.map((column) => data.decoders[column])];
    for (const name of ["", ...names]) head.append(make("th", { textContent: name, scope: "col", dir: "auto" }));
    const body = grid.appendChild(make("tbody"));
    const rows = Math.max((example.gold || []).length, ...columns.map((column) => Math.max(-1, ...example.runs[column].rows) + 1));
    for (let number = 0; number < rows; number++) {
      const row = body.insertRow();
      row.append(make("th", { textContent: number + 1, scope: "row" }));
      if (example.gold) cell(row, example.gold[number] === undefined ? [] : [[example.gold[number], ""]]);
      for (const column of columns) {
        const { texts: told, rows: at, again, mistaken } = example.runs[column];
        const mark = (place) => (again.includes(place) ? "≡ duplicated " : mistaken.includes(place) ? "≠ wrong " : "");
        cell(row, told.flatMap((text, place) => (at[place] === number ? [[text, mark(place)]] : [])));
      }
    }
    if (columns.some((column) => example.runs[column].left)) {
      const row = body.insertRow();
      row.append(make("th", { textContent: "…", scope: "row" }));
      if (example.gold) row.insertCell().textContent = example.count > example.gold.length ? `… ${example.count - example.gold.length} more` : "";
      for (const column of columns) row.insertCell().textContent = example.runs[column].left ? `… ${example.runs[column].left} more` : "";
    }
    find(".texts").replaceChildren(...grid.children);
  }
  function cell(row, told) {
    const place = row.insertCell();
    if (!told.length) place.append(make("span", { textContent: "∅ nothing here", className: "missing" }));
    for (const [text, mark] of told) {
      const part = place.appendChild(make("p", { className: mark ? "text marked" : "text", dir: "auto" }));
      if (mark) part.append(make("strong", { textContent: mark }));
      part.append(make("span", { textContent: text }));
    }
  }

  data.decoders.slice(1).forEach((name, at) => control("decoder").append(make("option", { value: at + 1, textContent: name })));
  if (data.decoders.length === 1) control("decoder").append(make("option", { value: 0, textContent: data.decoders[0] }));
  control("decoder").value = data.usual;
  const counts = [...new Set(data.examples.map((example) => example.count))].sort((one, other) => one - other);
  for (const count of counts) control("count").append(make("option", { value: count, textContent: count }));
  if (data.metric === null) control("sort").disabled = true;
  for (const name of ["search", "decoder", "kind", "count"]) control(name).addEventListener("input", filter);
  control("sort").addEventListener("input", () => { filter(); select(0); });
  list.addEventListener("click", (event) => {
    const item = event.target.closest("li");
    if (item) select(Number(item.dataset.row));
  });
  list.addEventListener("keydown", (event) => {
    const last = state.shown.length - 1;
    const to = {
      ArrowDown: state.at + 1, j: state.at + 1, ArrowUp: state.at - 1, k: state.at - 1,
      PageDown: state.at + 10, PageUp: state.at - 10, Home: 0, End: last,
    }[event.key];
    if (to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    select(to);
  });
  control("replay").addEventListener("click", () => {
    const detail = { at: state.shown[state.at], decoder: data.decoders[decoder()] };
    document.dispatchEvent(new CustomEvent("replay", { detail }));
  });
  filter();
})();
