// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "hone/app/torch/classify.h"
#include "hone/cli/command.h"
#include "hone/cli/interrupt.h"
#include "hone/cli/trace_options.h"
#include "hone/cli/validators.h"
#include "hone/cli/verbs.h"
#include "hone/core/check.h"
#include "hone/core/log.h"
#include "hone/core/names.h"
#include "hone/core/text_format.h"

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

std::string percent(double share) { return fixed(100 * share, 2) + " %"; }

void print_card(const app::VisionCard& card) {
  const auto print = [](const auto&... parts) { std::puts(concat(parts...).c_str()); };
  print(card.images, " images, accuracy ", percent(card.accuracy), ", loss ", fixed(card.loss, 4),
        " nats");
  print("top-5 ", percent(card.top5_accuracy), ", balanced accuracy ",
        percent(card.balanced_accuracy));
  print("calibration error ", percent(card.ece), " in ", card.reliability.size(), " bins");
  if (const auto& scaling = card.scaling) {
    print("temperature ", fixed(scaling->temperature, 3),
          ", fitted on every second image, changes the calibration error of the ", scaling->images,
          " others from ", percent(scaling->error), " to ", percent(scaling->scaled_error));
  }
  if (card.neighbor_accuracy) {
    print("nearest neighbors (", card.neighbors, ") ", percent(*card.neighbor_accuracy));
  }
  if (card.fisher_ratio) print("Fisher ratio ", fixed(*card.fisher_ratio, 3));
  if (const auto& other = card.comparison) {
    print("baseline ", escape_controls(other->baseline), ": accuracy ", percent(other->accuracy),
          ", difference ", fixed(100 * other->difference, 2), " points [",
          fixed(100 * other->low, 2), ", ", fixed(100 * other->high, 2), "]");
  }
  for (const auto& [name, predicted, images] : card.confused) {
    print("confused: ", escape_controls(name), " taken for ", escape_controls(predicted), ", ",
          images, images == 1 ? " image" : " images");
  }
  for (const auto& [name, images, right] : card.classes) {
    print(align_left(escape_controls(name), 24), ' ', right, " of ", images);
  }
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
      .model = options.model, .threads = context.common.threads, .stop = &Interrupt::flag()};
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
  job.stop = &Interrupt::flag();
  const app::VisionCard card = app::evaluate_vision(job);
  context.finish(app::to_json(card), [&] { print_card(card); });
}

void add_classify(CLI::App& program, Context& context) {
  auto options = std::make_shared<ClassifyCommand>();
  CLI::App* verb = program.add_subcommand(
      "classify", "Classify images, or measure a classifier as `hone eval` does");
  verb->add_option("MODEL", options->model,
                   "Model folder that `hone train vision` wrote: model/ in that of the run")
      ->required();
  verb->add_option("IMAGE", options->images, "Image files: JPEG, PNG, PGM or PPM");
  verb->add_option("--data", options->data,
                   "Folder as for `hone train vision`, or leaves: prints the card of `hone eval`");
  verb->add_option("--top", options->top, "Number of classes to print for each image")
      ->check(whole_number(1))
      ->capture_default_str();
  add_trace_option(*verb, context);
  verb->callback([options, &context] { run(*options, context); });
}

}  // namespace hone::cli
