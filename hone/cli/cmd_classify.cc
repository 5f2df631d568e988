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
#include "hone/core/check.h"
#include "hone/core/log.h"
#include "hone/core/names.h"

namespace hone::cli {
namespace {

struct Options {
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

void print_evaluation(const app::ImageEvaluation& result) {
  std::printf("%lld images, accuracy %.2f %%, loss %.4f nats\n",
              static_cast<long long>(result.images), 100 * result.accuracy, result.loss);
  for (const auto& [name, images, right] : result.classes) {
    std::printf("%-24s %lld of %lld\n", escape_controls(name).c_str(),
                static_cast<long long>(right), static_cast<long long>(images));
  }
}

void run(const Options& options, Context& context) {
  HONE_CHECK(options.images.empty() != options.data.empty(), "classify", "either images or --data",
             options.data.empty() ? "neither" : "both");
  const Interrupt interrupt;
  const app::ClassifyOptions job{
      .model = options.model, .threads = context.common.threads, .stop = &Interrupt::flag()};
  if (!options.data.empty()) {
    const app::ImageEvaluation result = app::evaluate_images(job, options.data);
    return context.finish(app::to_json(result), [&] { print_evaluation(result); });
  }
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

void add_classify(CLI::App& program, Context& context) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = program.add_subcommand(
      "classify", "Classify images, or measure the accuracy of a classifier");
  verb->add_option("MODEL", options->model, "Model folder that `hone train vision` wrote")
      ->required();
  verb->add_option("IMAGE", options->images, "Image files: JPEG, PNG, PGM or PPM");
  verb->add_option("--data", options->data,
                   "Folder as for `hone train vision`; measures the accuracy on its held-out part");
  verb->add_option("--top", options->top, "Number of classes to print for each image")
      ->check(whole_number(1))
      ->capture_default_str();
  add_trace_option(*verb, context);
  verb->callback([options, &context] { run(*options, context); });
}

}  // namespace hone::cli
