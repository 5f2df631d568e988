// SPDX-License-Identifier: Apache-2.0
#include "hone/core/file/json_io.h"

#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/file/file_io.h"

template class nlohmann::basic_json<nlohmann::ordered_map>;
template class nlohmann::detail::serializer<nlohmann::ordered_json>;

namespace hone {
namespace {

// Builds the document by appending, because ordered_json's own parser searches an object for every
// new key and so takes quadratic time. Limits nesting and rejects duplicate keys.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  Builder(std::string_view where, const JsonLimits& limits) : where_(where), limits_(limits) {}

  Json take() { return std::move(root_); }
  const std::string& problem() const { return problem_; }

  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(number_integer_t value) override { return put(value); }
  bool number_unsigned(number_unsigned_t value) override { return put(value); }
  bool number_float(number_float_t value, const string_t&) override { return put(value); }
  bool string(string_t& value) override { return put(std::move(value)); }
  bool binary(binary_t& value) override { return put(std::move(value)); }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_array() override { return close(); }
  bool key(string_t& value) override {
    if (limits_.refuse_duplicate_keys && !open_.back().keys.insert(value).second) {
      fail_corrupt(where_, concat("The JSON key \"", value.substr(0, 80), "\" occurs twice."));
    }
    key_ = std::move(value);
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const Json::exception& error) override {
    problem_ = error.what();
    return false;
  }

 private:
  struct Level {
    Json* value;
    std::unordered_set<std::string> keys;
  };

  // References to open objects and arrays stay valid: a parent does not grow while a child is open.
  Json& append(Json value) {
    if (open_.empty()) return root_ = std::move(value);
    Json& parent = *open_.back().value;
    if (parent.is_array()) return parent.emplace_back(std::move(value));
    auto& object = parent.get_ref<Json::object_t&>();
    if (!limits_.refuse_duplicate_keys) return object[std::move(key_)] = std::move(value);
    object.push_back({std::move(key_), std::move(value)});
    return object.back().second;
  }
  bool put(Json value) {
    append(std::move(value));
    return true;
  }
  bool open(Json container) {
    if (static_cast<Index>(open_.size()) >= limits_.depth) {
      fail_corrupt(where_, concat("The JSON is nested more than ", limits_.depth, " levels deep."));
    }
    open_.push_back({&append(std::move(container)), {}});
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  std::string_view where_;
  JsonLimits limits_;
  Json root_;
  std::string key_, problem_;
  std::vector<Level> open_;
};

}  // namespace

Json parse_json(std::string_view text, std::string_view where, const JsonLimits& limits) {
  Builder builder(where, limits);
  if (Json::sax_parse(text.begin(), text.end(), &builder)) return builder.take();
  std::string reason = builder.problem();
  const auto bracket = reason.find("] ");
  if (bracket != std::string::npos) reason = reason.substr(bracket + 2);
  fail_corrupt(where, concat("This is not valid JSON: ", reason.substr(0, 200)));
}

Json read_json_file(const std::filesystem::path& path, const JsonLimits& limits) {
  constexpr Index kMostBytes = Index{128} << 20;  // a large tokenizer.json has tens of MiB
  return parse_json(read_text_file(path, kMostBytes), path.string(), limits);
}

void write_json_file(const std::filesystem::path& path, const Json& json) {
  write_text_file(path, json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace hone
