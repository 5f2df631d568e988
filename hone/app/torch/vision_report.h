// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "hone/app/torch/eval_vision.h"
#include "hone/report/bundle.h"

namespace hone::app {

// What the report of a classifier shows besides its card.
struct VisionReportData {
  std::string model, data;           // names
  std::vector<std::string> classes;  // by label
  std::vector<Index> labels, predictions;
  std::vector<report::SvgPoint> plane;  // of each image; empty without features
  std::vector<report::Picture> pictures;
};

// Card, calibration, confusion, features and parts. More than 100 classes are reduced to those with
// the most wrong images in the drawing of the confusion matrix, and points to 2000.
report::Report make_vision_report(const VisionCard& card, const VisionReportData& data);

}  // namespace hone::app
