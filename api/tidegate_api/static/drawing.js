// Elements, numbers and times.
const SVG = "http://www.w3.org/2000/svg";

export const $ = (id) => document.getElementById(id);

export function h(tag, attributes = {}, ...children) {
  const it = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) it.setAttribute(name, value);
  it.append(...children);
  return it;
}

export function s(tag, attributes = {}, ...children) {
  const it = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) it.setAttribute(name, value);
  it.append(...children);
  return it;
}

export const put = (where, ...children) => where.replaceChildren(...children);

export function count(number) {
  if (number >= 1e6) return `${(number / 1e6).toFixed(number >= 1e7 ? 1 : 2)} M`;
  if (number >= 1e4) return `${(number / 1e3).toFixed(1)} k`;
  return Math.round(number).toLocaleString("en");
}

export function bytes(number) {
  for (const [unit, size] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) if (number >= size) return `${(number / size).toFixed(number >= 10 * size ? 0 : 1)} ${unit}`;
  return `${number} B`;
}

export function seconds(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const all = ms / 1000;
  if (all < 60) return `${all.toFixed(all < 10 ? 1 : 0)} s`;
  if (all < 3600) return `${Math.floor(all / 60)} min`;
  if (all < 172800) return `${Math.floor(all / 3600)} h`;
  return `${Math.floor(all / 86400)} d`;
}

export const day = (ms) => new Date(ms).toLocaleDateString("en", { day: "numeric", month: "short" });
export const moment = (ms) => Math.abs(Date.now() - ms) > 86400000 ? `${day(ms)} ${new Date(ms).getFullYear()}, ${new Date(ms).toLocaleTimeString()}` : new Date(ms).toLocaleTimeString();
export const ago = (ms) => `${seconds(Math.max(0, Date.now() - ms))} ago`;

export function spark(values) {
  const top = Math.max(1e-9, ...values), wide = Math.max(2, values.length) - 1;
  const points = values.map((value, place) => `${(100 * place / wide).toFixed(2)} ${(24 - 21 * value / top).toFixed(2)}`);
  const picture = s("svg", { class: "spark", viewBox: "0 0 100 26", preserveAspectRatio: "none", "aria-hidden": "true" });
  if (points.length > 1) picture.append(s("path", { class: "area", d: `M0 26 L${points.join(" L")} L100 26 Z` }), s("path", { class: "line", d: `M${points.join(" L")}` }));
  return picture;
}
