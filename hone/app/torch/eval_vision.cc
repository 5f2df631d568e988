// SPDX-License-Identifier: Apache-2.0
#include "hone/app/torch/eval_vision.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "hone/app/torch/held_out_images.h"
#include "hone/app/torch/part_pictures.h"
#include "hone/app/torch/score_part.h"
#include "hone/app/torch/train_run.h"
#include "hone/app/torch/vision_report.h"
#include "hone/compress/quality/block_bootstrap.h"
#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "hone/data/leaves/leaves.h"
#include "hone/train/memory/device_memory.h"
#include "hone/train/task/vision/metrics/feature_metrics.h"
#include "hone/train/task/vision/metrics/logit_metrics.h"

namespace hone::app {
namespace {

constexpr Index kTop = 5, kConfusedPairs = 10, kExamples = 12;

// A model and what it makes of the images.
struct Scored {
  task::VisionModel model;
  std::vector<Index> labels, predictions;
  task::ImageScores scores;
};

data::ImageParts parts_of(const VisionEvalOptions& options) {
  return options.all ? data::ImageParts::All : data::ImageParts::HeldOut;
}

Scored score(const VisionEvalOptions& options, const std::filesystem::path& folder,
             task::VisionModel model, const data::ImageCorpus& corpus) {
  Scored out{std::move(model), {}, {}, {}};
  out.labels = labels_of(corpus, corpus.held_out, out.model.classes);
  out.scores = score_part(out.model, folder, corpus.held_out, options.stop);
  out.predictions = task::predict_classes(out.scores.logits);
  return out;
}

std::vector<ClassAccuracy> accuracy_by_class(const data::ImageCorpus& corpus,
                                             const Scored& scored) {
  std::vector<ClassAccuracy> classes;
  for (const std::string& name : corpus.classes) classes.push_back({.name = name});
  for (std::size_t i = 0; i < scored.labels.size(); ++i) {
    const Index label = corpus.held_out.label(static_cast<Index>(i));
    ClassAccuracy& own = classes[static_cast<std::size_t>(label)];
    ++own.images;
    own.right += scored.predictions[i] == scored.labels[i];
  }
  return classes;
}

VisionCard make_card(const VisionEvalOptions& options, const data::ImageCorpus& corpus,
                     const Scored& scored) {
  const std::vector<std::string>& names = scored.model.classes;
  const auto name_of = [&](Index label) { return names[static_cast<std::size_t>(label)]; };
  const torch::Tensor& logits = scored.scores.logits;
  const std::vector<Index>& labels = scored.labels;
  VisionCard card;
  card.images = std::ssize(labels);
  card.broken_images = corpus.broken;
  card.loss = task::mean_nll(logits, labels);
  card.accuracy = task::top_accuracy(logits, labels, 1);
  card.top5_accuracy = task::top_accuracy(logits, labels, kTop);
  const task::ConfusionMatrix confusion(labels, scored.predictions, std::ssize(names));
  card.balanced_accuracy = task::balanced_accuracy(confusion);
  for (const auto& [label, predicted, images] : task::most_confused(confusion, kConfusedPairs)) {
    card.confused.push_back({name_of(label), name_of(predicted), images});
  }
  const task::Confidences found = task::confidences_of(logits, labels);
  card.reliability = task::calibration_bins(found.confidences, found.right, options.ece_bins);
  card.ece = task::calibration_error(card.reliability);
  if (card.images >= 2) card.scaling = task::scale_temperature(logits, labels, options.ece_bins);
  card.neighbors = std::min(options.neighbors, card.images - 1);
  if (const torch::Tensor& features = scored.scores.features; features.defined()) {
    card.fisher_ratio = task::fisher_ratio(features, labels);
    card.neighbor_accuracy =
        task::neighbor_accuracy(features, labels, options.neighbors, options.stop);
  }
  card.classes = accuracy_by_class(corpus, scored);
  return card;
}

// Refuses before anything is computed.
task::VisionModel read_baseline(const VisionEvalOptions& options, const task::VisionModel& model) {
  task::VisionModel baseline = task::read_vision_model(options.baseline);
  if (options.data != data::kLeavesName || !model.leaves) return baseline;
  HONE_CHECK(baseline.leaves && baseline.leaves->classes == model.leaves->classes &&
                 baseline.image_shape() == model.image_shape(),
             "baseline",
             concat("a model of ", model.leaves->classes, " classes of leaves of ",
                    model.leaves->size, " pixels a side"),
             !baseline.leaves ? std::string("one that was not trained on leaves")
                              : concat(baseline.leaves->classes, " classes, ",
                                       baseline.leaves->size, " pixels"));
  return baseline;
}

// The baseline sees the same images, which are read again if it takes another size.
VisionComparison compare(const VisionEvalOptions& options, task::VisionModel baseline,
                         const data::ImageCorpus& corpus, const Scored& scored) {
  data::ImageCorpus resized;
  const bool same_size = baseline.image_shape() == corpus.shape;
  if (!same_size) resized = load_held_out(options.data, baseline, options.stop, parts_of(options));
  const Scored other =
      score(options, options.baseline, std::move(baseline), same_size ? corpus : resized);
  HONE_CHECK(other.labels.size() == scored.labels.size(), "baseline",
             concat(scored.labels.size(), " images of the size that it takes"),
             other.labels.size());
  std::vector<bool> ours, theirs;
  for (std::size_t i = 0; i < scored.labels.size(); ++i) {
    ours.push_back(scored.predictions[i] == scored.labels[i]);
    theirs.push_back(other.predictions[i] == other.labels[i]);
  }
  VisionComparison out = compare_accuracy(ours, theirs, options.seed);
  out.baseline = options.baseline.string();
  return out;
}

std::string report_of(const VisionEvalOptions& options, const data::ImageCorpus& corpus,
                      Scored& scored, const VisionCard& card) {
  VisionReportData data{.model = options.model.string(),
                        .data = options.data,
                        .classes = scored.model.classes,
                        .labels = scored.labels,
                        .predictions = scored.predictions,
                        .plane = {},
                        .pictures = {}};
  if (scored.scores.features.defined()) {
    const torch::Tensor plane = task::principal_plane(scored.scores.features);
    const auto at = plane.accessor<double, 2>();
    for (Index i = 0; i < plane.size(0); ++i) data.plane.push_back({at[i][0], at[i][1]});
  }
  if (scored.model.parts) {
    const std::vector<Index> examples =
        choose_examples(scored.labels, scored.predictions, kExamples);
    data.pictures =
        part_pictures(scored.model, corpus.held_out, examples, scored.labels, scored.predictions);
  }
  return report::render_html(make_vision_report(card, data));
}

// The report's file, which takes its name when it is complete; null if there shall be none.
std::unique_ptr<AtomicFile> open_report(const VisionEvalOptions& options) {
  if (options.report.empty()) return nullptr;
  std::error_code ignored;
  HONE_REQUIRE(!std::filesystem::is_directory(options.report, ignored), options.report.string(),
               "The report is a file, but this is a folder.");
  if (options.data != data::kLeavesName) check_output_outside(options.report, options.data);
  check_output_spares(options.report, options.model);
  if (!options.baseline.empty()) check_output_spares(options.report, options.baseline);
  return std::make_unique<AtomicFile>(options.report);
}

VisionCard evaluate(const VisionEvalOptions& options) {
  prepare_libtorch(options.threads);
  HONE_CHECK(options.ece_bins > 0, "ece-bins", "at least 1", options.ece_bins);
  HONE_CHECK(options.neighbors > 0, "neighbors", "at least 1", options.neighbors);
  task::VisionModel model = task::read_vision_model(options.model);
  std::optional<task::VisionModel> baseline;
  if (!options.baseline.empty()) baseline = read_baseline(options, model);
  const data::ImageCorpus corpus =
      load_held_out(options.data, model, options.stop, parts_of(options));
  const std::unique_ptr<AtomicFile> file = open_report(options);
  Scored scored = score(options, options.model, std::move(model), corpus);
  VisionCard card = make_card(options, corpus, scored);
  if (baseline) card.comparison = compare(options, *std::move(baseline), corpus, scored);
  if (file) {
    file->write(report_of(options, corpus, scored, card));
    file->commit();
  }
  return card;
}

}  // namespace

VisionComparison compare_accuracy(const std::vector<bool>& ours, const std::vector<bool>& theirs,
                                  std::uint64_t seed) {
  std::vector<double> differences;
  for (std::size_t i = 0; i < ours.size(); ++i) differences.push_back(ours[i] - theirs[i]);
  const compress::MeanInterval mean =
      compress::bootstrap_mean(differences, {.block = 1, .seed = seed});
  return {.baseline = {},
          .accuracy = static_cast<double>(std::ranges::count(theirs, true)) /
                      static_cast<double>(theirs.size()),
          .difference = mean.mean,
          .low = mean.low,
          .high = mean.high};
}

VisionCard evaluate_vision(const VisionEvalOptions& options) {
  return memory::run_in_memory("eval", [&] { return evaluate(options); });
}

Json to_json(const VisionCard& card) {
  Json json = {{"images", card.images},
               {"broken_images", card.broken_images},
               {"loss", card.loss},
               {"accuracy", card.accuracy},
               {"top5_accuracy", card.top5_accuracy},
               {"balanced_accuracy", card.balanced_accuracy},
               {"ece", card.ece},
               {"reliability", Json::array()},
               {"temperature", Json()},
               {"fisher_ratio", to_json(card.fisher_ratio)},
               {"neighbors", card.neighbors},
               {"neighbor_accuracy", to_json(card.neighbor_accuracy)},
               {"confused", Json::array()},
               {"classes", Json::array()},
               {"baseline", Json()}};
  for (const auto& [images, confidence, accuracy] : card.reliability) {
    json["reliability"].push_back(
        {{"images", images}, {"confidence", confidence}, {"accuracy", accuracy}});
  }
  if (const auto& scaling = card.scaling) {
    json["temperature"] = {{"value", scaling->temperature},
                           {"images", scaling->images},
                           {"ece_before", scaling->error},
                           {"ece_after", scaling->scaled_error}};
  }
  for (const auto& [name, predicted, images] : card.confused) {
    json["confused"].push_back({{"class", name}, {"predicted", predicted}, {"images", images}});
  }
  for (const auto& [name, images, right] : card.classes) {
    json["classes"].push_back({{"name", name}, {"images", images}, {"right", right}});
  }
  if (const auto& comparison = card.comparison) {
    json["baseline"] = {{"model", comparison->baseline},
                        {"accuracy", comparison->accuracy},
                        {"difference", comparison->difference},
                        {"difference_ci", {comparison->low, comparison->high}}};
  }
  return json;
}

}  // namespace hone::app
