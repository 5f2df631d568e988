// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/serialize/archive.h>

#include <string>

#include "hone/core/check.h"
#include "hone/train/optim/multi_tensor_optimizer.h"

namespace hone::optim {

// LibTorch's rule for groups with partial options: a field that still has its constructor's value
// takes the optimiser's.
template <class T>
T inherit_field(const T& given, const T& fresh, const T& defaults) {
  return given == fresh ? defaults : given;
}

// Options of the wanted class; Error{InvalidArgument} naming the optimiser otherwise.
template <class Wanted>
const Wanted& options_as(const std::string& optimizer,
                         const torch::optim::OptimizerOptions& options) {
  const auto* typed = dynamic_cast<const Wanted*>(&options);
  HONE_CHECK(typed != nullptr, optimizer, concat(optimizer, "Options for every group"),
             "options of another optimiser");
  return *typed;
}

// Enumerators go into archives as integers; absent (an archive of LibTorch's): unchanged.
template <class Enum>
void write_enum(torch::serialize::OutputArchive& archive, const std::string& key, Enum value) {
  archive.write(key, c10::IValue(static_cast<std::int64_t>(value)));
}
template <class Enum>
bool read_enum(torch::serialize::InputArchive& archive, const std::string& key, Enum last,
               Enum& value) {
  c10::IValue stored;
  if (!archive.try_read(key, stored)) return false;
  const std::int64_t number = stored.toInt();
  if (number < 0 || number > static_cast<std::int64_t>(last)) {
    fail_corrupt("optimiser archive", concat(key, " from 0 to ", static_cast<std::int64_t>(last)),
                 concat(number));
  }
  value = static_cast<Enum>(number);
  return true;
}
inline bool read_bool(torch::serialize::InputArchive& archive, const std::string& key,
                      bool& value) {
  c10::IValue stored;
  if (!archive.try_read(key, stored)) return false;
  value = stored.toBool();
  return true;
}

}  // namespace hone::optim
