// Topics and services as a graph, from left to right.
import { count, put, s } from "/assets/drawing.js";

const WIDE = 172, HIGH = 46, ACROSS = 78, DOWN = 20;

export function drawGraph(where, known) {
  const { nodes, edges } = read(known);
  place(nodes, edges);
  const right = Math.max(...nodes.map((node) => node.x + WIDE)), bottom = Math.max(...nodes.map((node) => node.y + HIGH));
  const picture = s("svg", { width: right + 4, height: bottom + 4, viewBox: `-2 -2 ${right + 4} ${bottom + 4}`, role: "img", "aria-label": "Topics and services" });
  for (const edge of edges) picture.append(curve(edge));
  for (const node of nodes) picture.append(box(node));
  put(where, picture);
}

function read({ services, topics, workers, rates }) {
  const sizes = new Map(topics.map((topic) => [topic.name, topic.records]));
  const nodes = new Map(), edges = [];
  const node = (id, more) => nodes.get(id) ?? (nodes.set(id, { id, in: [], ...more }), nodes.get(id));
  const topic = (name) => node(`t:${name}`, { kind: "topic", name, sub: sizes.has(name) ? `${count(sizes.get(name))} records` : "" });
  for (const service of services) {
    const tasks = workers.flatMap((worker) => worker.tasks.filter((task) => task.service === service.name));
    const rate = tasks.reduce((all, task) => all + (rates.get(`${task.service}.${task.task}`)?.rate ?? 0), 0);
    const mine = node(`s:${service.name}`, { kind: "service", name: service.name });
    Object.assign(mine, { kind: "service", sub: `${count(rate)}/s · ${service.tasks} tasks`, rate });
    const join = (from, to, busy, letters = false) => { edges.push({ from, to, busy, letters }); to.in.push(from); };
    for (const name of service.inputs) join(topic(name), mine, rate > 0);
    for (const name of service.outputs) join(mine, topic(name), rate > 0);
    const lost = tasks.reduce((all, task) => all + task.dead_letters, 0);
    if (service.dead_letters) join(mine, node(`l:${service.name}`, { kind: `letters ${lost ? "bad" : ""}`, name: "dead letters", sub: `${count(lost)}` }), false, true);
  }
  return { nodes: [...nodes.values()], edges };
}

function place(nodes, edges) {
  // A node stands to the right of all its predecessors; an edge that closes a cycle is ignored.
  const depth = new Map();
  const find = (node, path) => {
    if (depth.has(node)) return depth.get(node);
    if (path.has(node)) return -1;
    path.add(node);
    const found = 1 + Math.max(-1, ...node.in.map((before) => find(before, path)));
    path.delete(node);
    depth.set(node, found);
    return found;
  };
  const columns = [];
  for (const node of nodes) (columns[find(node, new Set())] ??= []).push(node);
  const tall = Math.max(...columns.map((column) => column?.length ?? 0));
  columns.forEach((column, across) => {
    const middle = (node) => node.in.length ? node.in.reduce((all, one) => all + (one.y ?? 0), 0) / node.in.length : 0;
    if (across) column.sort((one, other) => middle(one) - middle(other));
    const start = (tall - column.length) * (HIGH + DOWN) / 2;
    column.forEach((node, down) => { node.x = across * (WIDE + ACROSS); node.y = start + down * (HIGH + DOWN); });
  });
  return edges;
}

function curve({ from, to, busy, letters }) {
  const back = to.x <= from.x, y1 = from.y + HIGH / 2, y2 = to.y + HIGH / 2;
  const x1 = from.x + WIDE, x2 = to.x, bend = ACROSS * 0.6;
  const d = back ? `M${from.x + WIDE / 2} ${from.y + HIGH} C ${from.x + WIDE / 2} ${from.y + HIGH + 60}, ${to.x + WIDE / 2} ${to.y + HIGH + 60}, ${to.x + WIDE / 2} ${to.y + HIGH}` : `M${x1} ${y1} C ${x1 + bend} ${y1}, ${x2 - bend} ${y2}, ${x2} ${y2}`;
  return s("path", { class: `edge ${busy ? "busy" : ""} ${letters ? "letters" : ""}`, d });
}

function box(node) {
  const short = node.name.length > 22 ? `${node.name.slice(0, 21)}…` : node.name;
  const group = s("g", { class: node.kind, transform: `translate(${node.x} ${node.y})` }, s("title", {}, node.name),
    s("rect", { width: WIDE, height: HIGH, rx: node.kind === "service" ? 12 : 23 }));
  group.append(s("text", { x: WIDE / 2, y: node.sub ? 20 : 28, "text-anchor": "middle" }, short));
  if (node.sub) group.append(s("text", { class: "sub", x: WIDE / 2, y: 36, "text-anchor": "middle" }, node.sub));
  return group;
}
