"use strict";
// Charts, the method filter, sorting, and the closer look at a cell. All text enters the page as text nodes.
(() => {
  const CANVAS = 1500; // points from which a chart is drawn as one picture
  const AHEAD = 100; // charts of a page up to which those out of sight are drawn too
  const MOST = 200; // rows of a long table that are shown at once

  const data = JSON.parse(document.getElementById("data").textContent);
  const hidden = new Set();

  // What is large is held deflated and read when someone looks at it.
  function unpack(text) {
    const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).json();
  }

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

  const views = new Map();
  const near = new Set();
  const stale = new Set();

  function shownPoints(points) {
    return points.filter((point) => !hidden.has(point.method)).map((point) => ({ ...point }));
  }

  async function draw(node) {
    if (views.has(node.id)) return;
    views.set(node.id, null);
    const spec = await unpack(data.charts[node.id]);
    const points = spec.data.values;
    const now = { ...spec, data: { ...spec.data, values: shownPoints(points) } };
    const renderer = points.length > CANVAS ? "canvas" : "svg";
    const options = { mode: "vega-lite", renderer, actions: false, ast: true, defaultStyle: false, tooltip: showTip };
    views.set(node.id, { points, ...(await vegaEmbed(node, now, options)) });
    if (stale.has(node.id)) refresh(node.id);
  }

  function refresh(id) {
    const held = views.get(id);
    if (!held) return;
    stale.delete(id);
    held.view.change("points", vega.changeset().remove(() => true).insert(shownPoints(held.points))).run();
  }

  const charts = [...document.querySelectorAll(".chart")];
  const idle = (task) => (window.requestIdleCallback ? requestIdleCallback(task, { timeout: 200 }) : setTimeout(task, 30));
  let working = false;

  // One chart at a time, so that a click never waits for more than one.
  async function drawRest() {
    const next = charts.length > AHEAD ? undefined : charts.find((node) => !views.has(node.id));
    const old = [...stale].find((id) => views.get(id));
    working = Boolean(next || old);
    if (next) await draw(next);
    else if (old) refresh(old);
    else document.documentElement.dataset.drawn = charts.length > AHEAD ? "near" : "all";
    if (working) idle(drawRest);
  }

  function refreshAll() {
    views.forEach((_, id) => stale.add(id));
    near.forEach(refresh);
    if (!working) drawRest();
  }

  const observer = new IntersectionObserver(
    (entries) => {
      for (const { isIntersecting, target } of entries) {
        if (isIntersecting) near.add(target.id);
        else near.delete(target.id);
        if (isIntersecting && !views.has(target.id)) draw(target);
        else if (isIntersecting && stale.has(target.id)) refresh(target.id);
      }
    },
    { rootMargin: "400px" },
  );
  charts.forEach((node) => observer.observe(node));

  // --- tables: which rows are there, in which order ---

  const tables = new Map();

  async function setUpTable(table) {
    const packed = data.rows[table.closest(".table").id];
    const body = table.tBodies[0];
    if (packed) body.innerHTML = await unpack(packed); // escaped by the program that wrote the page
    const held = { rows: [...body.rows], most: packed ? MOST : Infinity, closers: new Map(), fits: () => true };
    held.more = el("button", { type: "button", class: "more" });
    held.more.addEventListener("click", () => {
      held.most += MOST;
      show(held, body);
    });
    tables.set(table, held);
    if (packed) table.closest(".scroll").after(held.more);
    if (held.rows.length > 2) [...table.tHead.rows[0].cells].forEach((head, index) => setUpHead(table, head, index));
    show(held, body);
    return held;
  }

  function show(held, body) {
    const fitting = held.rows.filter((row) => !hidden.has(row.dataset.method) && held.fits(row));
    const shown = fitting.slice(0, held.most);
    body.replaceChildren(...shown.flatMap((row) => [row, ...(held.closers.has(row) ? [held.closers.get(row)] : [])]));
    held.more.hidden = shown.length === fitting.length;
    held.more.textContent = `Show ${Math.min(MOST, fitting.length - shown.length)} more of ${fitting.length} rows`;
    return fitting.length;
  }

  function sortKey(row, index) {
    const cell = row.cells[index];
    return "sort" in cell.dataset ? Number(cell.dataset.sort) : cell.textContent.trim();
  }

  function compare(a, b) {
    if (typeof a === typeof b) return typeof a === "number" ? a - b : a.localeCompare(b, undefined, { numeric: true });
    return typeof a === "number" ? -1 : 1;
  }

  function sortBy(table, index) {
    const held = tables.get(table);
    const heads = [...table.tHead.rows[0].cells];
    const down = heads[index].getAttribute("aria-sort") === "ascending";
    heads.forEach((head) => head.removeAttribute("aria-sort"));
    heads[index].setAttribute("aria-sort", down ? "descending" : "ascending");
    [...held.closers.keys()].forEach((row) => close(held, row));
    const keyed = held.rows.map((row) => [sortKey(row, index), row]);
    keyed.sort(([a], [b]) => (typeof a === typeof b && down ? -1 : 1) * compare(a, b));
    held.rows = keyed.map(([, row]) => row);
    show(held, table.tBodies[0]);
  }

  function setUpHead(table, head, index) {
    const button = el("button", { type: "button", title: "Sort" }, ...head.childNodes);
    button.addEventListener("click", () => sortBy(table, index));
    head.append(button);
  }

  const browser = document.querySelector("#cells table");
  for (const table of document.querySelectorAll("table")) {
    const folded = table.closest("details");
    if (table === browser) continue;
    if (folded && data.rows[folded.id]) folded.addEventListener("toggle", () => setUpTable(table), { once: true });
    else setUpTable(table);
  }

  // --- the method filter ---

  document.getElementById("methods").addEventListener("change", (event) => {
    const { value, checked } = event.target;
    if (checked) hidden.delete(value);
    else hidden.add(value);
    for (const item of document.querySelectorAll("li[data-method]")) item.hidden = hidden.has(item.dataset.method);
    tables.forEach((held, table) => table !== browser && show(held, table.tBodies[0]));
    filterCells();
    refreshAll();
  });

  // --- the cells ---

  const columns = browser ? [...browser.tHead.rows[0].cells].map((head) => head.textContent.trim()) : [];
  const search = el("input", { type: "search", placeholder: "e.g. code-256" });
  const selects = ["Workload", "Outcome"].map((title) => [title, el("select")]);
  const count = el("output", { "aria-live": "polite" });
  const words = new Map();

  function text(row, title) {
    return row.cells[columns.indexOf(title)].textContent.trim();
  }

  function filterCells() {
    const held = tables.get(browser);
    if (!held) return;
    const wanted = search.value.trim().toLowerCase().split(/\s+/);
    held.fits = (row) =>
      wanted.every((word) => words.get(row).includes(word)) &&
      selects.every(([title, select]) => !select.value || text(row, title) === select.value);
    const fitting = show(held, browser.tBodies[0]);
    [...held.closers.keys()].filter((row) => !row.isConnected).forEach((row) => close(held, row));
    count.textContent = `${fitting} of ${held.rows.length} cells`;
  }

  function close(held, row) {
    row.querySelector(".open").setAttribute("aria-expanded", "false");
    held.closers.get(row).remove();
    held.closers.delete(row);
  }

  async function toggle(held, row, button) {
    if (held.closers.has(row)) return close(held, row);
    const inside = el("div", { class: "inside" });
    inside.style.setProperty("--scroll-width", `${row.closest(".scroll").clientWidth}px`);
    held.closers.set(row, el("tr", { class: "closer" }, el("td", { colspan: row.cells.length }, inside)));
    button.setAttribute("aria-expanded", "true");
    inside.append(...cellParts(await cellOf(row.dataset.key)));
    if (held.closers.has(row) && row.isConnected) row.after(held.closers.get(row));
  }

  async function cellOf(key) {
    const [service, cell] = key.split("/");
    const held = data.cells[service];
    held.read ??= unpack(held.packed);
    return (await held.read)[cell];
  }

  async function setUpBrowser() {
    const controls = el("div", { class: "controls" }, el("label", {}, "Search", search));
    for (const [title, select] of selects) controls.append(el("label", {}, title, select));
    controls.append(count);
    document.querySelector("#cells .scroll").before(controls);
    const held = await setUpTable(browser);
    const known = new Set(Object.entries(data.cells).flatMap(([service, { ids }]) => ids.map((id) => `${service}/${id}`)));
    for (const row of held.rows) words.set(row, row.textContent.toLowerCase());
    for (const [title, select] of selects) {
      select.append(el("option", { value: "" }, "all"));
      for (const value of new Set(held.rows.map((row) => text(row, title)))) select.append(el("option", { value }, value));
    }
    for (const row of held.rows.filter((row) => known.has(row.dataset.key))) {
      const button = el("button", { type: "button", class: "open", "aria-expanded": "false" }, ...row.cells[0].childNodes);
      button.addEventListener("click", () => toggle(held, row, button));
      row.cells[0].append(button);
    }
    controls.addEventListener("input", filterCells);
    filterCells();
  }
  (browser ? setUpBrowser() : Promise.resolve()).then(() => idle(drawRest));

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
  addEventListener("beforeprint", () => {
    document.querySelectorAll("section details").forEach((node) => (node.open = true));
    [...stale].forEach(refresh);
  });
  openAt();
})();
