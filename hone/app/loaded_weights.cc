// SPDX-License-Identifier: Apache-2.0
#include "hone/app/loaded_weights.h"

#include <algorithm>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/log.h"
#include "hone/core/names.h"

namespace hone::app {
namespace {

struct KeptGroup {
  std::string ending;  // of the sentence: "f16: the file has it quantized"
  std::string first;   // the name of a tensor
  Index tensors = 0;
};

}  // namespace

Json kept_json(std::span<const model_io::KeptTensor> kept) {
  Json rows = Json::array();
  for (const auto& [name, dtype, reason] : kept) {
    rows.push_back({{"name", name}, {"dtype", dtype}, {"reason", reason}});
  }
  return rows;
}

std::vector<std::string> describe_kept(const Json& kept, const KeptVerb& verb, bool each) {
  std::vector<KeptGroup> groups;
  for (const Json& row : kept) {
    std::string ending =
        concat(row["dtype"].get<std::string>(), ": ", row["reason"].get<std::string>());
    const auto found = std::ranges::find(groups, ending, &KeptGroup::ending);
    if (!each && found != groups.end()) {
      ++found->tensors;
    } else {
      groups.push_back({std::move(ending), row["name"].get<std::string>(), 1});
    }
  }
  std::vector<std::string> lines;
  for (const auto& [ending, first, tensors] : groups) {
    lines.push_back(tensors == 1 ? concat(quote_name(first), " ", verb.one, " ", ending)
                                 : concat(tensors, " tensors ", verb.several, " ", ending));
  }
  return lines;
}

Json weights_json(const infer::ModelInfo& info, infer::WeightFormat format) {
  return {{"format", name_of(format)},
          {"mapped", info.weights_are_mapped},
          {"kept", kept_json(info.kept_weights)}};
}

void log_loaded(const infer::ModelInfo& info) {
  if (info.context < info.wanted_context) {
    log_warning(concat("The KV cache holds ", info.context, " tokens, the context ",
                       info.wanted_context, ": longer texts end there."));
  }
  const bool each = log_level() == LogLevel::Debug;
  for (const std::string& line :
       describe_kept(kept_json(info.kept_weights), {"stays", "stay"}, each)) {
    log_info(line);
  }
}

}  // namespace hone::app
