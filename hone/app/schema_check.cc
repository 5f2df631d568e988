// SPDX-License-Identifier: Apache-2.0
#include "hone/app/schema_check.h"

#include <algorithm>
#include <string>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/log.h"

namespace hone::app {
namespace {

constexpr std::size_t kShown = 8;  // pointers in a warning

// The same, with a hint where ignoring keywords helps.
std::vector<std::string> check_with_hint(const infer::Request& request) {
  try {
    return infer::check_schema(request);
  } catch (const Error& error) {
    infer::Request tolerant = request;
    tolerant.ignores_unsupported_schema = true;
    if (error.category() != ErrorCategory::Unsupported) throw;
    try {
      infer::check_schema(tolerant);
    } catch (const Error&) {
      throw error;
    }
    throw Error(error.category(),
                concat(error.what(), " --schema-ignore-unsupported leaves out such keywords."));
  }
}

}  // namespace

void check_default_schema(const infer::Request& request) {
  if (request.json_schema.empty()) return;
  const std::vector<std::string> ignored = check_with_hint(request);
  if (ignored.empty()) return;
  std::string list;
  for (std::size_t i = 0; i < std::min(kShown, ignored.size()); ++i) {
    list += concat(i == 0 ? "" : ", ", ignored[i]);
  }
  if (ignored.size() > kShown) list += concat(" and ", ignored.size() - kShown, " more");
  log_warning(concat("JSON schema: not enforced, as asked for: ", list));
}

Json ignored_keywords(const infer::Request& request) {
  if (request.json_schema.empty() || !request.ignores_unsupported_schema) return nullptr;
  return infer::check_schema(request);
}

}  // namespace hone::app
