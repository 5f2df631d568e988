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

// Error{CorruptFile} that says whose archive it is, unless it may be that of the optimizer `name`,
// whose options are `own`. Archives do not name their class; the options of their first group tell
// it. Classes of the same options pass for each other here.
void check_archive_class(torch::serialize::InputArchive& archive, const std::string& name,
                         const OptionNames& own);

}  // namespace hone::optim
