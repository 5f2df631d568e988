// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "hone/app/torch/eval_vision.h"
#include "hone/report/bundle.h"

namespace hone::app {

// Data that the report of a classifier shows besides its card.
struct VisionReportData {
  std::string model, data;           // names
  std::vector<std::string> classes;  // by label
  std::vector<Index> labels, predictions;
  std::vector<report::SvgPoint> plane;  // one per image; empty without features
  std::vector<report::Picture> pictures;
};

// Makes a report with card, calibration, confusion, features and parts. The drawing of the
// confusion matrix shows at most 100 classes: those with the most wrong images. The drawing of
// features shows at most 2000 points.
report::Report make_vision_report(const VisionCard& card, const VisionReportData& data);

}  // namespace hone::app
