// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/serialize/archive.h>

#include <set>
#include <string>
#include <string_view>

namespace hone::optim {

using OptionNames = std::set<std::string, std::less<>>;

template <class Options>
OptionNames option_names(const Options& options) {
  OptionNames names;
  Options::visit_fields(options, [&](const char* key, const auto&) { names.insert(key); });
  return names;
}

// Throws Error{CorruptFile} that names the class of the archive, unless the archive may be from the
// optimizer `name` with the options `own`. Archives do not contain the class name; it is inferred
// from the options of the first group. Classes with the same options are not distinguished.
void check_archive_class(torch::serialize::InputArchive& archive, const std::string& name,
                         const OptionNames& own);

}  // namespace hone::optim
