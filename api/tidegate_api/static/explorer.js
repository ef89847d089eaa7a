// The key explorer: keys, the states and timers of a key, and their changes.
import { ask, watch } from "/assets/client.js";
import { $, count, h, put, seconds } from "/assets/drawing.js";

const PAGE = 50, LOG = 100, FRESH = 1000;
let services = [], cursor = null, loading = false, asking = null, watching = null, chosen = null;

export function startExplorer(found) {
  services = found.filter((service) => service.states.some((state) => state.queryable));
  put($("service"), ...services.map((service) => h("option", {}, service.name)));
  $("service").addEventListener("change", () => { listStates(); search(); });
  $("state").addEventListener("change", search);
  $("asof").addEventListener("change", () => { search(); if (chosen) show(chosen); });
  $("prefix").addEventListener("input", debounced(search, 150));
  $("search").addEventListener("submit", (event) => { event.preventDefault(); if ($("prefix").value) show($("prefix").value); });
  $("more").addEventListener("click", () => load(cursor));
  $("keys").addEventListener("scroll", () => { const it = $("keys"); if (cursor && !loading && it.scrollTop + it.clientHeight > it.scrollHeight - 200) load(cursor); });
  $("keys").addEventListener("keydown", move);
  if (services.length) { listStates(); search(); refresh(); }
}

const service = () => services.find((one) => one.name === $("service").value);
const base = () => `/v1/services/${encodeURIComponent($("service").value)}`;
const past = () => $("asof").value ? `&as_of=${encodeURIComponent($("asof").value)}` : "";
const path = (key) => encodeURIComponent(typeof key === "string" ? key : JSON.stringify(key));

function listStates() { put($("state"), ...service().states.filter((state) => state.queryable).map((state) => h("option", { value: state.name }, `${state.name} · ${state.kind}`))); }

function debounced(work, ms) { let timer; return () => { clearTimeout(timer); timer = setTimeout(work, ms); }; }

function search() { cursor = null; load(null); }

async function load(from) {
  asking?.abort();
  const mine = asking = new AbortController();
  loading = true;
  const query = `?limit=${PAGE}&prefix=${encodeURIComponent($("prefix").value)}${from ? `&cursor=${from}` : ""}${past()}`;
  try {
    const page = await ask(`${base()}/states/${encodeURIComponent($("state").value)}/keys${query}`, { signal: mine.signal });
    const rows = page.items.map(row);
    if (from) $("keys").append(...rows); else put($("keys"), ...(rows.length ? rows : [h("li", { class: "empty" }, "No keys.")]));
    cursor = page.cursor;
    $("more").hidden = cursor === null;
  } catch (error) {
    if (error.name !== "AbortError") put($("keys"), h("li", { class: "empty" }, error.message));
  } finally { if (asking === mine) loading = false; }
}

function row({ key, value, truncated }) {
  const preview = h("span", { class: "preview" });
  const it = h("li", { role: "option", "aria-selected": "false" }, h("span", { class: "key" }, typeof key === "string" ? key : JSON.stringify(key)), preview);
  it.addEventListener("click", () => { select(it); show(key); });
  it.key = key;
  it.preview = (now) => { const text = now === null ? "(nothing)" : JSON.stringify(now); preview.textContent = text.length > 120 ? `${text.slice(0, 120)}…` : text; };
  if (truncated) preview.textContent = "(large)"; else it.preview(value);
  return it;
}

// Visible rows are polled: a stream would use one of a browser's few connections.
async function refresh() {
  for (;;) {
    await new Promise((go) => setTimeout(go, FRESH));
    if (document.hidden || $("asof").value) continue;
    const list = $("keys"), frame = list.getBoundingClientRect(), top = Math.max(frame.top, 0), bottom = Math.min(frame.bottom, innerHeight);
    const seen = [...list.children].filter((one) => { if (one.key === undefined) return false; const at = one.getBoundingClientRect(); return at.bottom > top && at.top < bottom; });
    if (!seen.length) continue;
    const where = `${base()}/states/${encodeURIComponent($("state").value)}/batch`;
    try {
      const { values } = await ask(where, { method: "POST", body: { keys: seen.map((one) => one.key) } });
      if (!$("asof").value) values.forEach(({ value }, place) => seen[place].preview(value));
    } catch { /* busy, or too large: keep the shown values */ }
  }
}

function select(it) { for (const one of $("keys").children) one.setAttribute("aria-selected", one === it); }

function move(event) {
  const rows = [...$("keys").children].filter((one) => one.key !== undefined);
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step || !rows.length) return;
  event.preventDefault();
  const next = rows[Math.min(rows.length - 1, Math.max(0, rows.findIndex((one) => one.getAttribute("aria-selected") === "true") + step))];
  select(next); next.scrollIntoView({ block: "nearest" }); show(next.key);
}

// ------------------------------------------------------------------------------------------------------------- actor

async function show(key) {
  chosen = key;
  watching?.abort();
  watching = new AbortController();
  const { signal } = watching, mine = service(), facts = h("div", { class: "facts" }), log = h("ol", { class: "log" }), timers = h("div");
  const title = typeof key === "string" ? key : JSON.stringify(key);
  put($("actor"), h("header", {}, h("b", { class: "mono" }, title), h("span", { class: "muted" }, $("asof").value ? `as of ${$("asof").value}` : "live")), facts, timers, h("h3", {}, "Changes"), log);
  const cards = new Map();
  const put_ = (name, value, changed) => {
    if (!cards.has(name)) { const card = fact(mine.states.find((state) => state.name === name)); cards.set(name, card); facts.append(card.element); }
    cards.get(name).set(value, changed);
  };
  const where = `${base()}/actors/${path(key)}`;
  try {
    const actor = await ask(`${where}?${past().slice(1)}`, { signal });
    for (const [name, value] of Object.entries(actor.states)) put_(name, value, false);
    if (!cards.size) facts.append(h("p", { class: "muted" }, $("asof").value ? "This key had no state then." : "This key has no state."));
    drawTimers(timers, actor.timers);
  } catch (error) { if (!signal.aborted) put(facts, h("p", { class: "muted" }, error.message)); return; }
  if ($("asof").value) { log.previousElementSibling.remove(); log.remove(); return; }
  const again = debounced(async () => { try { drawTimers(timers, (await ask(where, { signal })).timers); } catch { /* later */ } }, 300);
  const reread = debounced(async () => { try { for (const [name, value] of Object.entries((await ask(where, { signal })).states)) put_(name, value, true); } catch { /* later */ } }, 300);
  watch(`${base()}/watch?key=${path(key)}`, signal, (kind, told) => {
    if (signal.aborted) return;
    if (kind === "value") { if (!told.truncated && (told.value !== null || cards.has(told.state))) put_(told.state, told.value, false); return; }
    if (kind === "missed") reread();
    if (kind !== "change") return;
    facts.querySelector("p")?.remove();
    if (told.truncated) { put_(told.state, "(too large to show)", true); return; }
    const value = told.entries ? { ...(cards.get(told.state)?.value ?? {}), ...told.entries } : told.value;
    if (told.entries) for (const [name, entry] of Object.entries(told.entries)) if (entry === null) delete value[name];
    put_(told.state, value, true);
    log.prepend(h("li", {}, h("time", {}, new Date().toLocaleTimeString()), h("b", {}, told.state), h("span", { class: "mono" }, JSON.stringify(told.entries ?? told.value))));
    while (log.children.length > LOG) log.lastElementChild.remove();
    again();
  });
}

function fact(state) {
  const text = h("pre"), size = h("span", { class: "muted" });
  const element = h("div", { class: "fact", "data-state": state.name }, h("div", {}, h("b", {}, state.name), h("span", { class: "muted" }, `${state.kind} of ${state.type} `, size)), text);
  const card = { element, value: undefined, set(value, changed) {
    card.value = value;
    text.textContent = value === null ? "(nothing)" : JSON.stringify(value, null, 2);
    size.textContent = value && typeof value === "object" ? `· ${count(Object.keys(value).length)}` : "";
    if (changed) { element.classList.remove("changed"); void element.offsetWidth; element.classList.add("changed"); }
  } };
  return card;
}

function drawTimers(where, timers) {
  put(where, h("h3", {}, timers.length ? "Timers" : "No timers"), ...timers.map((timer) => h("div", {}, h("b", {}, timer.name), ` ${new Date(timer.at).toLocaleString()} `, h("span", { class: "muted" }, timer.time === "event" ? "by event time" : `in ${seconds(Math.max(0, timer.at - Date.now()))}`))));
}
