// SPDX-License-Identifier: Apache-2.0
#include "hone/report/html.h"

namespace hone::report {

const std::string_view kPageStyle = R"CSS(
:root {
  color-scheme: light dark;
  --paper: #fcfbf8; --ink: #1c1e21; --muted: #5d636b; --rule: #e3dfd6; --wash: #f4f1ea;
  --accent: #0a6a6e; --second: #a9501b; --quiet: #87919b; --third: #5b4b9a;
  --fourth: #6f7d1a; --fifth: #a8326f;
  --tone0: 42%; --tone1: 56%;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14171a; --ink: #e9e7e2; --muted: #a0a6ad; --rule: #2d3238; --wash: #1c2024;
    --accent: #5fc7c2; --second: #efa264; --quiet: #7c8792; --third: #b3a4f0;
    --fourth: #c2cf6b; --fifth: #ec8bbd;
    --tone0: 62%; --tone1: 76%;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.6 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif;
  font-variant-numeric: tabular-nums; overflow-wrap: break-word;
}
main { max-width: 58rem; margin: 0 auto; padding: 4rem 1.5rem 5rem; }
h1, h2, .headline b { font-family: "Iowan Old Style", Palatino, "Palatino Linotype", Georgia,
  serif; }
h1 { font-size: clamp(2rem, 5vw, 2.75rem); line-height: 1.15; font-weight: 600; margin: 0 0
  .75rem;
  letter-spacing: -.01em; text-wrap: balance; }
h2 { font-size: 1.6rem; line-height: 1.25; font-weight: 600; margin: 4.5rem 0 .5rem; }
p { margin: .75rem 0; max-width: 42rem; }
.subtitle, .lead { color: var(--muted); font-size: 1.08rem; }
nav { margin: 1.75rem 0 0; display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; font-size:
  .92rem; }
a { color: var(--accent); text-decoration-thickness: 1px; text-underline-offset: .2em; }
a:focus-visible, button:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
.headlines { display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr));
  gap: 1.75rem 2rem; margin: 2.75rem 0 0; padding: 0; list-style: none; }
.headline { border-top: 2px solid var(--ink); padding-top: .6rem; }
.headline span { display: block; color: var(--muted); font-size: .88rem; line-height: 1.4; }
.headline b { display: block; font-size: 2.1rem; line-height: 1.2; font-weight: 600; margin:
  .15rem 0; }
.headline b small { font-size: .5em; font-weight: 400; color: var(--muted); margin-left: .3em; }
figure { margin: 2rem 0 2.5rem; }
figcaption { margin: 0 0 .9rem; max-width: 42rem; }
figcaption b { display: block; font-weight: 600; }
figcaption span { color: var(--muted); font-size: .92rem; line-height: 1.5; display: block; }
svg { display: block; width: 100%; height: auto; overflow: visible; }
svg text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif;
  fill: var(--ink); }
.phone svg { display: none; }
.phone svg text { font-size: 12px; }
svg .grid { stroke: var(--rule); stroke-width: 1; }
svg .axis { stroke: var(--quiet); stroke-width: 1; }
svg .tick, svg .axis-name, svg .key { fill: var(--muted); }
svg .line { fill: none; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
svg .s1 { stroke: var(--quiet); } svg .s2 { stroke: var(--accent); }
svg .s3 { stroke: var(--second); } svg .s4 { stroke: var(--third); }
svg .s5 { stroke: var(--fourth); } svg .s6 { stroke: var(--fifth); }
svg .line.s1 { stroke-width: 1.4; }
svg .dot { fill: var(--paper); stroke-width: 2; }
svg .reference { stroke: var(--second); stroke-width: 1.5; stroke-dasharray: 5 4; }
svg .reference-name { fill: var(--second); font-weight: 600; }
svg .front { fill: none; stroke: var(--accent); stroke-width: 1.5; stroke-dasharray: 1 5;
  stroke-linecap: round; }
svg .bubble { fill: var(--quiet); fill-opacity: .28; stroke: var(--quiet); stroke-width: 1.5; }
svg .bubble.on-front { fill: var(--accent); fill-opacity: .3; stroke: var(--accent); }
svg .whisker { stroke: var(--ink); stroke-width: 1.25; }
svg .also { stroke: var(--quiet); stroke-width: 1.25; }
svg .bar { fill: var(--quiet); fill-opacity: .55; } svg .bar.ours { fill: var(--accent);
  fill-opacity: .85; }
svg .value { fill: var(--muted); } svg .value.ours { fill: var(--ink); font-weight: 600; }
svg .group-name { font-weight: 600; }
svg .label, svg .group-name, svg .value, svg .reference-name { paint-order: stroke;
  stroke: var(--paper); stroke-width: 4px; stroke-linejoin: round; }
svg .heat { rx: 0; } svg .heat.frame { fill: var(--wash); stroke: var(--rule); }
svg .heat.hit { fill: var(--accent); } svg .heat.miss { fill: var(--second); }
svg .q1 { fill-opacity: .16; } svg .q2 { fill-opacity: .28; } svg .q3 { fill-opacity: .4; }
svg .q4 { fill-opacity: .52; } svg .q5 { fill-opacity: .64; } svg .q6 { fill-opacity: .76; }
svg .q7 { fill-opacity: .88; } svg .q8 { fill-opacity: 1; }
.c0 { --c: hsl(0 70% var(--tone0)); } .c1 { --c: hsl(138 45% var(--tone1)); }
.c2 { --c: hsl(275 70% var(--tone0)); } .c3 { --c: hsl(53 45% var(--tone1)); }
.c4 { --c: hsl(190 70% var(--tone0)); } .c5 { --c: hsl(328 45% var(--tone1)); }
.c6 { --c: hsl(105 70% var(--tone0)); } .c7 { --c: hsl(243 45% var(--tone1)); }
.c8 { --c: hsl(20 70% var(--tone0)); } .c9 { --c: hsl(158 45% var(--tone1)); }
.c10 { --c: hsl(295 70% var(--tone0)); } .c11 { --c: hsl(73 45% var(--tone1)); }
.c12 { --c: hsl(210 70% var(--tone0)); } .c13 { --c: hsl(348 45% var(--tone1)); }
.c14 { --c: hsl(125 70% var(--tone0)); } .c15 { --c: hsl(263 45% var(--tone1)); }
.c16 { --c: hsl(40 70% var(--tone0)); } .c17 { --c: hsl(178 45% var(--tone1)); }
.c18 { --c: hsl(315 70% var(--tone0)); } .c19 { --c: hsl(93 45% var(--tone1)); }
svg .cloud { fill: var(--c); fill-opacity: .75; }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; margin: 0 0 .9rem; padding: 0;
  list-style: none; font-size: .86rem; color: var(--muted); }
.legend li::before { content: ""; display: inline-block; width: .65rem; height: .65rem;
  border-radius: 50%; background: var(--c); margin-right: .4rem; }
.pictures { display: grid; grid-template-columns: repeat(auto-fill, minmax(9.5rem, 1fr));
  gap: 1.25rem 1rem; font-size: .86rem; line-height: 1.4; }
.pictures b, .pictures span { display: block; overflow-wrap: anywhere; }
.pictures b { font-weight: 600; margin-top: .35rem; } .pictures .marked b { color: var(--second); }
.pictures span { color: var(--muted); }
svg image { image-rendering: pixelated; }
svg .box { fill: none; stroke: #ffd23f; stroke-width: 2.5; rx: 0; }
svg .box-name { fill: #ffd23f; font-weight: 700; paint-order: stroke; stroke: #1c1e21;
  stroke-width: 3px; stroke-linejoin: round; }
.scroll { overflow-x: auto; margin: 0 -1.5rem; padding: 0 1.5rem; }
table { border-collapse: collapse; width: 100%; font-size: .93rem; line-height: 1.4; }
th { text-align: right; vertical-align: bottom; padding: 0; border-bottom: 1.5px solid var(--ink); }
th:first-child, td:first-child { text-align: left; }
th button { all: unset; display: block; box-sizing: border-box; width: 100%; cursor: pointer;
  padding: .4rem 0 .45rem 1.1rem; font-weight: 600; font-size: .86rem; color: var(--muted); }
th button:hover, th[aria-sort] button { color: var(--ink); }
th[aria-sort="ascending"] button::after { content: " \2191"; }
th[aria-sort="descending"] button::after { content: " \2193"; }
th:first-child button { padding-left: 0; }
td { text-align: right; padding: .5rem 0 .5rem 1.1rem; border-bottom: 1px solid var(--rule);
  white-space: nowrap; vertical-align: top; }
td:first-child { padding-left: 0; font-weight: 500; }
th:first-child, td:first-child { position: sticky; left: 0; background: var(--paper); }
td.text { text-align: left; } th.text { text-align: left; }
td small { display: block; color: var(--muted); font-size: .8rem; line-height: 1.35; }
td i { font-style: normal; color: var(--muted); font-size: .86em; margin-left: .2em; }
tr.chosen td { background: var(--wash); }
blockquote { margin: 1.25rem 0; padding: .1rem 0 .1rem 1.1rem; border-left: 3px solid
  var(--accent); }
blockquote header { font-size: .86rem; color: var(--muted); }
blockquote header b { color: var(--ink); font-weight: 600; margin-right: .6em; }
blockquote p { font-family: "Iowan Old Style", Palatino, "Palatino Linotype", Georgia, serif;
  font-size: 1.08rem; margin: .3rem 0; white-space: pre-wrap; }
blockquote strong { color: var(--accent); font-weight: 600; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .35rem 1.5rem; font-size:
  .95rem; }
dt { color: var(--muted); } dd { margin: 0; overflow-wrap: anywhere; }
footer { margin-top: 5rem; padding-top: 1rem; border-top: 1px solid var(--rule); color:
  var(--muted);
  font-size: .86rem; }
@media (max-width: 40rem) {
  main { padding: 2.25rem 1.15rem 3.5rem; }
  h2 { margin-top: 3.25rem; font-size: 1.4rem; }
  .wide svg { display: none; } .phone svg { display: block; }
  .headlines { grid-template-columns: 1fr 1fr; gap: 1.25rem; margin-top: 2rem; }
  .headline b { font-size: 1.6rem; }
  .scroll { margin: 0 -1.15rem; padding: 0 1.15rem; }
  dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: .6rem; }
}
@media print { main { padding: 0; } th button::after { content: none; } }
)CSS";

const std::string_view kPageScript = R"JS(
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const head = button.parentElement, body = head.closest("table").tBodies[0];
    const up = head.getAttribute("aria-sort") !== "ascending";
    for (const other of head.parentElement.children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const key = row => row.children[head.cellIndex].dataset.v;
    const order = (a, b) => {
      const x = key(a), y = key(b);
      if (x === "" || y === "") return (x === "") - (y === "");
      const numbers = !isNaN(x) && !isNaN(y);
      return (numbers ? x - y : x.localeCompare(y)) * (up ? 1 : -1);
    };
    body.append(...[...body.rows].sort(order));
  });
}
)JS";

}  // namespace hone::report
