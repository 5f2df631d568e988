// SPDX-License-Identifier: Apache-2.0
#include "hone/text/chat_template/value.h"

#include <algorithm>
#include <cmath>

#include "hone/core/check.h"
#include "hone/text/chat_template/work_limit.h"

namespace hone::text {

namespace {

constexpr int kMostValueDepth = 500;  // of values; all that walks over them is recursive
constexpr std::size_t kVisit = 16;    // what a look at a value counts in WorkLimit

[[noreturn]] void fail_depth() {
  fail(ErrorCategory::Resource, "chat template", "Values are nested too deep.");
}

}  // namespace

void fail_template(std::string_view sentence) { fail_argument("chat template", sentence); }

const Value* ValueDict::find(const Value& key) const {
  for (const auto& [name, value] : entries) {
    if (name == key) return &value;
  }
  return nullptr;
}

const Value* ValueDict::find(std::string_view key) const {
  WorkLimit::spend(entries.size());
  for (const auto& [name, value] : entries) {
    if (name.is(Value::Kind::Text) && name.text() == key) return &value;
  }
  return nullptr;
}

void ValueDict::set(Value key, Value value) {
  for (auto& [name, old] : entries) {
    if (!(name == key)) continue;
    old = std::move(value);
    return;
  }
  entries.emplace_back(std::move(key), std::move(value));
}

const Value* ValueObject::find(std::string_view name) const {
  const auto found = std::ranges::find(attributes, name, &std::pair<std::string, Value>::first);
  return found == attributes.end() ? nullptr : &found->second;
}

void ValueObject::set(std::string_view name, Value value) {
  WorkLimit::spend(attributes.size() + sizeof(attributes[0]));
  const auto found = std::ranges::find(attributes, name, &std::pair<std::string, Value>::first);
  if (found != attributes.end()) {
    found->second = std::move(value);
  } else {
    attributes.emplace_back(name, std::move(value));
  }
}

Value Value::undefined(std::string name) {
  Value out;
  out.data_ = std::make_shared<const std::string>(std::move(name));
  return out;
}

Value Value::none() {
  Value out;
  out.kind_ = Kind::None;
  return out;
}

Value::Value(bool value) : kind_(Kind::Bool), data_(std::int64_t{value}) {}
Value::Value(std::int64_t value) : kind_(Kind::Int), data_(value) {}
Value::Value(double value) : kind_(Kind::Float), data_(value) {}
Value::Value(MarkedText text)
    : kind_(Kind::Text), data_(std::make_shared<const MarkedText>(std::move(text))) {
  WorkLimit::spend(4 * sizeof(MarkedText));  // with what allocation adds
}
Value::Value(ValueList items, bool is_tuple) : kind_(is_tuple ? Kind::Tuple : Kind::List) {
  WorkLimit::spend((items.size() + 1) * sizeof(Value));
  for (const Value& item : items) include(item);
  data_ = std::make_shared<const ValueList>(std::move(items));
}
Value::Value(ValueDict dict) : kind_(Kind::Dict) {
  WorkLimit::spend((dict.entries.size() + 1) * 2 * sizeof(Value));
  for (const auto& [key, value] : dict.entries) {
    include(key);
    include(value);
  }
  data_ = std::make_shared<const ValueDict>(std::move(dict));
}
Value::Value(std::shared_ptr<ValueObject> object) : kind_(Kind::Object) {
  WorkLimit::spend((object->attributes.size() + 1) * sizeof(object->attributes[0]));
  for (const auto& [name, value] : object->attributes) include(value);
  data_ = std::move(object);
}
Value::Value(ValueFunction function) : kind_(Kind::Function), depth_(function.depth + 1) {
  WorkLimit::spend(sizeof(ValueFunction));
  if (depth_ > kMostValueDepth) fail_depth();
  data_ = std::make_shared<const ValueFunction>(std::move(function));
}

void Value::include(const Value& part) {
  depth_ = std::max(depth_, part.depth_ + 1);
  if (depth_ > kMostValueDepth) fail_depth();
}

Value Value::from_json(const Json& json, Origin origin) {
  switch (json.type()) {
    case Json::value_t::boolean:
      return Value(json.get<bool>());
    case Json::value_t::number_integer:
      return Value(json.get<std::int64_t>());
    case Json::value_t::number_unsigned: {
      const auto number = json.get<std::uint64_t>();
      if (number <= static_cast<std::uint64_t>(INT64_MAX)) {
        return Value(static_cast<std::int64_t>(number));
      }
      return Value(static_cast<double>(number));
    }
    case Json::value_t::number_float:
      return Value(json.get<double>());
    case Json::value_t::string:
      return Value(MarkedText(json.get<std::string>(), origin));
    case Json::value_t::array: {
      ValueList items;
      for (const Json& item : json) items.push_back(from_json(item, origin));
      return Value(std::move(items));
    }
    case Json::value_t::object: {
      ValueDict dict;  // the keys of a document are distinct
      for (const auto& [key, value] : json.items()) {
        dict.entries.emplace_back(Value(MarkedText(key, origin)), from_json(value, origin));
      }
      return Value(std::move(dict));
    }
    default:
      return none();
  }
}

const std::string& Value::undefined_name() const {
  static const std::string nameless = "a value";
  const auto* name = std::get_if<std::shared_ptr<const std::string>>(&data_);
  return name == nullptr ? nameless : **name;
}

std::int64_t Value::integer() const { return std::get<std::int64_t>(data_); }

double Value::number() const {
  return is(Kind::Float) ? std::get<double>(data_) : static_cast<double>(integer());
}

const MarkedText& Value::marked() const {
  return *std::get<std::shared_ptr<const MarkedText>>(data_);
}
const ValueList& Value::list() const { return *std::get<std::shared_ptr<const ValueList>>(data_); }
const ValueDict& Value::dict() const { return *std::get<std::shared_ptr<const ValueDict>>(data_); }
ValueObject& Value::object() const { return *std::get<std::shared_ptr<ValueObject>>(data_); }
const ValueFunction& Value::function() const {
  return *std::get<std::shared_ptr<const ValueFunction>>(data_);
}

bool Value::truth() const {
  switch (kind()) {
    case Kind::Undefined:
    case Kind::None:
      return false;
    case Kind::Bool:
    case Kind::Int:
      return integer() != 0;
    case Kind::Float:
      return number() != 0;
    case Kind::Text:
      return !text().empty();
    case Kind::List:
    case Kind::Tuple:
      return !list().empty();
    case Kind::Dict:
      return !dict().entries.empty();
    case Kind::Object:
    case Kind::Function:
      return true;
  }
  return false;
}

bool Value::operator==(const Value& other) const {
  WorkLimit::spend(kVisit);
  if (is_integer() && other.is_integer()) return integer() == other.integer();
  if (is_number() && other.is_number()) return number() == other.number();
  if (kind() != other.kind()) return false;
  switch (kind()) {
    case Kind::Text:
      if (text().size() == other.text().size()) WorkLimit::spend(text().size());
      return text() == other.text();
    case Kind::List:
    case Kind::Tuple:
      return list() == other.list();
    case Kind::Dict: {
      const ValueDict& mine = dict();
      if (mine.entries.size() != other.dict().entries.size()) return false;
      return std::ranges::all_of(mine.entries, [&](const auto& entry) {
        const Value* value = other.dict().find(entry.first);
        return value != nullptr && *value == entry.second;
      });
    }
    case Kind::Object:
      return &object() == &other.object();
    case Kind::Function:
      return &function() == &other.function();
    default:
      return true;  // undefined or none, both
  }
}

std::string_view Value::type_name() const {
  switch (kind()) {
    case Kind::Undefined:
      return "undefined";
    case Kind::None:
      return "NoneType";
    case Kind::Bool:
      return "bool";
    case Kind::Int:
      return "int";
    case Kind::Float:
      return "float";
    case Kind::Text:
      return "str";
    case Kind::List:
      return "list";
    case Kind::Tuple:
      return "tuple";
    case Kind::Dict:
      return "dict";
    case Kind::Object:
      return "namespace";
    case Kind::Function:
      return "function";
  }
  return "?";
}

}  // namespace hone::text
