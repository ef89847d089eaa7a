// The dashboard. It draws what the API returns and keeps no other data. No library, no build.
import { drawGraph } from "/assets/graph.js";
import { startExplorer } from "/assets/explorer.js";
import { ask, onLogin } from "/assets/client.js";
import { $, ago, bytes, count, day, h, moment, put, seconds, spark } from "/assets/drawing.js";

const POLL = 1000, SLOW = 3000, HISTORY = 90;
const history = { handled: [], lag: [], commit: [] };
const known = { services: [], topics: [], workers: [], rates: new Map(), totals: null, cuts: null };

// ---------------------------------------------------------------------------------------------------------- figures

function rates(workers) {
  // Counters per task since the last poll; a task that has moved to another worker starts from 0.
  const now = new Map(), found = new Map();
  let handled = 0, commits = 0, spent = 0, lag = 0, letters = 0, waiting = 0, watermark = Infinity;
  for (const worker of workers) for (const task of worker.tasks) {
    const name = `${task.service}.${task.task}`, before = known.totals?.tasks.get(name);
    now.set(name, { ...task, pid: worker.pid, at: worker.now });
    const same = before && before.pid === worker.pid && worker.now > before.at && task.handled >= before.handled;
    const span = same ? worker.now - before.at : 0;
    const rate = same ? (task.handled - before.handled) / span : 0;
    found.set(name, { rate, commit: same && task.commits > before.commits ? (task.commit_seconds - before.commit_seconds) / (task.commits - before.commits) : null });
    handled += rate; lag += task.lag; letters += task.dead_letters; waiting += task.waiting;
    if (same) { commits += task.commits - before.commits; spent += task.commit_seconds - before.commit_seconds; }
    if (task.watermark !== null) watermark = Math.min(watermark, task.watermark);
  }
  const first = known.totals === null;
  known.totals = { tasks: now };
  known.rates = found;
  return { first, handled, lag, letters, waiting, watermark, commit: commits ? spent / commits : null };
}

function remember(list, value) { list.push(value); if (list.length > HISTORY) list.shift(); }

function tile(label, value, unit, note, { line, tone } = {}) {
  return h("div", { class: `tile ${tone ?? ""}` }, h("span", { class: "label" }, label),
    h("span", { class: "value" }, value, unit ? h("small", {}, unit) : ""),
    line ? spark(line) : h("span", { class: "note" }, note ?? ""));
}

function drawTiles(sum) {
  if (!sum.first) { remember(history.handled, sum.handled); remember(history.lag, sum.lag); }
  if (sum.commit !== null) remember(history.commit, sum.commit * 1000);
  const ready = known.workers.filter((worker) => worker.ready).length;
  const delay = Number.isFinite(sum.watermark) ? Date.now() - sum.watermark : null, old = Math.abs(delay) > 86400000;
  const cut = known.cuts?.progress;
  const last = cut?.last_complete;
  put($("tiles"),
    tile("Handled", count(sum.handled), "/s", "", { line: history.handled }),
    tile("Lag", count(sum.lag), "records", "", { line: history.lag, tone: sum.lag > 100000 ? "warn" : "" }),
    tile("Commit", history.commit.length ? history.commit.at(-1).toFixed(1) : "–", "ms", "", { line: history.commit }),
    tile("Event time", delay === null ? "–" : old ? day(sum.watermark) : seconds(Math.abs(delay)), delay === null || old ? "" : delay < 0 ? "ahead" : "behind", delay === null ? "no watermark yet" : `${old ? `${new Date(sum.watermark).getFullYear()}, ` : ""}${new Date(sum.watermark).toLocaleTimeString()}`),
    tile("Checkpoint", last ? `#${last.epoch}` : "–", last ? ago(last.ended_ms) : "", cut?.under_way ? `#${cut.under_way.epoch} is in progress` : last ? `${bytes(last.size)} in ${seconds(last.ended_ms - last.started_ms)}` : "none yet", { tone: cut && !cut.healthy ? "bad" : "" }),
    tile("Dead letters", count(sum.letters), "", sum.letters ? "since the start" : "none", { tone: sum.letters ? "bad" : "" }),
    tile("Workers", `${ready}`, `of ${known.workers.length}`, `${known.workers.reduce((all, one) => all + one.tasks.length, 0)} tasks`, { tone: ready < known.workers.length ? "warn" : "" }));
}

// ------------------------------------------------------------------------------------------------- services, workers

function tasksOf(service) {
  return known.workers.flatMap((worker) => worker.tasks.filter((task) => task.service === service));
}

function drawServices() {
  const head = h("tr", {}, ...["Service", "Tasks", "Handled/s", "Lag", "Waiting", "Watermark", "Commit", "Retries", "Dead letters"].map((name, place) => h("th", place ? { class: "number" } : {}, name)));
  const rows = known.services.map((service) => {
    const tasks = tasksOf(service.name), sum = (name) => tasks.reduce((all, task) => all + task[name], 0);
    const measured = tasks.map((task) => known.rates.get(`${task.service}.${task.task}`)).filter(Boolean);
    const commit = measured.map((one) => one.commit).filter((one) => one !== null && one !== undefined);
    const times = tasks.map((task) => task.watermark).filter((time) => time !== null);
    const running = tasks.filter((task) => task.state === "running").length;
    const cell = (text, tone) => h("td", { class: `number ${tone ?? ""}` }, text);
    return h("tr", { "data-service": service.name },
      h("td", {}, h("b", {}, service.name), h("span", { class: "about" }, service.description.split("\n")[0])),
      cell(running === service.tasks ? `${running}` : `${running} of ${service.tasks}`, running < service.tasks ? "warn" : ""),
      cell(count(measured.reduce((all, one) => all + one.rate, 0))), cell(count(sum("lag")), sum("lag") > 100000 ? "warn" : ""), cell(count(sum("waiting"))),
      cell(times.length ? moment(Math.min(...times)) : "–"),
      cell(commit.length ? `${(1000 * commit.reduce((all, one) => all + one, 0) / commit.length).toFixed(1)} ms` : "–"),
      cell(count(sum("retries"))), cell(count(sum("dead_letters")), sum("dead_letters") ? "bad" : ""));
  });
  put($("services"), h("thead", {}, head), h("tbody", {}, ...rows));
}

function drawWorkers() {
  put($("workers"), ...known.workers.map((worker, place) => {
    const by = new Map();
    for (const task of worker.tasks) by.set(task.service, [...(by.get(task.service) ?? []), task]);
    const card = h("div", { class: "worker" },
      h("header", {}, h("b", { title: worker.address }, worker.name.replace(/^process (\d+) on /, "$1 @ ")),
        h("span", { class: "muted" }, worker.error || [worker.memory ? bytes(worker.memory) : "", `up ${seconds((worker.now - worker.started) * 1000)}`].filter(Boolean).join(" · "))),
      ...[...by].map(([service, tasks]) => h("div", { class: "line" }, h("span", { class: "muted", title: service }, service),
        h("div", { class: "chips" }, ...tasks.map((task) => chip(task))))));
    card.style.setProperty("--tint", `var(--w${place % 8})`);
    return card;
  }));
}

function chip(task) {
  const rate = known.rates.get(`${task.service}.${task.task}`)?.rate ?? 0;
  const tone = task.state !== "running" ? "restoring" : task.lag > 10000 ? "behind" : "";
  return h("span", { class: `chip ${tone}`, title: `${task.service}.${task.task}: ${task.state}, ${count(rate)}/s, lag ${count(task.lag)}` }, `${task.task}${task.state === "running" ? "" : " …"}`);
}

// -------------------------------------------------------------------------------------------------------- checkpoints

function drawCuts(savepoints, checkpoints) {
  const head = h("tr", {}, ...["", "Taken", "Took", "Size", "Uploaded", "In flight", "Run"].map((name, place) => h("th", place > 1 ? { class: "number" } : {}, name)));
  const rows = [...savepoints, ...checkpoints].slice(0, 12).map((cut) => h("tr", {},
    h("td", {}, cut.name ? h("b", {}, cut.name) : h("span", { class: "muted" }, `checkpoint ${cut.epoch}`)),
    h("td", {}, `${new Date(cut.completed_ms).toLocaleString()} `, h("span", { class: "muted" }, ago(cut.completed_ms))),
    ...[seconds(cut.completed_ms - cut.started_ms), bytes(cut.bytes), bytes(cut.uploaded), count(cut.in_flight), cut.run].map((text) => h("td", { class: "number" }, text))));
  put($("cuts"), h("thead", {}, head), h("tbody", {}, ...(rows.length ? rows : [h("tr", {}, h("td", { class: "muted", colspan: 7 }, "None yet."))])));
  const chosen = $("asof").value;
  put($("asof"), h("option", { value: "" }, "now"), ...[...savepoints, ...checkpoints].map((cut) => h("option", { value: cut.id }, cut.name ?? `checkpoint ${cut.epoch}`)));
  $("asof").value = [...$("asof").options].some((one) => one.value === chosen) ? chosen : "";
}

async function take(path, body, what) {
  for (const id of ["takesavepoint", "takecheckpoint"]) $(id).disabled = true;
  $("taking").textContent = `taking ${what} …`;
  try {
    const taken = await ask(path, { method: "POST", body });
    $("taking").textContent = taken.complete ? `${what} is complete (#${taken.epoch})` : `${what} is in progress`;
    await slowly();
  } catch (error) { $("taking").textContent = error.message; }
  for (const id of ["takesavepoint", "takecheckpoint"]) $(id).disabled = false;
}

$("take").addEventListener("submit", (event) => {
  event.preventDefault();
  const name = $("savepoint").value.trim() || `savepoint-${new Date().toISOString().slice(0, 19).replace(/[:T]/g, "-")}`;
  take("/v1/savepoints", { name }, name).then(() => { $("savepoint").value = ""; });
});
$("takecheckpoint").addEventListener("click", () => take("/v1/checkpoints", undefined, "a checkpoint"));

// ------------------------------------------------------------------------------------------------------------- loops

function alive(state, text) { $("live").className = `live ${state}`; $("live").lastElementChild.textContent = text; }

async function quickly() {
  try {
    known.workers = (await ask("/v1/workers")).workers;
    drawTiles(rates(known.workers));
    drawServices();
    drawWorkers();
    drawGraph($("graph"), known);
    alive("on", "live");
  } catch (error) { alive("off", error.message); }
}

async function slowly() {
  try {
    known.topics = (await ask("/v1/topics")).topics;
    const [cuts, savepoints] = await Promise.all([ask("/v1/checkpoints"), ask("/v1/savepoints")]);
    known.cuts = cuts;
    drawCuts(savepoints.checkpoints, cuts.checkpoints);
  } catch { /* the status loop shows it */ }
}

async function start() {
  try {
    const found = await ask("/v1/services");
    known.services = found.services;
    $("app").textContent = document.title = found.app;
    $("run").textContent = `run ${found.run}`;
    startExplorer(found.services);
  } catch (error) { alive("off", error.message); setTimeout(start, POLL); return; }
  const forever = async (work, pause) => { for (;;) { if (!document.hidden) await work(); await new Promise((go) => setTimeout(go, pause)); } };
  forever(slowly, SLOW);
  forever(quickly, POLL);
}

$("theme").addEventListener("click", () => {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches, root = document.documentElement;
  const now = root.dataset.theme ?? (dark ? "dark" : "light");
  localStorage.setItem("theme", root.dataset.theme = now === "dark" ? "light" : "dark");
});
if (localStorage.getItem("theme")) document.documentElement.dataset.theme = localStorage.getItem("theme");
onLogin($("login"), $("token"));
start();
