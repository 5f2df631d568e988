// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>

#include "hone/core/file/json_io.h"

namespace hone::test {

// The row of a report that an implementation has for a case. Fails the test if there is none.
inline const Json& row_of(const Json& report, const std::string& name, const std::string& impl) {
  for (const Json& row : report.at("rows")) {
    if (row.at("case") == name && row.at("impl") == impl) return row;
  }
  ADD_FAILURE() << "no row " << name << " " << impl;
  return report.at("rows").at(0);
}

// The largest difference, relative to the largest value.
inline double worst(const at::Tensor& got, const at::Tensor& want) {
  return ((got - want).abs().max() / want.abs().max()).item<double>();
}

}  // namespace hone::test
