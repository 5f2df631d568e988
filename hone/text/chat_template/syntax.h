// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hone/text/chat_template/value.h"

// The syntax tree of a template.
namespace hone::text {

struct Expression;
using ExpressionPtr = std::unique_ptr<const Expression>;

struct Expression {
  enum class Kind {
    Constant,
    Name,
    List,  // operands are the items
    Tuple,
    Dict,       // keys and values in turn
    Attribute,  // operand.name
    Subscript,  // operand[operand]
    Slice,      // operand[begin:end:step]; missing ones are null
    Call,       // operand(operands, named)
    Filter,     // operand|name(operands, named); the operand is null in a filter block
    Test,       // operand is name(operands, named)
    Negative,
    Positive,
    Not,
    Arithmetic,  // `name` is the operator, also ~
    Comparison,  // operand, then an operand for each of `operators`
    And,
    Or,
    Conditional,  // then, condition, else; the last may be null
  };
  Kind kind = Kind::Constant;
  int line = 0, depth = 1;  // depth counts itself and the operands below it
  std::string name{};
  Value constant{};
  std::vector<ExpressionPtr> operands{};
  std::vector<std::pair<std::string, ExpressionPtr>> named{};
  std::vector<std::string> operators{};
};

using ExpressionKind = Expression::Kind;

// What for and set assign to: a name, name.attribute, or several targets.
struct Target {
  std::string name{}, attribute{};
  std::vector<Target> parts{};
};

struct Statement;
using Block = std::vector<Statement>;

struct Parameter {
  std::string name;
  ExpressionPtr fallback;  // null: undefined if it is missing
};

struct Statement {
  enum class Kind {
    Text,
    Print,     // value
    If,        // branches, then otherwise
    For,       // target in value, if condition
    Set,       // target = value
    SetBlock,  // target = body, through the filters of `value` if that is not null
    Macro,     // name(parameters)
    Call,      // value is the call, which gets the body as `caller`
    Filter,    // body through the filters of `value`
    Group,     // body
    Break,
    Continue,
  };
  Kind kind = Kind::Text;
  int line = 0;
  std::string text{};  // the text, or the name
  ExpressionPtr value{}, condition{};
  Target target{};
  std::vector<std::pair<ExpressionPtr, Block>> branches{};
  std::vector<Parameter> parameters{};
  Block body{}, otherwise{};
};

}  // namespace hone::text
