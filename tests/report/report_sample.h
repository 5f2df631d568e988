// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>

#include "hone/report/bundle.h"

namespace hone::report::test {

inline Figure figure(double value, std::string unit, double spread = 0, Index n = 0) {
  Figure result;
  result.value = value;
  result.unit = std::move(unit);
  result.n = n;
  if (spread > 0) {
    result.p10 = value * (1 - spread);
    result.p90 = value * (1 + spread);
  }
  return result;
}

inline LineChart sample_loss_curve() {
  LineChart chart;
  chart.title = "Loss while training";
  chart.note =
      "The dashed line is the exact entropy of the held-out stories: no model can go below it.";
  chart.x_label = "step";
  chart.y_label = "bits per byte";
  chart.log_y = true;
  Series train{"train", {}}, held_out{"held out", {}};
  for (int step = 1; step <= 929; ++step) {
    const double fall = 0.128 + 2.6 * std::exp(-step / 40.0) + 0.35 * std::exp(-step / 260.0);
    train.points.push_back({double(step), fall * (1 + 0.05 * std::sin(step * 12.9898))});
    if (step % 50 == 0) held_out.points.push_back({double(step), fall * 1.01});
  }
  chart.series = {train, held_out};
  chart.references = {{"source entropy", 0.1086}};
  return chart;
}

inline ScatterChart sample_scatter() {
  ScatterChart chart;
  chart.title = "Size, quality and speed";
  chart.note = "Left and low is better; the larger the bubble, the faster it writes.";
  chart.x_label = "file size, MB";
  chart.y_label = "bits per byte, held out";
  chart.size_label = "tokens/s";
  chart.log_x = true;
  const auto add = [&](std::string name, double mb, double bits, double speed, bool front) {
    ScatterPoint point;
    point.name = std::move(name);
    point.x = figure(mb, "MB");
    point.y = figure(bits, "bits/byte");
    point.y.ci = {bits * 0.994, bits * 1.006};
    point.size = speed;
    point.on_front = front;
    chart.points.push_back(point);
  };
  add("f32", 5.13, 0.1301, 2950, true);
  add("bf16", 2.59, 0.1302, 4310, true);
  add("int8:row", 1.36, 0.1303, 6120, true);
  add("q8_0", 1.44, 0.1304, 5980, false);
  add("int4:g32", 0.87, 0.1339, 6800, true);
  add("int4:g128", 0.79, 0.1391, 6900, true);
  add("q4_0", 0.85, 0.1362, 6710, false);
  return chart;
}

inline BarChart sample_bars() {
  BarChart chart;
  chart.title = "One optimizer step";
  chart.note = "Median and 10th to 90th percentile, interleaved in one run.";
  chart.value_label = "ms per step";
  const auto bar = [](std::string name, double ms, double spread, bool ours) {
    return Bar{std::move(name), figure(ms, "ms", spread, 60), ours};
  };
  chart.groups = {{"AdamW, 24 tensors of 1 M",
                   {bar("hone", 31.2, 0.04, true), bar("at::_fused_adamw_", 31.9, 0.05, false),
                    bar("torch::optim::AdamW", 214.0, 0.07, false)}},
                  {"TAM, 24 tensors of 1 M",
                   {bar("hone", 36.8, 0.03, true), bar("ATen operations", 61.4, 0.06, false)}}};
  return chart;
}

inline Table sample_table() {
  Table table;
  table.title = "Every variant, on the same held-out stories";
  table.note = "Intervals are 95 %, paired block bootstrap. Click a heading to sort.";
  table.columns = {"variant", "file",       "bits/byte",       "perplexity ratio",
                   "KL p99",  "same first", "valid sentences", "tokens/s"};
  const auto row = [](std::string name, double mb, double bits, double ratio, double kl, double top,
                      double valid, double speed) {
    Figure ratio_figure = figure(ratio, "");
    ratio_figure.decimals = 4;
    ratio_figure.ci = {ratio * 0.9992, ratio * 1.0008};
    return std::vector<TableCell>{std::move(name),    figure(mb, "MB"),           figure(bits, ""),
                                  ratio_figure,       figure(kl, "nats"),         figure(top, "%"),
                                  figure(valid, "%"), figure(speed, "", 0.03, 20)};
  };
  table.rows = {row("f32", 5.13, 0.1301, 1, 0, 100, 98.7, 2950),
                row("bf16", 2.59, 0.1302, 1.0002, 0.0004, 99.9, 98.7, 4310),
                row("int8:row", 1.36, 0.1303, 1.0008, 0.0021, 99.7, 98.6, 6120),
                row("int4:g32", 0.87, 0.1339, 1.0121, 0.0712, 98.1, 98.0, 6800),
                row("q4_0", 0.85, 0.1362, 1.0194, 0.0935, 97.6, 97.4, 6710)};
  table.highlighted_row = 2;
  return table;
}

inline Samples sample_texts() {
  return {
      "The same beginning, continued by each variant",
      {{"f32", "Once upon a time, there was a little girl named",
        " Mia. Mia had a red ball, and she loved to bounce it every day. One sunny morning, Mia "
        "went to the park with her mother. She took the ball along.",
        "48 tokens, 2 950 tokens/s"},
       {"int4:g32", "Once upon a time, there was a little girl named",
        " Mia. The best thing she had was a blue kite. One windy afternoon, Mia and her father "
        "walked to the beach. Leaves danced in the wind.",
        "44 tokens, 6 800 tokens/s"}}};
}

inline Report sample_report() {
  Report report;
  report.title = "A small model’s life, from first step to last token";
  report.subtitle =
      "1.3 M parameters, trained on endless short stories whose entropy is known exactly, then "
      "made smaller and measured.";
  report.headlines = {
      {"held-out loss", figure(0.1301, "bits/byte"), "the source’s floor is 0.1086"},
      {"training", figure(3.4, "min"), "929 steps on 2 threads"},
      {"smallest within 1 %", figure(1.36, "MB"), "int8:row, 3.8 times smaller"},
      {"fastest", figure(6800, "tokens/s"), "int4:g32, 2.3 times f32"}};
  report.sections = {
      {"Training",
       "Fused AdamW, warm-up and cosine, fixed number of steps.",
       {Prose{
            "Each story is drawn from a grammar that keeps names, pronouns and objects in "
            "agreement.\n\nBecause the grammar is unambiguous, the probability of a text is exact, "
            "and so is the lowest loss that any model can reach."},
        sample_loss_curve()}},
      {"Smaller", "", {sample_scatter(), sample_table()}},
      {"What they write", "", {sample_texts()}},
      {"Faster", "Every pair was timed in one run, A, B, A, B.", {sample_bars()}},
      {"The machine",
       "",
       {MachineCard{{{"CPU", "Example 8-core at 3.1 GHz"},
                     {"Instruction set", "avx512vnni"},
                     {"Threads used", "2 of 2"},
                     {"Read bandwidth", "21.4 GB/s, measured in this run"},
                     {"Other load", "0.03 CPUs"}}}}}};
  report.footer = "hone 0.1.0 · hone demo";
  report.extra["quality"] = Json::array();
  return report;
}

}  // namespace hone::report::test
