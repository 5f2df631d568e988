// SPDX-License-Identifier: Apache-2.0
#include "hone/app/torch/demo_report.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "hone/core/check.h"
#include "hone/core/text_format.h"
#include "hone/core/version.h"
#include "hone/report/bundle.h"
#include "hone/train/trainer/metrics_log.h"

namespace hone::app {
namespace {

using report::figure;
using report::Figure;

Figure figure(const Spread& spread, std::string unit) {
  Figure made = figure(spread.median, std::move(unit), 0);
  made.n = spread.n;
  made.p10 = spread.p10;
  made.p90 = spread.p90;
  return made;
}

Figure figure(const compress::Estimate& estimate, std::string unit, Index n) {
  Figure made = figure(estimate.value, std::move(unit), 4);
  made.n = n;
  made.ci = {estimate.low, estimate.high};
  return made;
}

Figure megabytes(Index bytes) { return figure(static_cast<double>(bytes) * 1e-6, "MB", 2); }

Figure ratio_of(const DemoVariant& variant) {
  return figure(variant.eval.card.comparison->perplexity_ratio, "", variant.eval.card.tokens);
}

bool is_on_front(const DemoResult& result, std::size_t at) {
  return std::ranges::find(result.front, static_cast<Index>(at)) != result.front.end();
}

// Losses in bits per byte, which can be compared with the source's entropy.
report::LineChart loss_chart(const DemoResult& result) {
  const compress::QualityCard& card = result.variants.front().eval.card;
  const double bits_per_nat =
      static_cast<double>(card.tokens) /
      (static_cast<double>(std::max<Index>(card.bytes, 1)) * std::numbers::ln2);
  report::LineChart chart;
  chart.title = "Loss while training";
  chart.note = "Training loss of each step, converted with the held-out text's bytes per token.";
  chart.x_label = "step";
  chart.y_label = "bits per byte";
  chart.log_y = true;  // shows both the descent and the last hundredths above the floor
  report::Series train{"training", {}}, held_out{"held out", {}};
  const std::filesystem::path log = result.training.out / "metrics.csv";
  std::vector<trainer::MetricsRow> rows;
  if (std::filesystem::exists(log)) rows = trainer::read_metrics(log);
  for (const trainer::MetricsRow& row : rows) {
    const auto step = static_cast<double>(row.step);
    train.points.push_back({step, row.loss * bits_per_nat});
    if (row.val_bits_per_byte) held_out.points.push_back({step, *row.val_bits_per_byte});
  }
  chart.series = {std::move(train), std::move(held_out)};
  if (result.floor_bits_per_byte) {
    chart.references.push_back({"entropy of the source", *result.floor_bits_per_byte});
  }
  return chart;
}

report::Section training_section(const DemoResult& result) {
  const TrainLmResult& training = result.training;
  report::Section section;
  section.heading = "Training";
  section.lead = concat(training.parameters, " parameters, ", training.steps, " steps in ",
                        fixed(training.seconds, 0), " seconds");
  if (training.tokens_per_s) {
    section.lead += concat(", ", fixed(*training.tokens_per_s, 0), " tokens per second");
  }
  section.lead += '.';
  if (const auto ratio = floor_ratio(result)) {
    section.blocks.push_back(report::Prose{
        concat("The stories come from a grammar whose probabilities are known exactly, so the loss "
               "has a floor: the entropy of the held-out text itself. No model can go below the "
               "dashed line. The trained model ends at ",
               fixed(*ratio, 3), " times the floor.")});
  }
  section.blocks.push_back(loss_chart(result));
  return section;
}

report::Table variant_table(const DemoResult& result) {
  report::Table table;
  table.title = "Variants";
  table.note =
      "Quality on held-out text, token by token against fp32 with the runtime that serves "
      "the files. Speed: 64 greedy tokens, variants interleaved in one run.";
  table.columns = {"variant",       "size",    "bits per weight", "perplexity ratio",
                   "bits per byte", "mean KL", "top-1",           "tokens/s"};
  const bool stories = result.variants.front().verdict.has_value();
  if (stories) table.columns.push_back("valid sentences");
  for (const DemoVariant& variant : result.variants) {
    const compress::QualityCard& card = variant.eval.card;
    std::vector<report::TableCell> row{variant.name,
                                       megabytes(variant.bytes),
                                       figure(8.0 * static_cast<double>(variant.bytes) /
                                                  static_cast<double>(result.training.parameters),
                                              "", 2),
                                       ratio_of(variant),
                                       figure(card.bits_per_byte.value_or(std::nan("")), "", 4),
                                       figure(card.comparison->kl_mean.value, "nats"),
                                       figure(100 * card.comparison->top1_agreement.value, "%", 2),
                                       figure(variant.tokens_per_s, "")};
    if (stories) row.push_back(figure(100 * variant.verdict->valid_share(), "%", 1));
    table.rows.push_back(std::move(row));
  }
  return table;
}

report::ScatterChart size_quality_chart(const DemoResult& result) {
  report::ScatterChart chart;
  chart.title = "Size, quality, speed";
  chart.note = "Whiskers: 95 % interval of the perplexity ratio.";
  chart.x_label = "size in MB";
  chart.y_label = "perplexity ratio to fp32";
  chart.size_label = "tokens per second";
  for (std::size_t i = 0; i < result.variants.size(); ++i) {
    const DemoVariant& variant = result.variants[i];
    chart.points.push_back({variant.name, megabytes(variant.bytes), ratio_of(variant),
                            variant.tokens_per_s.median, is_on_front(result, i)});
  }
  return chart;
}

report::BarChart speed_chart(const DemoResult& result) {
  report::BarChart chart;
  chart.title = "Speed of writing";
  chart.note = "Median and 10th to 90th percentile.";
  chart.value_label = "tokens per second";
  report::BarGroup group;
  for (std::size_t i = 0; i < result.variants.size(); ++i) {
    const DemoVariant& variant = result.variants[i];
    group.bars.push_back({variant.name, figure(variant.tokens_per_s, ""), is_on_front(result, i)});
  }
  chart.groups.push_back(std::move(group));
  return chart;
}

report::Table pass_table(const DemoResult& result) {
  report::Table table;
  table.title = "Compression passes";
  table.columns = {"pass", "status", "size before", "size after", "products", "reason"};
  for (const Json& pass : result.passes) {
    Figure speedup = figure(std::nan(""), "x", 2);
    if (!pass["speedup"].is_null()) {
      speedup.value = pass["speedup"]["ratio"].get<double>();
      speedup.ci = {pass["speedup"]["ci"][0].get<double>(), pass["speedup"]["ci"][1].get<double>()};
      speedup.n = pass["speedup"]["n"].get<Index>();
    }
    table.rows.push_back({pass["name"].get<std::string>(), pass["status"].get<std::string>(),
                          megabytes(pass["bytes_before"].get<Index>()),
                          megabytes(pass["bytes_after"].get<Index>()), speedup,
                          pass["reason"].get<std::string>()});
  }
  table.note = "Products: how many times faster all affected matrix products of one token are.";
  return table;
}

report::Section compression_section(const DemoResult& result) {
  report::Section section;
  section.heading = "Compression";
  section.lead = concat("The original's SHA-256 is ", result.sha256_before.substr(0, 16),
                        " before and ", result.sha256_after.substr(0, 16), " after.");
  section.blocks = {variant_table(result), size_quality_chart(result), speed_chart(result),
                    pass_table(result)};
  return section;
}

report::Section sample_section(const DemoResult& result) {
  report::Samples samples;
  samples.title = "The same seed through every variant";
  for (const DemoVariant& variant : result.variants) {
    std::string note;
    if (variant.verdict) {
      note = concat(variant.verdict->valid, " of ", variant.verdict->sentences,
                    " sentences valid in ", variant.verdict->stories, " stories");
    }
    samples.samples.push_back({variant.name, result.prompt, variant.sample, note});
  }
  return {"What it writes", "", {samples}};
}

// "a, b" instead of JSON's ["a", "b"].
std::string fact_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return value.dump();
  std::string text;
  for (const Json& item : value) text += concat(text.empty() ? "" : ", ", fact_text(item));
  return text;
}

report::Section machine_section(const DemoResult& result) {
  report::MachineCard card;
  for (const auto& [name, value] : result.machine.items()) {
    if (!value.is_null()) card.facts.emplace_back(name, fact_text(value));
  }
  return {"Machine", "Every figure on this page was measured on it, in this run.", {card}};
}

std::vector<report::Headline> headlines_of(const DemoResult& result) {
  const DemoVariant& original = result.variants.front();
  const std::optional<double> ratio = floor_ratio(result);
  const auto smallest = std::ranges::min_element(result.variants, {}, &DemoVariant::bytes);
  const auto fastest = std::ranges::max_element(
      result.variants, {}, [](const DemoVariant& variant) { return variant.tokens_per_s.median; });
  std::vector<report::Headline> headlines{
      {"held-out loss",
       figure(original.eval.card.bits_per_byte.value_or(std::nan("")), "bits/byte", 3),
       ratio
           ? concat(fixed(*ratio, 3), " times the floor of ", fixed(*result.floor_bits_per_byte, 3))
           : ""},
      {"smallest",
       figure(static_cast<double>(original.bytes) / static_cast<double>(smallest->bytes),
              "x smaller", 2),
       smallest->name},
      {"fastest", figure(fastest->tokens_per_s, "tokens/s"), fastest->name}};
  if (original.verdict) {
    headlines.push_back({"valid sentences", figure(100 * original.verdict->valid_share(), "%", 1),
                         "fp32, judged by the grammar"});
  }
  return headlines;
}

}  // namespace

void write_demo_report(const DemoResult& result, const std::filesystem::path& folder) {
  report::Report report;
  report.title = "One model's life";
  report.subtitle = "Trained, shrunk, measured and used on this machine by hone demo.";
  report.headlines = headlines_of(result);
  report.sections = {training_section(result), compression_section(result), sample_section(result),
                     machine_section(result)};
  report.footer = version_text();
  report.extra = to_json(result);
  report.extra.erase("machine");  // it is in the machine card above
  report::write_report(report, folder);
}

}  // namespace hone::app
