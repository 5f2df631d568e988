// SPDX-License-Identifier: Apache-2.0
#include "hone/app/torch/vision_report.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/text_format.h"
#include "hone/core/version.h"

namespace hone::app {
namespace {

using report::figure;
using report::Figure;

constexpr std::size_t kMostRows = 100, kMostPoints = 2000;

Figure percent(double share) { return figure(100 * share, "%", 2); }

Figure figure(const std::optional<double>& value, int decimals) {
  return figure(value.value_or(std::nan("")), "", decimals);
}

report::Table card_table(const VisionCard& card) {
  report::Table table;
  table.columns = {"figure", "value", "what it is"};
  const auto add = [&](std::string name, Figure value, std::string meaning) {
    table.rows.push_back({std::move(name), std::move(value), std::move(meaning)});
  };
  add("top-1", percent(card.accuracy), "images classified correctly");
  add("top-5", percent(card.top5_accuracy), "own class among the five most probable");
  add("balanced", percent(card.balanced_accuracy), "mean over classes of their accuracy");
  add("loss", figure(card.loss, "nats", 4), "mean cross-entropy");
  add("ECE", percent(card.ece), concat("calibration error, ", card.reliability.size(), " bins"));
  if (card.neighbor_accuracy) {
    add("neighbors", percent(*card.neighbor_accuracy),
        concat("class of most of the ", card.neighbors, " nearest others by cosine"));
  }
  if (card.fisher_ratio) {
    add("Fisher ratio", figure(card.fisher_ratio, 3), "scatter between classes to that within");
  }
  if (const auto& other = card.comparison) {
    Figure difference = figure(100 * other->difference, "points", 2);
    difference.ci = {100 * other->low, 100 * other->high};
    difference.n = card.images;
    add("baseline's top-1", percent(other->accuracy), other->baseline);
    add("difference", difference, "95 % interval of a paired bootstrap over images");
  }
  return table;
}

report::Table class_table(const VisionCard& card) {
  report::Table table;
  table.title = "Accuracy by class";
  table.columns = {"class", "images", "right", "accuracy"};
  for (const auto& [name, images, right] : card.classes) {
    const double share = static_cast<double>(right) / static_cast<double>(images);
    table.rows.push_back({name, figure(static_cast<double>(images), "", 0),
                          figure(static_cast<double>(right), "", 0), percent(share)});
  }
  return table;
}

report::Section calibration_section(const VisionCard& card) {
  report::LineChart chart;
  chart.title = "Reliability";
  chart.note =
      "Accuracy of the images by the probability that the model gave to its answer. Below the "
      "diagonal it is too sure, above too unsure.";
  chart.x_label = "mean probability of the predicted class";
  chart.y_label = "accuracy";
  report::Series model{"model", {}};
  report::Table bins;
  bins.title = "Bins";
  bins.columns = {"probability up to", "images", "mean probability", "accuracy"};
  for (std::size_t i = 0; i < card.reliability.size(); ++i) {
    const auto& [images, confidence, accuracy] = card.reliability[i];
    if (images == 0) continue;
    model.points.push_back({confidence, accuracy});
    const double end = static_cast<double>(i + 1) / static_cast<double>(card.reliability.size());
    bins.rows.push_back({figure(end, "", 3), figure(static_cast<double>(images), "", 0),
                         percent(confidence), percent(accuracy)});
  }
  chart.series = {{"perfect", {{0, 0}, {1, 1}}}, std::move(model)};
  report::Section section{"Calibration", "", {}};
  if (const auto& scaling = card.scaling) {
    section.lead = concat("Fitted on the images of even index, the temperature ",
                          fixed(scaling->temperature, 3), " changes the error of the ",
                          scaling->images, " others from ", fixed(100 * scaling->error, 2),
                          " % to ", fixed(100 * scaling->scaled_error, 2), " %.");
  }
  section.blocks = {std::move(chart), std::move(bins)};
  return section;
}

// The classes that occur as labels or predictions: all, or those with the most wrong images.
std::vector<Index> shown_classes(const VisionReportData& data) {
  std::map<Index, Index> wrong;
  for (std::size_t i = 0; i < data.labels.size(); ++i) {
    const bool is_wrong = data.labels[i] != data.predictions[i];
    wrong[data.labels[i]] += is_wrong;
    wrong[data.predictions[i]] += is_wrong;
  }
  std::vector<std::pair<Index, Index>> order(wrong.begin(), wrong.end());
  std::ranges::stable_sort(order, [](const auto& a, const auto& b) { return a.second > b.second; });
  if (order.size() > kMostRows) order.resize(kMostRows);
  std::vector<Index> classes;
  for (const auto& [label, count] : order) classes.push_back(label);
  std::ranges::sort(classes);
  return classes;
}

report::Heatmap confusion_map(const VisionReportData& data) {
  report::Heatmap map;
  map.title = "Confusion matrix";
  map.row_label = "class";
  map.column_label = "predicted class";
  const std::vector<Index> shown = shown_classes(data);
  std::map<Index, std::size_t> place;
  for (const Index label : shown) {
    place.emplace(label, place.size());
    map.names.push_back(data.classes[static_cast<std::size_t>(label)]);
  }
  map.note = "Shaded by the share of the row; point at a cell for names and numbers.";
  bool is_all = true;
  map.counts.resize(shown.size() * shown.size());
  for (std::size_t i = 0; i < data.labels.size(); ++i) {
    const auto row = place.find(data.labels[i]), column = place.find(data.predictions[i]);
    if (row == place.end() || column == place.end()) {
      is_all = false;
      continue;
    }
    ++map.counts[row->second * shown.size() + column->second];
  }
  if (!is_all) map.note += concat(" The ", kMostRows, " classes with the most errors are drawn.");
  return map;
}

report::Section confusion_section(const VisionCard& card, const VisionReportData& data) {
  report::Table pairs;
  pairs.title = "Most confused";
  pairs.columns = {"class", "taken for", "images"};
  for (const auto& [name, predicted, images] : card.confused) {
    pairs.rows.push_back({name, predicted, figure(static_cast<double>(images), "", 0)});
  }
  report::Section section{"Confusion", "", {confusion_map(data)}};
  if (pairs.rows.empty()) {
    section.lead = "Every image was classified correctly.";
  } else {
    section.blocks.emplace_back(std::move(pairs));
  }
  section.blocks.emplace_back(class_table(card));
  return section;
}

report::PointCloud feature_cloud(const VisionReportData& data) {
  report::PointCloud cloud;
  cloud.title = "Features on their first two principal components";
  cloud.note = "A point is an image, its color the class; mean of the last map.";
  cloud.x_label = "first component";
  cloud.y_label = "second component";
  std::map<Index, std::size_t> group;
  for (const Index label : data.labels) group.emplace(label, 0);
  for (auto& [label, number] : group) {
    number = cloud.groups.size();
    cloud.groups.push_back(data.classes[static_cast<std::size_t>(label)]);
  }
  const std::size_t images = data.plane.size(), count = std::min(images, kMostPoints);
  if (count < images) cloud.note += concat(" ", count, " of ", images, " images are drawn.");
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t image = i * images / count;
    cloud.points.push_back(
        {data.plane[image].x, data.plane[image].y, group.at(data.labels[image])});
  }
  return cloud;
}

std::vector<report::Headline> headlines_of(const VisionCard& card) {
  std::vector<report::Headline> headlines{
      {"top-1", percent(card.accuracy), concat(card.images, " held-out images")},
      {"balanced", percent(card.balanced_accuracy), "mean over classes"},
      {"calibration error", percent(card.ece), ""}};
  if (card.neighbor_accuracy) {
    headlines.push_back({"nearest neighbors", percent(*card.neighbor_accuracy),
                         concat("of ", card.neighbors, ", each image left out")});
  }
  return headlines;
}

}  // namespace

report::Report make_vision_report(const VisionCard& card, const VisionReportData& data) {
  report::Report report;
  report.title = "Evaluation of a classifier";
  report.subtitle = concat(data.model, " on the held-out images of ", data.data);
  report.headlines = headlines_of(card);
  report.sections = {
      {"Card", "", {card_table(card)}}, calibration_section(card), confusion_section(card, data)};
  if (!data.plane.empty()) {
    report.sections.push_back({"Features", "", {feature_cloud(data)}});
  }
  if (!data.pictures.empty()) {
    report::Pictures pictures;
    pictures.title = "Windows of the parts, the most salient one first";
    pictures.note = "Images of different classes, wrong ones first.";
    pictures.pictures = data.pictures;
    report.sections.push_back({"Parts", "", {std::move(pictures)}});
  }
  report.footer = version_text();
  report.extra["card"] = to_json(card);
  return report;
}

}  // namespace hone::app
