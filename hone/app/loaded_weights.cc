// SPDX-License-Identifier: Apache-2.0
#include "hone/app/loaded_weights.h"

#include <utility>

#include "hone/core/check.h"
#include "hone/core/log.h"
#include "hone/core/names.h"

namespace hone::app {

Json weights_json(const infer::ModelInfo& info, infer::WeightFormat format) {
  Json kept = Json::array();
  for (const auto& [name, dtype, reason] : info.kept_weights) {
    kept.push_back({{"name", name}, {"dtype", dtype}, {"reason", reason}});
  }
  return {
      {"format", name_of(format)}, {"mapped", info.weights_are_mapped}, {"kept", std::move(kept)}};
}

void log_loaded(const infer::ModelInfo& info) {
  if (info.context < info.wanted_context) {
    log_warning(concat("The KV cache holds ", info.context, " tokens, the context ",
                       info.wanted_context, ": longer texts end there."));
  }
  for (const auto& [name, dtype, reason] : info.kept_weights) {
    log_info(concat(quote_name(name), " stays ", dtype, ": ", reason));
  }
}

}  // namespace hone::app
