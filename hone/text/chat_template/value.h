// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "hone/core/file/json_io.h"
#include "hone/text/chat_template/marked_text.h"

// The values of templates, with the meaning that Python gives them.
namespace hone::text {

class Value;
using ValueList = std::vector<Value>;

// In the order of insertion.
struct ValueDict {
  std::vector<std::pair<Value, Value>> entries;

  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  void set(Value key, Value value);
};

// What has attributes: a namespace() or the `loop` of a for.
struct ValueObject {
  bool is_namespace = false;
  std::vector<std::pair<std::string, Value>> attributes;

  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};
struct ValueFunction {
  std::string name;
  std::function<Value(const Arguments&)> call;
  int depth = 0;  // of the value that it belongs to
};

class Value {
 public:
  enum class Kind { Undefined, None, Bool, Int, Float, Text, List, Tuple, Dict, Object, Function };

  Value() = default;  // undefined
  static Value undefined(std::string name);
  static Value none();
  explicit Value(bool value);
  explicit Value(std::int64_t value);
  explicit Value(double value);
  explicit Value(MarkedText text);
  explicit Value(std::string text) : Value(MarkedText(std::move(text))) {}
  explicit Value(const char* text) : Value(std::string(text)) {}
  explicit Value(ValueList items, bool is_tuple = false);
  explicit Value(ValueDict dict);
  explicit Value(std::shared_ptr<ValueObject> object);
  explicit Value(ValueFunction function);
  // Every string of the document has this origin.
  static Value from_json(const Json& json, Origin origin);

  Kind kind() const { return static_cast<Kind>(kind_); }
  bool is(Kind kind) const { return this->kind() == kind; }
  bool is_undefined() const { return is(Kind::Undefined); }
  bool is_number() const { return is(Kind::Bool) || is(Kind::Int) || is(Kind::Float); }
  bool is_integer() const { return is(Kind::Bool) || is(Kind::Int); }
  bool is_sequence() const { return is(Kind::List) || is(Kind::Tuple); }

  // They expect the kinds that their names say.
  const std::string& undefined_name() const;
  std::int64_t integer() const;  // also of a Bool
  double number() const;         // of a Bool, Int or Float
  const MarkedText& marked() const;
  const std::string& text() const { return marked().text(); }
  const ValueList& list() const;  // also of a Tuple
  const ValueDict& dict() const;
  ValueObject& object() const;
  const ValueFunction& function() const;

  bool truth() const;
  bool operator==(const Value& other) const;
  std::string_view type_name() const;   // as Python spells it
  int depth() const { return depth_; }  // of lists and dicts, one within the other

 private:
  void include(const Value& part);

  Kind kind_ = Kind::Undefined;
  int depth_ = 0;
  std::variant<std::monostate, std::int64_t, double, std::shared_ptr<const std::string>,
               std::shared_ptr<const MarkedText>, std::shared_ptr<const ValueList>,
               std::shared_ptr<const ValueDict>, std::shared_ptr<ValueObject>,
               std::shared_ptr<const ValueFunction>>
      data_;
};

using ValueKind = Value::Kind;

// Throws Error{InvalidArgument} "[chat template] <sentence>".
[[noreturn]] void fail_template(std::string_view sentence);

}  // namespace hone::text
