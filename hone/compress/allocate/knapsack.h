// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "hone/core/index.h"

namespace hone::compress {

// What a group of matrices would cost in one format.
struct FormatCost {
  std::string format;
  Index bytes = 0;
  double loss = 0;
};

// Matrices that get the same format, and the formats that they may have.
struct MatrixGroup {
  std::string name;
  std::vector<std::string> tensors = {};
  std::vector<FormatCost> costs = {};
};

// The costs that lie on the lower convex hull of loss over bytes, by rising bytes and falling loss.
std::vector<FormatCost> lower_hull(std::vector<FormatCost> costs);

// Chooses a format for each group so that the bytes are at most `budget` and the sum of losses is
// small: starts with the smallest formats and takes the step that saves the most loss per byte
// while one fits. Of all choices on the hulls this is the best one for the bytes that it uses.
// Throws Error{InvalidArgument} that names the least budget if the smallest formats do not fit.
std::vector<FormatCost> choose_formats(const std::vector<MatrixGroup>& groups, Index budget);

}  // namespace hone::compress
