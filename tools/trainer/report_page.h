// The style sheet and the script of reports.
#pragma once

namespace axle::trainer {

inline constexpr char kReportStyle[] = R"css(
:root {
  color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --ink: #1d2129; --soft: #626b78; --line: #e2e5ea;
  --a: #7c9bd8; --a-strong: #2f5fc4; --b: #d4611c; --bad: #c0341d; --bar: #b9c9ea;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14161a; --card: #1c1f25; --ink: #e4e7ec; --soft: #98a1ae; --line: #2d323a;
    --a: #5878b8; --a-strong: #82a6f0; --b: #f2914f; --bad: #f07b66; --bar: #37486d;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
}
main { max-width: 1180px; margin: 0 auto; padding: 28px 20px 48px; }
h1 { font-size: 26px; line-height: 1.2; margin: 0 0 4px; }
h2 { font-size: 17px; margin: 34px 0 12px; }
.soft { color: var(--soft); font-weight: 400; }
.tiles { display: flex; flex-wrap: wrap; gap: 10px; margin: 20px 0 0; }
.tile {
  background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 10px 16px; flex: 1 1 120px; min-width: 0;
}
.tile b { display: block; font-size: 20px; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
.tile span { color: var(--soft); font-size: 13px; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 350px), 1fr)); gap: 14px; }
figure {
  margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 12px 12px 6px; position: relative; min-width: 0;
}
figcaption { display: flex; flex-wrap: wrap; gap: 2px 14px; padding: 0 4px 6px; font-weight: 600; }
figcaption .key { font-weight: 400; font-size: 13px; color: var(--soft); }
.key::before {
  content: ""; display: inline-block; width: 14px; height: 3px; border-radius: 2px;
  margin-right: 6px; vertical-align: middle; background: var(--a-strong);
}
.pair .key.c0::before { background: var(--a); }
.key.c1::before { background: var(--b); }
svg { display: block; width: 100%; height: auto; touch-action: pan-y; }
svg text { fill: var(--soft); font-size: 11.5px; font-variant-numeric: tabular-nums; }
.grid { stroke: var(--line); stroke-width: 1; }
.curve { fill: none; stroke: var(--a-strong); stroke-width: 1.8; stroke-linejoin: round; stroke-linecap: round; }
.pair .curve.c0 { stroke: var(--a); }
.curve.c1, .pair .curve.strong { stroke: var(--b); stroke-width: 2.2; }
.raw { opacity: 0.35; stroke-width: 1 !important; }
.cursor { stroke: var(--soft); stroke-width: 1; stroke-dasharray: 3 3; }
.tip {
  position: absolute; pointer-events: none; display: none; white-space: nowrap; z-index: 1;
  background: var(--ink); color: var(--page); border-radius: 6px; padding: 4px 9px; font-size: 13px;
  font-variant-numeric: tabular-nums;
}
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th, td { text-align: left; padding: 6px 14px; border-top: 1px solid var(--line); vertical-align: top; }
tr:first-child th, tr:first-child td { border-top: 0; }
th { font-weight: 600; color: var(--soft); }
td { overflow-wrap: anywhere; }
.wide td { white-space: nowrap; }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.share { width: 30%; min-width: 90px; }
.share i { display: block; height: 10px; margin-top: 6px; border-radius: 3px; background: var(--bar); min-width: 1px; }
.columns { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 420px), 1fr)); gap: 0 20px; align-items: start; }
.columns > * { min-width: 0; }
.key-cell { width: 40%; color: var(--soft); }
pre {
  margin: 0; padding: 14px 16px; white-space: pre-wrap; overflow-wrap: anywhere;
  font: 13px/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace;
}
.pictures { display: grid; grid-template-columns: repeat(auto-fill, minmax(92px, 1fr)); gap: 10px; }
.pictures div { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 8px; text-align: center; font-size: 13px; }
.pictures img { width: 100%; image-rendering: pixelated; border-radius: 4px; display: block; margin-bottom: 4px; }
.pictures .wrong { border-color: var(--bad); color: var(--bad); }
)css";

// The script, which shows the values of a chart at the pointer. The page contains the values as
// JSON: each chart has a format and a list of curves [name, xs, ys].
inline constexpr char kReportScript[] = R"js(
"use strict";
(() => {
  const charts = JSON.parse(document.getElementById("values").textContent);
  const short = (v, f) => {
    if (v === null) return "not finite";
    if (f === "b") {
      const units = ["B", "kB", "MB", "GB", "TB"];
      let i = 0;
      while (v >= 1000 && i < 4) { v /= 1000; ++i; }
      return `${+v.toPrecision(4)} ${units[i]}`;
    }
    const size = Math.abs(v);
    if (f === "k" && size >= 1e6) return `${+(v / 1e6).toPrecision(4)}M`;
    if (f === "k" && size >= 1e3) return `${+(v / 1e3).toPrecision(4)}k`;
    return size !== 0 && (size < 1e-3 || size >= 1e6) ? v.toExponential(3) : `${+v.toPrecision(5)}`;
  };
  const near = (xs, x) => {
    let low = 0, high = xs.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (xs[middle] < x) low = middle; else high = middle;
    }
    return Math.abs(xs[low] - x) <= Math.abs(xs[high] - x) ? low : high;
  };
  document.querySelectorAll("figure[data-chart]").forEach((figure) => {
    const { curves, format } = charts[+figure.dataset.chart];
    const svg = figure.querySelector("svg");
    const [low, high, from, to] = svg.dataset.x.split(" ").map(Number);
    const box = svg.viewBox.baseVal;
    const cursor = document.createElementNS("http://www.w3.org/2000/svg", "line");
    cursor.setAttribute("class", "cursor");
    cursor.setAttribute("y1", 12);
    cursor.setAttribute("y2", box.height - 26);
    const tip = document.createElement("div");
    tip.className = "tip";
    figure.append(tip);
    const hide = () => { cursor.remove(); tip.style.display = "none"; };
    svg.addEventListener("pointerleave", hide);
    svg.addEventListener("pointermove", (event) => {
      const frame = svg.getBoundingClientRect();
      const place = (event.clientX - frame.left) / frame.width * box.width;
      const wanted = low + (place - from) / (to - from) * (high - low);
      const [, xs] = curves[0];
      if (!xs.length) return;
      const x = xs[near(xs, wanted)];
      const at = from + (to - from) * (x - low) / (high - low);
      cursor.setAttribute("x1", at);
      cursor.setAttribute("x2", at);
      svg.append(cursor);
      const lines = [`update ${x}`];
      for (const [name, cx, cy] of curves) {
        const i = near(cx, x);
        if (cx.length) lines.push(`${name} ${short(cy[i], format)}${cx[i] === x ? "" : ` (at ${cx[i]})`}`);
      }
      tip.replaceChildren(...lines.flatMap((line) => [document.createTextNode(line), document.createElement("br")]));
      tip.style.display = "block";
      const outer = figure.getBoundingClientRect();
      const left = frame.left - outer.left + at / box.width * frame.width;
      const wide = tip.offsetWidth;
      const beside = left < outer.width / 2 ? left + 12 : left - wide - 12;
      tip.style.left = `${Math.max(4, Math.min(beside, outer.width - wide - 4))}px`;
      tip.style.top = `${frame.top - outer.top + 14}px`;
    });
  });
})();
)js";

}  // namespace axle::trainer
