// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "hone/app/torch/classify.h"
#include "hone/cli/command.h"
#include "hone/cli/interrupt.h"
#include "hone/cli/torch_runs.h"
#include "hone/cli/trace_options.h"
#include "hone/cli/validators.h"
#include "hone/core/check.h"
#include "hone/core/log.h"
#include "hone/core/names.h"
#include "hone/core/text_format.h"
#include "hone/measure/measure.h"

namespace hone::cli {
namespace {

struct ClassifyCommand {
  std::string model, data;
  std::vector<std::string> images;
  Index top = 3;
};

void print_images(const std::vector<app::ClassifiedImage>& images) {
  for (const app::ClassifiedImage& image : images) {
    if (!image.problem.empty()) continue;
    std::string line = escape_controls(image.path.string());
    for (const auto& [name, probability] : image.classes) {
      line += concat(&name == &image.classes.front().name ? "  " : ", ", escape_controls(name), ' ',
                     100 * probability, " %");
    }
    std::puts(line.c_str());
  }
}

using Rows = std::vector<std::vector<std::string>>;

std::string percent(double share) { return fixed(100 * share, 2); }

void add_calibration(const app::VisionCard& card, Rows& rows) {
  rows.push_back(
      {"calibration error", percent(card.ece), concat("% in ", card.reliability.size(), " bins")});
  if (const auto& scaling = card.scaling) {
    rows.push_back({"temperature", fixed(scaling->temperature, 3),
                    concat("fitted on every second image; calibration error of the ",
                           scaling->images, " others ", percent(scaling->error), " -> ",
                           percent(scaling->scaled_error), " %")});
  }
}

Rows figures_of(const app::VisionCard& card) {
  Rows rows{{"images", group_digits(card.images),
             card.broken_images > 0 ? concat(card.broken_images, " more cannot be decoded") : ""},
            {"accuracy", percent(card.accuracy), "% of the images"},
            {"top-5 accuracy", percent(card.top5_accuracy), "%"},
            {"balanced accuracy", percent(card.balanced_accuracy), "%, mean over the classes"},
            {"cross-entropy", fixed(card.loss, 4), "nats an image"}};
  add_calibration(card, rows);
  if (card.neighbor_accuracy) {
    rows.push_back({"nearest neighbors", percent(*card.neighbor_accuracy),
                    concat("% by the votes of ", card.neighbors)});
  }
  if (card.fisher_ratio) rows.push_back({"Fisher ratio", fixed(*card.fisher_ratio, 3)});
  if (const auto& other = card.comparison) {
    rows.push_back({"baseline's accuracy", percent(other->accuracy),
                    concat("%, ", escape_controls(other->baseline))});
    rows.push_back({"difference", fixed(100 * other->difference, 2),
                    concat("points [", fixed(100 * other->low, 2), ", ",
                           fixed(100 * other->high, 2), "] with 95 % confidence")});
  }
  return rows;
}

void print_card(const app::VisionCard& card) {
  std::string text = format_table(figures_of(card), "lrl");
  Rows confused{{"class", "taken for", "images"}};
  for (const auto& [name, predicted, images] : card.confused) {
    confused.push_back({escape_controls(name), escape_controls(predicted), group_digits(images)});
  }
  if (confused.size() > 1) text += "\n" + format_table(confused, "llr");
  Rows classes{{"class", "right", "images", "%"}};
  for (const auto& [name, images, right] : card.classes) {
    const double share = images > 0 ? static_cast<double>(right) / static_cast<double>(images) : 0;
    classes.push_back({escape_controls(name), group_digits(right), group_digits(images),
                       images > 0 ? fixed(100 * share, 1) : "-"});
  }
  text += "\n" + format_table(classes, "lrrr");
  std::fputs(text.c_str(), stdout);
}

void run(const ClassifyCommand& options, Context& context) {
  HONE_CHECK(options.images.empty() != options.data.empty(), "classify", "either images or --data",
             options.data.empty() ? "neither" : "both");
  if (!options.data.empty()) {
    app::VisionEvalOptions job;
    job.model = options.model;
    job.data = options.data;
    return run_vision_eval(job, context);
  }
  const Interrupt interrupt;
  const app::ClassifyOptions job{
      .model = options.model, .threads = context.common.threads, .stop = Interrupt::token()};
  const auto images =
      app::classify_images(job, {options.images.begin(), options.images.end()}, options.top);
  context.finish(app::to_json(images), [&] { print_images(images); });
  for (const app::ClassifiedImage& image : images) {
    if (image.problem.empty()) continue;
    log_error(image.problem);
    context.status = exit_status(ErrorCategory::CorruptFile);
  }
}

}  // namespace

void run_vision_eval(const app::VisionEvalOptions& options, Context& context) {
  const Interrupt interrupt;
  app::VisionEvalOptions job = options;
  job.seed = context.common.seed.value_or(0);
  job.threads = context.common.threads;
  job.stop = Interrupt::token();
  const app::VisionCard card = app::evaluate_vision(job);
  context.finish(app::to_json(card), [&] { print_card(card); });
}

void run_vision_compress(const app::CompressVisionOptions& options, Context& context) {
  const Interrupt interrupt;
  app::CompressVisionOptions job = options;
  job.seed = context.common.seed.value_or(0);
  job.threads = context.common.threads;
  job.stop = Interrupt::token();
  const auto measurer = measure::make_measurer();
  const app::CompressVisionResult result = app::compress_vision(job, *measurer);
  context.finish(result.document, [&] { std::fputs(app::to_table(result).c_str(), stdout); });
  if (result.written) return;
  log_error(concat("[compress] ", result.document["verdict"].get<std::string>(),
                   " Nothing was written."));
  context.status = 1;
}

void add_classify(CLI::App& program, Context& context) {
  auto options = std::make_shared<ClassifyCommand>();
  CLI::App* verb = program.add_subcommand(
      "classify", "Classify images, or measure a classifier as `hone eval` does");
  verb->add_option("MODEL", options->model,
                   "Model folder written by `hone train vision`: model/ in the run's folder")
      ->required();
  verb->add_option("IMAGE", options->images, "Image files: JPEG, PNG, PGM or PPM");
  verb->add_option(
      "--data", options->data,
      "Folder as for `hone train vision`, or leaves; prints the same results as `hone eval`");
  verb->add_option("--top", options->top, "Number of classes to print for each image")
      ->check(whole_number(1))
      ->capture_default_str();
  add_trace_option(*verb, context);
  verb->callback([options, &context] { run(*options, context); });
}

}  // namespace hone::cli
