// SPDX-License-Identifier: Apache-2.0
#include "hone/text/chat_template/interpreter.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "hone/core/check.h"
#include "hone/text/chat_template/arithmetic.h"
#include "hone/text/chat_template/filters.h"
#include "hone/text/chat_template/methods.h"
#include "hone/text/chat_template/python_text.h"
#include "hone/text/chat_template/work_limit.h"

namespace hone::text {
namespace {

// What raise_exception() throws.
struct Raised {
  std::string message;
};

// The names of a template, a loop or a macro. Inner scopes see those of outer ones.
struct Scope {
  std::shared_ptr<Scope> outer;
  std::vector<std::pair<std::string, Value>> names{};

  const Value* find(std::string_view name) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->outer.get()) {
      WorkLimit::spend(scope->names.size());
      const auto found =
          std::ranges::find(scope->names, name, &std::pair<std::string, Value>::first);
      if (found != scope->names.end()) return &found->second;
    }
    return nullptr;
  }
  void set(std::string_view name, Value value) {
    const auto found = std::ranges::find(names, name, &std::pair<std::string, Value>::first);
    if (found != names.end()) {
      found->second = std::move(value);
    } else {
      names.emplace_back(name, std::move(value));
    }
  }
};
using ScopePtr = std::shared_ptr<Scope>;

enum class Flow { Next, Break, Continue };

class Interpreter {
 public:
  explicit Interpreter(const RenderLimits& limits) : limits_(limits) {}

  MarkedText run(const Block& program, std::vector<std::pair<std::string, Value>> names);
  int line() const { return line_; }

 private:
  // Counts a step, and how deep it is.
  class Level {
   public:
    Level(Interpreter& interpreter, int line) : interpreter_(interpreter) {
      interpreter_.count(line);
    }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    ~Level() { --interpreter_.level_; }

   private:
    Interpreter& interpreter_;
  };

  void count(int line);
  void write(const MarkedText& text);
  MarkedText capture(const Block& block, ScopePtr scope);

  Flow execute(const Block& block);
  Flow execute(const Statement& statement);
  Flow run_if(const Statement& statement);
  Flow run_for(const Statement& statement);
  void run_call(const Statement& statement);
  void assign(const Target& target, Value value);
  Value filtered(const ExpressionPtr& filters, Value value);
  Value macro(const Statement& statement);
  Value call_macro(const Statement& statement, const ScopePtr& scope, const Arguments& arguments);
  Value make_loop(const ValueList& items, std::size_t at, const std::shared_ptr<ValueList>& seen);

  Value evaluate(const Expression& expression);
  Value evaluate(const ExpressionPtr& expression) { return evaluate(*expression); }
  Value name(const Expression& expression);
  Value list(const Expression& expression);
  Value dict(const Expression& expression);
  Value attribute(const Expression& expression);
  Value subscript(const Expression& expression);
  Value slice(const Expression& expression);
  Value call(const Expression& expression, const Value* caller = nullptr);
  Value filter(const Expression& expression, std::optional<Value> input = std::nullopt);
  Value test(const Expression& expression);
  Value compare(const Expression& expression);
  Arguments arguments_of(const Expression& expression);

  const RenderLimits& limits_;
  ScopePtr scope_;
  MarkedText* out_ = nullptr;
  std::int64_t steps_ = 0;
  int depth_ = 0, level_ = 0, line_ = 0;
};

// Statements and expressions, one within the other, also of macros that call each other: the stack
// holds so many in builds of every kind.
constexpr int kMostLevels = 1000;

// What namespace() has made. They may have each other, and so live until the end.
struct Namespaces {
  std::vector<std::shared_ptr<ValueObject>> made{};

  Namespaces() = default;
  Namespaces(const Namespaces&) = delete;
  Namespaces& operator=(const Namespaces&) = delete;
  ~Namespaces() {
    for (const auto& object : made) object->attributes.clear();
  }
};

[[noreturn]] void fail_undefined(const Value& value) {
  fail_template(concat(value.undefined_name(), " is undefined."));
}

void Interpreter::count(int line) {
  line_ = line;
  if (++steps_ > limits_.steps) {
    fail(ErrorCategory::Resource, "chat template", "The template takes too many steps.");
  }
  if (++level_ > kMostLevels) {
    fail(ErrorCategory::Resource, "chat template", "Expressions are nested too deep.");
  }
}

void Interpreter::write(const MarkedText& text) {
  out_->append(text);
  if (out_->size() > limits_.bytes) {
    fail(ErrorCategory::Resource, "chat template", "The prompt is too long.");
  }
}

// What a block writes, in a scope of its own.
MarkedText Interpreter::capture(const Block& block, ScopePtr scope) {
  MarkedText text;
  MarkedText* const out = std::exchange(out_, &text);
  std::swap(scope_, scope);
  execute(block);
  std::swap(scope_, scope);
  out_ = out;
  return text;
}

MarkedText Interpreter::run(const Block& program,
                            std::vector<std::pair<std::string, Value>> names) {
  scope_ = std::make_shared<Scope>();
  scope_->names = std::move(names);
  MarkedText out;
  out_ = &out;
  execute(program);
  return out;
}

Flow Interpreter::execute(const Block& block) {
  for (const Statement& statement : block) {
    if (const Flow flow = execute(statement); flow != Flow::Next) return flow;
  }
  return Flow::Next;
}

Flow Interpreter::execute(const Statement& statement) {
  using Statements = Statement::Kind;
  const Level level(*this, statement.line);
  const auto inner = [this] { return std::make_shared<Scope>(Scope{.outer = scope_}); };
  switch (statement.kind) {
    case Statements::Text:
      write(MarkedText(statement.text));
      break;
    case Statements::Print:
      write(to_str(evaluate(statement.value)));
      break;
    case Statements::If:
      return run_if(statement);
    case Statements::For:
      return run_for(statement);
    case Statements::Set:
      assign(statement.target, evaluate(statement.value));
      break;
    case Statements::SetBlock:
      assign(statement.target, filtered(statement.value, Value(capture(statement.body, inner()))));
      break;
    case Statements::Macro:
      scope_->set(statement.text, macro(statement));
      break;
    case Statements::Call:
      run_call(statement);
      break;
    case Statements::Filter:
      write(to_str(filtered(statement.value, Value(capture(statement.body, inner())))));
      break;
    case Statements::Group:
      write(capture(statement.body, inner()));
      break;
    case Statements::Break:
      return Flow::Break;
    case Statements::Continue:
      return Flow::Continue;
  }
  return Flow::Next;
}

Flow Interpreter::run_if(const Statement& statement) {
  for (const auto& [condition, body] : statement.branches) {
    if (evaluate(condition).truth()) return execute(body);
  }
  return execute(statement.otherwise);
}

Value Interpreter::make_loop(const ValueList& items, std::size_t at,
                             const std::shared_ptr<ValueList>& seen) {
  const auto size = static_cast<std::int64_t>(items.size());
  const auto index = static_cast<std::int64_t>(at);
  auto loop = std::make_shared<ValueObject>();
  loop->attributes = {
      {"index", Value(index + 1)},
      {"index0", Value(index)},
      {"revindex", Value(size - index)},
      {"revindex0", Value(size - index - 1)},
      {"first", Value(index == 0)},
      {"last", Value(index + 1 == size)},
      {"length", Value(size)},
      {"depth", Value(std::int64_t{1})},
      {"depth0", Value(std::int64_t{0})},
      {"previtem", at > 0 ? items[at - 1] : Value::undefined("loop.previtem")},
      {"nextitem", at + 1 < items.size() ? items[at + 1] : Value::undefined("loop.nextitem")},
      {"cycle", Value(ValueFunction{.name = "cycle",
                                    .call =
                                        [at](const Arguments& choices) {
                                          const ValueList& list = choices.positional;
                                          if (list.empty()) fail_template("cycle() has no values.");
                                          return list[at % list.size()];
                                        }})},
      {"changed", Value(ValueFunction{.name = "changed",
                                      .call =
                                          [seen](const Arguments& now) {
                                            const bool differs = *seen != now.positional;
                                            *seen = now.positional;
                                            return Value(differs);
                                          }})},
  };
  return Value(std::move(loop));
}

Flow Interpreter::run_for(const Statement& statement) {
  ValueList items = items_of(evaluate(statement.value));
  const ScopePtr outer = scope_;
  if (statement.condition) {
    ValueList kept;
    for (Value& item : items) {
      scope_ = std::make_shared<Scope>(Scope{.outer = outer});
      assign(statement.target, item);
      if (evaluate(statement.condition).truth()) kept.push_back(std::move(item));
    }
    items = std::move(kept);
  }
  const auto seen = std::make_shared<ValueList>();
  for (std::size_t i = 0; i < items.size(); ++i) {
    scope_ = std::make_shared<Scope>(Scope{.outer = outer});
    assign(statement.target, items[i]);
    scope_->set("loop", make_loop(items, i, seen));
    if (execute(statement.body) == Flow::Break) break;
  }
  scope_ = outer;
  return items.empty() ? execute(statement.otherwise) : Flow::Next;
}

void Interpreter::assign(const Target& target, Value value) {
  if (!target.parts.empty()) {
    const ValueList items = items_of(value);
    if (items.size() != target.parts.size()) {
      fail_template(
          concat("There are ", target.parts.size(), " names for ", items.size(), " values."));
    }
    for (std::size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i]);
    return;
  }
  if (target.attribute.empty()) return scope_->set(target.name, std::move(value));
  const Value* object = scope_->find(target.name);
  if (object == nullptr || !object->is(ValueKind::Object) || !object->object().is_namespace) {
    fail_template(concat("\"", target.name, "\" is not a namespace."));
  }
  object->object().set(target.attribute, std::move(value));
}

Value Interpreter::filtered(const ExpressionPtr& filters, Value value) {
  return filters == nullptr ? value : filter(*filters, std::move(value));
}

Value Interpreter::macro(const Statement& statement) {
  // The scope has the macro, and so may not belong to it.
  const std::weak_ptr<Scope> home = scope_;
  return Value(ValueFunction{.name = statement.text,
                             .call = [this, &statement, home](const Arguments& arguments) {
                               const ScopePtr scope = home.lock();
                               if (scope == nullptr)
                                 fail_template("A macro is called outside of its loop.");
                               return call_macro(statement, scope, arguments);
                             }});
}

void check_arguments(const Statement& macro, const Arguments& arguments) {
  const std::size_t given = arguments.positional.size();
  if (given > macro.parameters.size()) {
    fail_template(concat("A macro has ", macro.parameters.size(),
                         " parameters, but is called with ", given, "."));
  }
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::ranges::find(macro.parameters, name, &Parameter::name);
    const auto at = static_cast<std::size_t>(found - macro.parameters.begin());
    if (name != "caller" && (at < given || found == macro.parameters.end())) {
      fail_template(concat("A macro does not take the argument \"", name, "\"."));
    }
  }
}

Value Interpreter::call_macro(const Statement& statement, const ScopePtr& scope,
                              const Arguments& arguments) {
  if (++depth_ > limits_.depth) {
    fail(ErrorCategory::Resource, "chat template", "Macros call each other too deep.");
  }
  check_arguments(statement, arguments);
  const auto inner = std::make_shared<Scope>(Scope{.outer = scope});
  const ScopePtr outside = std::exchange(scope_, inner);
  for (std::size_t i = 0; i < statement.parameters.size(); ++i) {
    const auto& [name, fallback] = statement.parameters[i];
    const Value* given = find_argument(arguments, i, name);
    Value value = Value::undefined(concat("\"", name, "\""));
    if (given != nullptr) {
      value = *given;
    } else if (fallback != nullptr) {
      value = evaluate(fallback);
    }
    inner->set(name, std::move(value));
  }
  if (const Value* caller = find_argument(arguments, SIZE_MAX, "caller")) {
    inner->set("caller", *caller);
  }
  scope_ = outside;
  MarkedText text = capture(statement.body, inner);
  --depth_;
  return Value(std::move(text));
}

// {% call macro() %} … {% endcall %}
void Interpreter::run_call(const Statement& statement) {
  const Value caller(ValueFunction{
      .name = "caller", .call = [this, &statement, home = scope_](const Arguments& arguments) {
        return call_macro(statement, home, arguments);
      }});
  write(to_str(call(*statement.value, &caller)));
}

Value Interpreter::evaluate(const Expression& expression) {
  const Level level(*this, expression.line);
  const auto& operands = expression.operands;
  switch (expression.kind) {
    case ExpressionKind::Constant:
      return expression.constant;
    case ExpressionKind::Name:
      return name(expression);
    case ExpressionKind::List:
    case ExpressionKind::Tuple:
      return list(expression);
    case ExpressionKind::Dict:
      return dict(expression);
    case ExpressionKind::Attribute:
      return attribute(expression);
    case ExpressionKind::Subscript:
      return subscript(expression);
    case ExpressionKind::Slice:
      return slice(expression);
    case ExpressionKind::Call:
      return call(expression);
    case ExpressionKind::Filter:
      return filter(expression);
    case ExpressionKind::Test:
      return test(expression);
    case ExpressionKind::Negative:
      return negative(evaluate(operands[0]));
    case ExpressionKind::Positive:
      return evaluate(operands[0]);
    case ExpressionKind::Not:
      return Value(!evaluate(operands[0]).truth());
    case ExpressionKind::Arithmetic: {
      const Value left = evaluate(operands[0]);
      return arithmetic(expression.name, left, evaluate(operands[1]), limits_.bytes);
    }
    case ExpressionKind::Comparison:
      return compare(expression);
    case ExpressionKind::And: {
      Value left = evaluate(operands[0]);
      return left.truth() ? evaluate(operands[1]) : left;
    }
    case ExpressionKind::Or: {
      Value left = evaluate(operands[0]);
      return left.truth() ? left : evaluate(operands[1]);
    }
    case ExpressionKind::Conditional:
      if (evaluate(operands[1]).truth()) return evaluate(operands[0]);
      return operands[2] == nullptr ? Value() : evaluate(operands[2]);
  }
  return {};
}

Value Interpreter::name(const Expression& expression) {
  const Value* found = scope_->find(expression.name);
  return found != nullptr ? *found : Value::undefined(concat("\"", expression.name, "\""));
}

Value Interpreter::list(const Expression& expression) {
  ValueList items;
  for (const ExpressionPtr& item : expression.operands) items.push_back(evaluate(item));
  return Value(std::move(items), expression.kind == ExpressionKind::Tuple);
}

Value Interpreter::dict(const Expression& expression) {
  ValueDict dict;
  for (std::size_t i = 0; i + 1 < expression.operands.size(); i += 2) {
    Value key = evaluate(expression.operands[i]);
    dict.set(std::move(key), evaluate(expression.operands[i + 1]));
  }
  return Value(std::move(dict));
}

// Jinja looks for a method or attribute first, then for an entry of this name.
Value Interpreter::attribute(const Expression& expression) {
  const Value base = evaluate(expression.operands[0]);
  if (base.is_undefined()) fail_undefined(base);
  if (auto method = method_of(base, expression.name)) return *method;
  return member_of(base, expression.name);
}

// Here it looks for the entry first.
Value Interpreter::subscript(const Expression& expression) {
  const Value base = evaluate(expression.operands[0]);
  const Value key = evaluate(expression.operands[1]);
  if (base.is_undefined()) fail_undefined(base);
  if (base.is(ValueKind::Dict)) {
    if (const Value* found = base.dict().find(key)) return *found;
  } else if (key.is_integer() && (base.is_sequence() || base.is(ValueKind::Text))) {
    const std::int64_t size = length_of(base);
    const std::int64_t at = key.integer() < 0 ? key.integer() + size : key.integer();
    if (at < 0 || at >= size) return Value::undefined(concat("item ", key.integer()));
    if (base.is_sequence()) return base.list()[static_cast<std::size_t>(at)];
    return slice_of(base, {at, at + 1, std::nullopt});
  }
  if (!key.is(ValueKind::Text)) return Value::undefined(to_str(key).text());
  if (auto method = method_of(base, key.text())) return *method;
  return member_of(base, key.text());
}

Value Interpreter::slice(const Expression& expression) {
  const Value base = evaluate(expression.operands[0]);
  std::array<std::optional<std::int64_t>, 3> parts;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const ExpressionPtr& part = expression.operands[i + 1];
    const Value value = part == nullptr ? Value::none() : evaluate(part);
    if (value.is(ValueKind::None)) continue;
    if (!value.is_integer()) fail_template("A slice expects numbers.");
    parts[i] = value.integer();
  }
  return slice_of(base, parts);
}

Arguments Interpreter::arguments_of(const Expression& expression) {
  Arguments out;
  for (std::size_t i = 1; i < expression.operands.size(); ++i) {
    out.positional.push_back(evaluate(expression.operands[i]));
  }
  for (const auto& [name, value] : expression.named) out.named.emplace_back(name, evaluate(value));
  return out;
}

Value Interpreter::call(const Expression& expression, const Value* caller) {
  const Value callee = evaluate(expression.operands[0]);
  if (callee.is_undefined()) fail_undefined(callee);
  if (!callee.is(ValueKind::Function)) {
    fail_template(concat("A value of the type ", callee.type_name(), " cannot be called."));
  }
  Arguments arguments = arguments_of(expression);
  if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
  line_ = expression.line;
  return callee.function().call(arguments);
}

// `input` is for the filters of a block, whose first one has no operand.
Value Interpreter::filter(const Expression& expression, std::optional<Value> input) {
  const ExpressionPtr& operand = expression.operands[0];
  if (operand != nullptr) {
    input = operand->kind == ExpressionKind::Filter && input ? filter(*operand, std::move(input))
                                                             : evaluate(operand);
  }
  const Arguments arguments = arguments_of(expression);
  line_ = expression.line;
  return apply_filter(expression.name, *input, arguments);
}

Value Interpreter::test(const Expression& expression) {
  const Value value = evaluate(expression.operands[0]);
  return Value(apply_test(expression.name, value, arguments_of(expression)));
}

Value Interpreter::compare(const Expression& expression) {
  Value left = evaluate(expression.operands[0]);
  for (std::size_t i = 0; i < expression.operators.size(); ++i) {
    Value right = evaluate(expression.operands[i + 1]);
    const std::string& by = expression.operators[i];
    bool holds = false;
    if (by == "==") {
      holds = left == right;
    } else if (by == "!=") {
      holds = !(left == right);
    } else if (by == "in") {
      holds = contains(right, left);
    } else if (by == "not in") {
      holds = !contains(right, left);
    } else {
      const bool swaps = by == ">" || by == "<=";
      const bool is_below = swaps ? is_less(right, left) : is_less(left, right);
      holds = by == "<" || by == ">" ? is_below : !is_below;
    }
    if (!holds) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Value make_range(const Arguments& arguments) {
  constexpr std::int64_t kMost = 100'000;
  std::array<std::int64_t, 3> parts = {0, 0, 1};
  const ValueList& given = arguments.positional;
  if (given.empty() || given.size() > 3) fail_template("range() expects 1 to 3 numbers.");
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (!given[i].is_integer()) fail_template("range() expects numbers.");
    parts[given.size() == 1 ? 1 : i] = given[i].integer();
  }
  const auto [begin, end, step] = parts;
  if (step == 0) fail_template("range() has the step 0.");
  ValueList out;
  for (std::int64_t i = begin; step > 0 ? i < end : i > end;) {
    if (std::ssize(out) == kMost) fail_template(concat("range() has over ", kMost, " numbers."));
    out.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return Value(std::move(out));
}

Value make_dict(const Arguments& arguments) {
  ValueDict dict;
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (!source.is(ValueKind::Dict)) fail_template("dict() expects a dict.");
    dict = source.dict();
  }
  for (const auto& [name, value] : arguments.named) dict.set(Value(name), value);
  return Value(std::move(dict));
}

Value make_namespace(Namespaces& namespaces, const Arguments& arguments) {
  auto object = std::make_shared<ValueObject>();
  object->is_namespace = true;
  const Value given = make_dict(arguments);
  for (const auto& [key, value] : given.dict().entries) object->set(to_str(key).text(), value);
  namespaces.made.push_back(object);
  return Value(std::move(object));
}

Value raise_exception(const Arguments& arguments) {
  throw Raised{arguments.positional.empty() ? "The template refuses the messages."
                                            : to_str(arguments.positional[0]).text()};
}

}  // namespace

MarkedText run_template(const Block& program, std::vector<std::pair<std::string, Value>> names,
                        const RenderLimits& limits) {
  const auto add = [&names](const char* name, Value (*function)(const Arguments&)) {
    names.emplace_back(name, Value(ValueFunction{.name = name, .call = function}));
  };
  add("range", make_range);
  add("dict", make_dict);
  add("raise_exception", raise_exception);
  Namespaces namespaces;
  names.emplace_back("namespace",
                     Value(ValueFunction{.name = "namespace", .call = [&](const Arguments& given) {
                                           return make_namespace(namespaces, given);
                                         }}));
  const WorkLimit work(limits.work);
  Interpreter interpreter(limits);
  try {
    return interpreter.run(program, std::move(names));
  } catch (const Raised& raised) {
    fail_template(raised.message);
  } catch (const Error& error) {
    if (error.category() != ErrorCategory::InvalidArgument) throw;
    const std::string_view what = error.what();
    const std::size_t end = what.find("] ");
    fail_template(concat("Line ", interpreter.line(), ": ",
                         what.substr(end == std::string_view::npos ? 0 : end + 2)));
  }
}

}  // namespace hone::text
