// SPDX-License-Identifier: Apache-2.0
#include "hone/model_io/metadata/front_matter.h"

#include <yaml.h>

#include <optional>
#include <string>

#include "hone/core/check.h"
#include "hone/core/log.h"

namespace hone::model_io {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 16;
constexpr int kMostLevels = 16;
constexpr std::string_view kFence = "---";

// Without a carriage return at its end. Moves `text` behind the line.
std::string_view take_line(std::string_view& text) {
  const std::size_t end = text.find('\n');
  std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

// Empty if there are no two fences.
std::string_view find_yaml(std::string_view markdown) {
  if (take_line(markdown) != kFence) return {};
  std::string_view rest = markdown;
  while (!rest.empty()) {
    const std::string_view before = markdown.substr(0, markdown.size() - rest.size());
    if (take_line(rest) == kFence) return before;
  }
  return {};
}

// Builds JSON from the events of libyaml. A node that cannot be read is empty.
class YamlReader {
 public:
  explicit YamlReader(std::string_view yaml) {
    is_open_ = yaml_parser_initialize(&parser_) != 0;
    yaml_parser_set_encoding(&parser_, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser_, reinterpret_cast<const unsigned char*>(yaml.data()),
                                 yaml.size());
  }
  YamlReader(const YamlReader&) = delete;
  YamlReader& operator=(const YamlReader&) = delete;
  ~YamlReader() { yaml_parser_delete(&parser_); }

  std::optional<Json> read_document() {
    while (is_open_) {
      Event event(parser_);
      switch (event.type()) {
        case YAML_STREAM_START_EVENT:
        case YAML_DOCUMENT_START_EVENT:
          continue;
        default:
          return read_node(event, 0);
      }
    }
    return std::nullopt;
  }

 private:
  class Event {
   public:
    explicit Event(yaml_parser_t& parser) { has_event_ = yaml_parser_parse(&parser, &event_) != 0; }
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;
    ~Event() {
      if (has_event_) yaml_event_delete(&event_);
    }
    yaml_event_type_t type() const { return has_event_ ? event_.type : YAML_NO_EVENT; }
    Json scalar() const {
      const auto& scalar = event_.data.scalar;
      std::string text(reinterpret_cast<const char*>(scalar.value), scalar.length);
      const bool is_plain = scalar.style == YAML_PLAIN_SCALAR_STYLE;
      if (is_plain && (text.empty() || text == "~" || text == "null")) return nullptr;
      return text;
    }

   private:
    yaml_event_t event_{};
    bool has_event_ = false;
  };

  std::optional<Json> read_node(const Event& event, int level) {
    if (level >= kMostLevels) return std::nullopt;
    switch (event.type()) {
      case YAML_SCALAR_EVENT:
        return event.scalar();
      case YAML_ALIAS_EVENT:
        return Json();
      case YAML_SEQUENCE_START_EVENT:
        return read_sequence(level);
      case YAML_MAPPING_START_EVENT:
        return read_mapping(level);
      default:
        return std::nullopt;
    }
  }

  std::optional<Json> read_sequence(int level) {
    Json list = Json::array();
    for (;;) {
      const Event event(parser_);
      if (event.type() == YAML_SEQUENCE_END_EVENT) return list;
      std::optional<Json> item = read_node(event, level + 1);
      if (!item) return std::nullopt;
      list.push_back(std::move(*item));
    }
  }

  // Appends pairs without a search for equal keys, which would take quadratic time.
  std::optional<Json> read_mapping(int level) {
    Json::object_t pairs;
    for (;;) {
      const Event event(parser_);
      if (event.type() == YAML_MAPPING_END_EVENT) return Json(std::move(pairs));
      const std::optional<Json> key = read_node(event, level + 1);
      if (!key) return std::nullopt;
      std::optional<Json> value = read_node(Event(parser_), level + 1);
      if (!value) return std::nullopt;
      if (key->is_string()) pairs.push_back({key->get<std::string>(), std::move(*value)});
    }
  }

  yaml_parser_t parser_{};
  bool is_open_ = false;
};

}  // namespace

Json read_front_matter(std::string_view markdown, std::string_view where) {
  const std::string_view yaml = find_yaml(markdown);
  if (yaml.empty()) return Json::object();
  std::optional<Json> read;
  if (yaml.size() <= kMostBytes) read = YamlReader(yaml).read_document();
  if (read && read->is_object()) return std::move(*read);
  log_warning(concat(where,
                     ": The front matter of the model card is not read: it is no mapping in ",
                     "YAML, or too large or too deep."));
  return Json::object();
}

}  // namespace hone::model_io
