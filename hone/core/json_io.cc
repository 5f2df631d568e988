// SPDX-License-Identifier: Apache-2.0
#include "hone/core/json_io.h"

#include <set>
#include <string>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/file_io.h"

namespace hone {
namespace {

// Follows the parser to bound nesting and to see duplicate keys, which a DOM would swallow.
class Guard {
 public:
  Guard(std::string_view where, const JsonLimits& limits) : where_(where), limits_(limits) {}

  bool operator()(int depth, Json::parse_event_t event, Json& value) {
    using Event = Json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) {
      if (depth + 1 > limits_.depth) {
        fail_corrupt(where_, concat("JSON at most ", limits_.depth, " levels deep"),
                     "a deeper one");
      }
      if (event == Event::object_start) keys_.emplace_back();
    } else if (event == Event::object_end) {
      keys_.pop_back();
    } else if (event == Event::key && limits_.refuse_duplicate_keys) {
      const auto& key = value.get_ref<const std::string&>();
      if (!keys_.back().insert(key).second) {
        fail_corrupt(where_, "every JSON key once", concat("\"", key.substr(0, 80), "\" twice"));
      }
    }
    return true;
  }

 private:
  std::string_view where_;
  JsonLimits limits_;
  std::vector<std::set<std::string>> keys_;
};

}  // namespace

Json parse_json(std::string_view text, std::string_view where, const JsonLimits& limits) {
  try {
    Guard guard(where, limits);
    return Json::parse(text.begin(), text.end(),
                       [&guard](int depth, Json::parse_event_t event, Json& value) {
                         return guard(depth, event, value);
                       });
  } catch (const Json::exception& error) {
    std::string reason = error.what();
    const auto bracket = reason.find("] ");
    if (bracket != std::string::npos) reason = reason.substr(bracket + 2);
    fail_corrupt(where, "valid JSON", reason.substr(0, 200));
  }
}

Json read_json_file(const std::filesystem::path& path, const JsonLimits& limits) {
  return parse_json(read_text_file(path), path.string(), limits);
}

void write_json_file(const std::filesystem::path& path, const Json& json) {
  write_text_file(path, json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace hone
