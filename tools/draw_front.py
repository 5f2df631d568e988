#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the picture of README.md from the report of `hone demo`: the size of each variant against
its bits per byte, with 95 % intervals and the entropy of the source.

tools/draw_front.py [build/demo/report.json [FILE.svg]]
"""

import json
import math
import pathlib
import sys
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 760, 340
LEFT, RIGHT, TOP, BOTTOM = 70, 24, 40, 48
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #24292f }
.note { fill: #57606a } .grid { stroke: #d0d7de } .floor { stroke: #57606a; stroke-dasharray: 6 4 }
.whisker { stroke: #0969da; stroke-width: 1.5 } .point { fill: #0969da }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .note { fill: #9198a1 } .grid { stroke: #3d444d }
  .floor { stroke: #9198a1 } .whisker { stroke: #4493f8 } .point { fill: #4493f8 }
}
"""


def read_points(report):
    """[(name, megabytes, bits per byte, low, high)]; the interval is that of the perplexity ratio
    to the first variant, which is paired, in bits."""
    base = report["variants"][0]["quality"]["bits_per_byte"]
    points = []
    for variant in report["variants"]:
        card = variant["quality"]
        bits_per_nat = card["tokens"] / (card["bytes"] * math.log(2))
        low, high = (base + math.log(ratio) * bits_per_nat for ratio in card["ppl_ratio_ci"])
        points.append((variant["name"], variant["bytes"] * 1e-6, card["bits_per_byte"], low, high))
    return points


def ticks_between(low, high, count=5):
    """Round numbers in [low, high], about `count` of them."""
    step = 10 ** math.floor(math.log10((high - low) / count))
    step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= count)
    first = math.ceil(low / step - 1e-9)
    return [step * k for k in range(first, math.floor(high / step + 1e-9) + 1)]


def log_ticks(low, high):
    """Of 1, 2, 3, 5, 10, 20, … those in [low, high]."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)))
    ticks = [factor * 10.0 ** exponent for exponent in exponents for factor in (1, 2, 3, 5)]
    return [tick for tick in ticks if low <= tick <= high]


class Scale:
    """Values [low, high] with a margin onto pixels [begin, end]."""

    def __init__(self, values, begin, end):
        margin = 0.08 * (max(values) - min(values))
        self.low, self.high = min(values) - margin, max(values) + margin
        self.begin, self.end = begin, end

    def __call__(self, value):
        share = (value - self.low) / (self.high - self.low)
        return round(self.begin + share * (self.end - self.begin), 1)


def place_labels(names, marks):
    """[(name, x, baseline)]: each label above or below its mark (x, top, bottom), on the first
    height at which it meets neither a mark nor another label."""
    taken = [(at - 5, top, at + 5, bottom) for at, top, bottom in marks]
    placed = []
    for name, (at, top, bottom) in zip(names, marks):
        half = 4 * len(name)
        for baseline in (top - 7, bottom + 16, top - 22, bottom + 31, top - 37):
            box = (at - half, baseline - 12, at + half, baseline + 3)
            if not any(box[0] < other[2] and other[0] < box[2] and box[1] < other[3] and
                       other[1] < box[3] for other in taken):
                break
        taken.append(box)
        placed.append((name, at, baseline))
    return placed


def draw(report):
    points = read_points(report)
    floor = report["floor_bits_per_byte"]
    sizes = [p[1] for p in points]
    log_x = Scale([math.log(size) for size in sizes], LEFT, WIDTH - RIGHT)
    y = Scale([floor] + [value for p in points for value in p[2:]], HEIGHT - BOTTOM, TOP)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">'
           f"<title>Size and quality of the demo's variants</title><style>{STYLE}</style>"]

    def x(size):
        return log_x(math.log(size))

    def line(kind, x1, y1, x2, y2):
        out.append(f'<line class="{kind}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>')

    def text(at_x, at_y, words, anchor="middle", kind="note"):
        out.append(f'<text class="{kind}" x="{at_x}" y="{at_y}" text-anchor="{anchor}">'
                   f"{escape(words)}</text>")

    for tick in ticks_between(y.low, y.high):
        line("grid", LEFT, y(tick), WIDTH - RIGHT, y(tick))
        text(LEFT - 8, y(tick) + 4, f"{tick:.4f}", "end")
    for tick in log_ticks(math.exp(log_x.low), math.exp(log_x.high)):
        text(x(tick), HEIGHT - BOTTOM + 20, f"{tick:g}")
    text(LEFT, 20, "bits per byte of held-out text", "start")
    text(WIDTH - RIGHT, HEIGHT - 8, "size in MB, logarithmic", "end")
    line("floor", LEFT, y(floor), WIDTH - RIGHT, y(floor))
    text(WIDTH - RIGHT, y(floor) - 6, f"entropy of the source: {floor:.4f}", "end")
    for _, size, value, low, high in points:
        line("whisker", x(size), y(low), x(size), y(high))
        out.append(f'<circle class="point" cx="{x(size)}" cy="{y(value)}" r="5"/>')
    marks = [(x(size), min(y(high), y(value) - 5), max(y(low), y(value) + 5))
             for _, size, value, low, high in points]
    for name, at, baseline in place_labels([p[0] for p in points], marks):
        text(at, baseline, name, kind="label")
    return "\n".join(out + ["</svg>"]) + "\n"


def main():
    source = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build/demo/report.json")
    target = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else "docs/images/front.svg")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(draw(json.loads(source.read_text(encoding="utf-8"))), encoding="utf-8")
    print(f"{target}: from {source}")


if __name__ == "__main__":
    main()
