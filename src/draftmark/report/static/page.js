"use strict";
// Charts, the method filter, sorting, and the closer look at a cell. All text enters the page as text nodes.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const hidden = new Set();
  const views = new Map();

  function el(tag, attributes = {}, ...children) {
    const svg = ["svg", "rect", "line", "title"].includes(tag);
    const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  }

  // --- charts ---

  const tip = document.getElementById("tip");
  function showTip(_handler, event, _item, value) {
    tip.hidden = !value;
    if (!value) return;
    tip.textContent = value;
    const { width, height } = tip.getBoundingClientRect();
    const right = event.clientX + 14 + width > innerWidth;
    tip.style.left = `${Math.max(4, right ? event.clientX - width - 14 : event.clientX + 14)}px`;
    tip.style.top = `${Math.max(4, event.clientY - height - 10)}px`;
  }

  function shownPoints(spec) {
    return spec.data.values.filter((point) => !hidden.has(point.method));
  }

  async function draw(node) {
    const spec = data.charts[node.id];
    if (views.has(node.id)) return;
    views.set(node.id, null);
    const now = { ...spec, data: { ...spec.data, values: shownPoints(spec) } };
    const options = { mode: "vega-lite", renderer: "svg", actions: false, ast: true, defaultStyle: false, tooltip: showTip };
    views.set(node.id, (await vegaEmbed(node, now, options)).view);
    refresh(node.id);
  }

  function refresh(id) {
    const view = views.get(id);
    if (!view) return;
    const change = vega.changeset().remove(() => true).insert(shownPoints(data.charts[id]).map((point) => ({ ...point })));
    view.change("points", change).runAsync();
  }

  const charts = [...document.querySelectorAll(".chart")];
  const idle = window.requestIdleCallback || ((task) => setTimeout(task, 30));

  function drawRest() {
    const next = charts.find((node) => !views.has(node.id));
    if (next) draw(next).then(() => idle(drawRest));
    else document.documentElement.dataset.drawn = "all";
  }

  const observer = new IntersectionObserver(
    (entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => draw(entry.target)),
    { rootMargin: "400px" },
  );
  charts.forEach((node) => observer.observe(node));
  idle(drawRest);

  // --- the method filter ---

  document.getElementById("methods").addEventListener("change", (event) => {
    const { value, checked } = event.target;
    if (checked) hidden.delete(value);
    else hidden.add(value);
    for (const row of document.querySelectorAll("[data-method]")) row.hidden = hidden.has(row.dataset.method);
    views.forEach((_, id) => refresh(id));
    filterCells();
  });

  // --- sorting ---

  function sortKey(row, index) {
    const cell = row.cells[index];
    return "sort" in cell.dataset ? Number(cell.dataset.sort) : cell.textContent.trim();
  }

  function compare(a, b) {
    if (typeof a === typeof b) return typeof a === "number" ? a - b : a.localeCompare(b, undefined, { numeric: true });
    return typeof a === "number" ? -1 : 1;
  }

  function sortBy(table, index) {
    const heads = [...table.tHead.rows[0].cells];
    const down = heads[index].getAttribute("aria-sort") === "ascending";
    heads.forEach((head) => head.removeAttribute("aria-sort"));
    heads[index].setAttribute("aria-sort", down ? "descending" : "ascending");
    table.querySelectorAll(".closer").forEach(close);
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row) => [sortKey(row, index), row]);
    rows.sort(([a], [b]) => (typeof a === typeof b && down ? -1 : 1) * compare(a, b));
    body.append(...rows.map(([, row]) => row));
  }

  for (const table of document.querySelectorAll("table")) {
    if (table.tBodies[0].rows.length < 3) continue;
    [...table.tHead.rows[0].cells].forEach((head, index) => {
      const button = el("button", { type: "button", title: "Sort" }, ...head.childNodes);
      button.addEventListener("click", () => sortBy(table, index));
      head.append(button);
    });
  }

  // --- the cells ---

  const browser = document.querySelector("#cells table");
  const columns = browser ? [...browser.tHead.rows[0].cells].map((head) => head.textContent.trim()) : [];
  const rows = browser ? [...browser.tBodies[0].rows] : [];
  const text = (row, title) => row.cells[columns.indexOf(title)].textContent.trim();
  const search = el("input", { type: "search", placeholder: "e.g. code-256" });
  const selects = ["Workload", "Outcome"].map((title) => [title, el("select")]);
  const count = el("output", { "aria-live": "polite" });

  function filterCells() {
    const wanted = search.value.trim().toLowerCase().split(/\s+/);
    let shown = 0;
    for (const row of rows) {
      const fits =
        !hidden.has(row.dataset.method) &&
        wanted.every((word) => row.textContent.toLowerCase().includes(word)) &&
        selects.every(([title, select]) => !select.value || text(row, title) === select.value);
      if (!fits && row.nextElementSibling?.matches(".closer")) close(row.nextElementSibling);
      row.hidden = !fits;
      shown += fits;
    }
    count.textContent = `${shown} of ${rows.length} cells`;
  }

  function close(closer) {
    closer.previousElementSibling.querySelector(".open").setAttribute("aria-expanded", "false");
    closer.remove();
  }

  function toggle(row, button) {
    if (row.nextElementSibling?.matches(".closer")) return close(row.nextElementSibling);
    const inside = el("div", { class: "inside" }, ...cellParts(data.cells[row.dataset.key]));
    inside.style.setProperty("--scroll-width", `${row.closest(".scroll").clientWidth}px`);
    row.after(el("tr", { class: "closer" }, el("td", { colspan: row.cells.length }, inside)));
    button.setAttribute("aria-expanded", "true");
  }

  function setUpBrowser() {
    const controls = el("div", { class: "controls" }, el("label", {}, "Search", search));
    for (const [title, select] of selects) {
      select.append(el("option", { value: "" }, "all"));
      for (const value of new Set(rows.map((row) => text(row, title)))) select.append(el("option", { value }, value));
      controls.append(el("label", {}, title, select));
    }
    controls.append(count);
    controls.addEventListener("input", filterCells);
    document.querySelector("#cells .scroll").before(controls);
    for (const row of rows.filter((row) => row.dataset.key in data.cells)) {
      const button = el("button", { type: "button", class: "open", "aria-expanded": "false" }, ...row.cells[0].childNodes);
      button.addEventListener("click", () => toggle(row, button));
      row.cells[0].append(button);
    }
    filterCells();
  }
  if (browser) setUpBrowser();

  // --- one cell ---

  function pairs(list) {
    return el("dl", { class: "pairs" }, ...list.map(([name, value, title]) =>
      el("div", title ? { title } : {}, el("dt", {}, name), el("dd", { dir: "auto" }, value))));
  }

  function cellParts(cell) {
    const parts = [];
    const add = (title, ...nodes) => parts.push(el("h3", {}, title), ...nodes);
    if (cell.diagnosis) {
      add(`Failed: ${cell.diagnosis.cause}`, el("p", { dir: "auto" }, cell.diagnosis.summary),
        ...(cell.diagnosis.remedy ? [el("p", { dir: "auto" }, `What helps: ${cell.diagnosis.remedy}`)] : []),
        el("pre", { dir: "auto" }, cell.diagnosis.evidence.join("\n")));
    }
    if (cell.flags.length) add("Doubts", pairs(cell.flags));
    const numbers = cell.metrics.map(([key, value]) => {
      const [title, unit, meaning] = data.metrics[key];
      return [title, `${value} ${unit}`, meaning];
    });
    if (numbers.length) add("Numbers", pairs(numbers));
    if (cell.speculation.length) add("Acceptance, as the engine counts it", pairs(cell.speculation));
    if (cell.requests.length) add(`Requests (${cell.requests.length})`, requestList(cell.requests));
    add("Measured", pairs([["started", cell.started], ["attempts", String(cell.attempts)], ["status", cell.status]]));
    return parts;
  }

  const seconds = (value) => (value === null ? "–" : value < 1 ? `${(1000 * value).toFixed(0)} ms` : `${value.toFixed(2)} s`);
  const last = (request) => request.end ?? request.arrivals.at(-1) ?? 0;

  function requestList(requests) {
    const total = Math.max(...requests.map((request) => request.start + last(request)), 1e-9);
    return el("ol", { class: "requests" }, ...requests.map((request) => {
      const said = request.error ?? `${request.tokens ?? "?"} tokens, TTFT ${seconds(request.ttft ?? null)}`;
      const role = request.role === "measured" ? "" : ` (${request.role})`;
      const button = el("button", { type: "button", "aria-expanded": "false" },
        el("span", { class: "name" }, request.id + role), lane(request, total), el("span", { class: "said" }, said));
      const item = el("li", {}, button);
      button.addEventListener("click", () => {
        const open = button.getAttribute("aria-expanded") === "true";
        button.setAttribute("aria-expanded", String(!open));
        if (open) item.lastElementChild.remove();
        else item.append(el("div", { class: "request" }, ...requestParts(request)));
      });
      return item;
    }));
  }

  function lane(request, total) {
    const percent = (value) => `${((100 * value) / total).toFixed(3)}%`;
    const wait = request.ttft ?? last(request);
    const bar = (kind, from, length) =>
      el("rect", { class: kind, x: percent(from), width: percent(Math.max(length, total / 400)), y: "15%", height: "70%" });
    const bars = request.error
      ? [bar("bad", request.start, last(request))]
      : [bar("wait", request.start, wait), bar("write", request.start + wait, last(request) - wait)];
    const label = `from ${seconds(request.start)} to ${seconds(request.start + last(request))} of the cell`;
    return el("svg", { class: "lane", role: "img", "aria-label": label }, ...bars);
  }

  function requestParts(request) {
    const known = [
      ["prompt", request.prompt], ["turn", request.turn], ["prompt tokens", request.promptTokens],
      ["cached", request.cached], ["decode rate", request.rate && `${request.rate.toFixed(1)} tok/s`],
      ["acceptance length", request.tau && request.tau.toFixed(2)], ["ended by", request.finish], ["error", request.error],
    ].filter(([, value]) => value !== null && value !== undefined);
    const parts = [pairs(known.map(([name, value]) => [name, String(value)]))];
    if (request.errorDetail) parts.push(el("pre", { dir: "auto" }, request.errorDetail));
    if (request.arrivals.length) parts.push(...timeline(request));
    if (request.reasoning) parts.push(el("h3", {}, "Reasoning"), el("pre", { dir: "auto", tabindex: "0" }, request.reasoning));
    if (request.text) parts.push(el("h3", {}, "Answer"), el("pre", { dir: "auto", tabindex: "0" }, request.text));
    return parts;
  }

  function timeline(request) {
    const end = last(request) || 1e-9;
    const marks = request.arrivals.map((t) => {
      const x = `${((100 * t) / end).toFixed(3)}%`;
      return el("line", { x1: x, x2: x, y1: "10%", y2: "90%" });
    });
    const which = request.every > 1 ? `every ${request.every}th chunk` : "each chunk";
    const label = `Arrival of ${which}: ${marks.length} marks between ${seconds(request.arrivals[0])} and ${seconds(end)}`;
    return [
      el("h3", {}, `Arrival of ${which}`),
      el("svg", { class: "timeline", role: "img", "aria-label": label }, ...marks),
      el("div", { class: "scale" }, el("span", {}, "0 s (sent)"), el("span", {}, seconds(end))),
    ];
  }

  // --- what a link or a print needs open ---

  const openAt = () => document.getElementById(location.hash.slice(1))?.closest("details")?.setAttribute("open", "");
  addEventListener("hashchange", openAt);
  addEventListener("beforeprint", () => document.querySelectorAll("section details").forEach((node) => (node.open = true)));
  openAt();
})();
