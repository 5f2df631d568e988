// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>

namespace hone::model_io {

// The double with the same shortest decimal as this float: 1e-05f becomes 1e-05 rather than
// 9.99999974737875e-06, so that settings survive a round trip through a file that stores them as
// f32.
inline double widen_decimal(float value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  double out = value;
  std::from_chars(text, end, out);
  return out;
}

}  // namespace hone::model_io
