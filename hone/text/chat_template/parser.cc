// SPDX-License-Identifier: Apache-2.0
#include "hone/text/chat_template/parser.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <initializer_list>
#include <optional>
#include <utility>

#include "hone/core/check.h"
#include "hone/text/chat_template/filters.h"
#include "hone/text/chat_template/lexer.h"

namespace hone::text {
namespace {

constexpr int kMostNesting = 128;   // of expressions and blocks, one within the other
constexpr int kMostOperands = 500;  // in a chain of operators, such as 1 + 1 + 1

std::optional<Value> constant_named(std::string_view name) {
  if (name == "true" || name == "True") return Value(true);
  if (name == "false" || name == "False") return Value(false);
  if (name == "none" || name == "None") return Value::none();
  return std::nullopt;
}

class Parser {
 public:
  Parser(std::string_view source, std::string_view where)
      : tokens_(split_template(source, where)), where_(where) {}

  Block run() {
    Block out = block({});
    if (peek().kind != TokenKind::End) fail_here(concat("\"", peek().text, "\" ends nothing."));
    return out;
  }

 private:
  // Counts how deep the parser is.
  class Level {
   public:
    explicit Level(Parser& parser) : parser_(parser) {
      if (++parser_.depth_ > kMostNesting) parser_.fail_here("The template is nested too deep.");
    }
    ~Level() { --parser_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Parser& parser_;
  };

  [[noreturn]] void fail_here(std::string_view sentence) const {
    fail_corrupt(where_, concat("Line ", peek().line, " of the chat template: ", sentence));
  }
  [[noreturn]] void fail_unknown(std::string_view kind, std::string_view name) const {
    fail_unsupported(where_, concat("Line ", peek().line, " of the chat template has the ", kind,
                                    " \"", name, "\", which hone does not know."));
  }

  const TemplateToken& peek(std::size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  TemplateToken take() { return at_ < tokens_.size() - 1 ? tokens_[at_++] : tokens_.back(); }
  bool is(TokenKind kind, std::string_view text) const {
    return peek().kind == kind && peek().text == text;
  }
  bool is_operator(std::string_view text) const { return is(TokenKind::Operator, text); }
  bool is_name(std::string_view text) const { return is(TokenKind::Name, text); }
  bool skip_operator(std::string_view text) { return is_operator(text) && (++at_, true); }
  bool skip_name(std::string_view text) { return is_name(text) && (++at_, true); }
  void expect_operator(std::string_view text) {
    if (!skip_operator(text)) fail_here(concat("\"", text, "\" is missing."));
  }
  std::string expect_name() {
    if (peek().kind != TokenKind::Name) fail_here("A name is missing.");
    return take().text;
  }
  void expect_end() {
    if (peek().kind != TokenKind::BlockEnd) fail_here("\"%}\" is missing.");
    ++at_;
  }

  Block block(std::initializer_list<std::string_view> ends);
  Block block_apart(std::string_view end);
  void end_block(std::string_view end);
  Statement statement();
  Statement if_block(Statement out);
  Statement for_block(Statement out);
  Statement set_block(Statement out);
  Statement macro_block(Statement out);
  Statement call_block(Statement out);
  Statement filter_block(Statement out);
  std::vector<Parameter> parameters();
  Target target();
  Target single_target();

  ExpressionPtr expression(bool with_condition = true);
  ExpressionPtr tuple(bool with_condition = true);
  ExpressionPtr conditional();
  ExpressionPtr either();
  ExpressionPtr both();
  ExpressionPtr negation();
  ExpressionPtr comparison();
  ExpressionPtr arithmetic(std::size_t level);
  ExpressionPtr unary(bool with_filter = true);
  ExpressionPtr primary();
  ExpressionPtr string_constant();
  ExpressionPtr number_constant();
  ExpressionPtr list();
  ExpressionPtr dict();
  ExpressionPtr postfix(ExpressionPtr operand);
  ExpressionPtr subscript(ExpressionPtr operand);
  ExpressionPtr suffixes(ExpressionPtr operand);
  ExpressionPtr filter(ExpressionPtr operand);
  ExpressionPtr test(ExpressionPtr operand);
  ExpressionPtr call(ExpressionPtr callee);
  void arguments(Expression& out);

  Expression node(ExpressionKind kind, std::string name = {}) const {
    return {.kind = kind, .line = peek().line, .name = std::move(name)};
  }
  ExpressionPtr made(Expression&& node) const;

  std::vector<TemplateToken> tokens_;
  std::string_view where_;
  std::size_t at_ = 0;
  int depth_ = 0;
  bool in_loop_ = false;  // of the same macro
};

ExpressionPtr Parser::made(Expression&& node) const {
  const auto count = [&node](const ExpressionPtr& operand) {
    if (operand) node.depth = std::max(node.depth, operand->depth + 1);
  };
  for (const ExpressionPtr& operand : node.operands) count(operand);
  for (const auto& [name, operand] : node.named) count(operand);
  if (node.depth > kMostOperands) fail_here("An expression is too long.");
  return std::make_unique<const Expression>(std::move(node));
}

// Statements up to one of the tags `ends`, whose name is the next token.
Block Parser::block(std::initializer_list<std::string_view> ends) {
  const Level level(*this);
  Block out;
  for (;;) {
    const TemplateToken& token = peek();
    if (token.kind == TokenKind::End) {
      if (ends.size() > 0) fail_here(concat("\"", *(ends.end() - 1), "\" is missing."));
      return out;
    }
    if (token.kind == TokenKind::Text) {
      out.push_back({.kind = Statement::Kind::Text, .line = token.line, .text = take().text});
    } else if (token.kind == TokenKind::PrintBegin) {
      Statement print{.kind = Statement::Kind::Print, .line = take().line};
      print.value = tuple();
      if (peek().kind != TokenKind::PrintEnd) fail_here("\"}}\" is missing.");
      ++at_;
      out.push_back(std::move(print));
    } else {
      ++at_;
      if (std::ranges::any_of(ends, [this](std::string_view end) { return is_name(end); })) {
        return out;
      }
      out.push_back(statement());
    }
  }
}

// A block that is written apart, so that break and continue cannot leave it.
Block Parser::block_apart(std::string_view end) {
  const bool in_loop = std::exchange(in_loop_, false);
  Block out = block({end});
  in_loop_ = in_loop;
  return out;
}

void Parser::end_block(std::string_view end) {
  if (!skip_name(end)) fail_here(concat("\"", end, "\" is missing."));
  if (end == "endmacro" && peek().kind == TokenKind::Name) ++at_;
  expect_end();
}

Statement Parser::statement() {
  Statement out{.line = peek().line};
  const std::string name = expect_name();
  if (name == "if") return if_block(std::move(out));
  if (name == "for") return for_block(std::move(out));
  if (name == "set") return set_block(std::move(out));
  if (name == "macro") return macro_block(std::move(out));
  if (name == "call") return call_block(std::move(out));
  if (name == "filter") return filter_block(std::move(out));
  if (name == "break" || name == "continue") {
    out.kind = name == "break" ? Statement::Kind::Break : Statement::Kind::Continue;
    if (!in_loop_) fail_here(concat("\"", name, "\" is outside of a loop."));
    expect_end();
    return out;
  }
  if (name == "generation") {  // marks the answers for training
    out.kind = Statement::Kind::Group;
    expect_end();
    out.body = block_apart("endgeneration");
    end_block("endgeneration");
    return out;
  }
  if (name.starts_with("end") || name == "else" || name == "elif") {
    fail_here(concat("\"", name, "\" ends nothing."));
  }
  fail_unknown("tag", name);
}

Statement Parser::if_block(Statement out) {
  out.kind = Statement::Kind::If;
  for (;;) {
    ExpressionPtr condition = tuple(false);
    expect_end();
    Block body = block({"elif", "else", "endif"});
    out.branches.emplace_back(std::move(condition), std::move(body));
    if (skip_name("elif")) continue;
    if (skip_name("else")) {
      expect_end();
      out.otherwise = block({"endif"});
    }
    end_block("endif");
    return out;
  }
}

Statement Parser::for_block(Statement out) {
  out.kind = Statement::Kind::For;
  out.target = target();
  if (!skip_name("in")) fail_here("\"in\" is missing.");
  out.value = tuple(false);
  if (skip_name("if")) out.condition = expression();
  if (is_name("recursive")) fail_unknown("keyword", "recursive");
  expect_end();
  const bool in_loop = std::exchange(in_loop_, true);
  out.body = block({"else", "endfor"});
  in_loop_ = in_loop;
  if (skip_name("else")) {
    expect_end();
    out.otherwise = block({"endfor"});
  }
  end_block("endfor");
  return out;
}

Statement Parser::set_block(Statement out) {
  out.target = target();
  if (skip_operator("=")) {
    out.kind = Statement::Kind::Set;
    out.value = tuple();
    expect_end();
    return out;
  }
  out.kind = Statement::Kind::SetBlock;
  while (skip_operator("|")) out.value = filter(std::move(out.value));
  expect_end();
  out.body = block_apart("endset");
  end_block("endset");
  return out;
}

Statement Parser::macro_block(Statement out) {
  out.kind = Statement::Kind::Macro;
  out.text = expect_name();
  out.parameters = parameters();
  expect_end();
  out.body = block_apart("endmacro");
  end_block("endmacro");
  return out;
}

Statement Parser::call_block(Statement out) {
  out.kind = Statement::Kind::Call;
  if (is_operator("(")) out.parameters = parameters();
  out.value = expression();
  if (out.value->kind != ExpressionKind::Call) fail_here("A call is missing.");
  expect_end();
  out.body = block_apart("endcall");
  end_block("endcall");
  return out;
}

Statement Parser::filter_block(Statement out) {
  out.kind = Statement::Kind::Filter;
  do {
    out.value = filter(std::move(out.value));
  } while (skip_operator("|"));
  expect_end();
  out.body = block_apart("endfilter");
  end_block("endfilter");
  return out;
}

std::vector<Parameter> Parser::parameters() {
  std::vector<Parameter> out;
  expect_operator("(");
  while (!skip_operator(")")) {
    if (!out.empty()) expect_operator(",");
    if (skip_operator(")")) break;
    Parameter parameter{.name = expect_name(), .fallback = nullptr};
    if (skip_operator("=")) parameter.fallback = expression();
    out.push_back(std::move(parameter));
  }
  return out;
}

Target Parser::single_target() {
  if (skip_operator("(")) {
    Target inner = target();
    expect_operator(")");
    return inner;
  }
  if (constant_named(peek().text)) fail_here(concat("\"", peek().text, "\" is no name."));
  Target out{.name = expect_name()};
  if (skip_operator(".")) out.attribute = expect_name();
  return out;
}

Target Parser::target() {
  const Level level(*this);
  Target first = single_target();
  if (!is_operator(",")) return first;
  Target out;
  out.parts.push_back(std::move(first));
  while (skip_operator(",")) {
    if (peek().kind != TokenKind::Name && !is_operator("(")) break;
    out.parts.push_back(single_target());
  }
  return out;
}

ExpressionPtr Parser::expression(bool with_condition) {
  const Level level(*this);
  return with_condition ? conditional() : either();
}

// One expression, or several with commas between them.
ExpressionPtr Parser::tuple(bool with_condition) {
  Expression out = node(ExpressionKind::Tuple);
  ExpressionPtr first = expression(with_condition);
  if (!is_operator(",")) return first;
  out.operands.push_back(std::move(first));
  while (skip_operator(",")) {
    const TokenKind next = peek().kind;
    if (next == TokenKind::PrintEnd || next == TokenKind::BlockEnd || is_operator(")")) break;
    out.operands.push_back(expression(with_condition));
  }
  return made(std::move(out));
}

ExpressionPtr Parser::conditional() {
  ExpressionPtr value = either();
  while (is_name("if")) {
    Expression out = node(ExpressionKind::Conditional);
    ++at_;
    ExpressionPtr condition = either();
    ExpressionPtr otherwise = skip_name("else") ? expression() : nullptr;
    out.operands.push_back(std::move(value));
    out.operands.push_back(std::move(condition));
    out.operands.push_back(std::move(otherwise));
    value = made(std::move(out));
  }
  return value;
}

ExpressionPtr Parser::either() {
  ExpressionPtr left = both();
  while (is_name("or")) {
    Expression out = node(ExpressionKind::Or);
    ++at_;
    out.operands.push_back(std::move(left));
    out.operands.push_back(both());
    left = made(std::move(out));
  }
  return left;
}

ExpressionPtr Parser::both() {
  ExpressionPtr left = negation();
  while (is_name("and")) {
    Expression out = node(ExpressionKind::And);
    ++at_;
    out.operands.push_back(std::move(left));
    out.operands.push_back(negation());
    left = made(std::move(out));
  }
  return left;
}

ExpressionPtr Parser::negation() {
  if (!is_name("not")) return comparison();
  const Level level(*this);
  Expression out = node(ExpressionKind::Not);
  ++at_;
  out.operands.push_back(negation());
  return made(std::move(out));
}

ExpressionPtr Parser::comparison() {
  static constexpr std::array<std::string_view, 6> kComparisons = {"==", "!=", "<",
                                                                   "<=", ">",  ">="};
  Expression out = node(ExpressionKind::Comparison);
  out.operands.push_back(arithmetic(0));
  for (;;) {
    const auto* const found = std::ranges::find_if(
        kComparisons, [this](std::string_view one) { return is_operator(one); });
    if (found != kComparisons.end()) {
      out.operators.push_back(take().text);
    } else if (is_name("in")) {
      out.operators.push_back(take().text);
    } else if (is_name("not") && peek(1).kind == TokenKind::Name && peek(1).text == "in") {
      at_ += 2;
      out.operators.emplace_back("not in");
    } else {
      break;
    }
    out.operands.push_back(arithmetic(0));
  }
  if (out.operators.empty()) return std::move(out.operands[0]);
  return made(std::move(out));
}

// Jinja's levels: + and -, then ~, then * / // %, then **.
ExpressionPtr Parser::arithmetic(std::size_t level) {
  static const std::array<std::vector<std::string_view>, 4> kLevels = {
      {{"+", "-"}, {"~"}, {"*", "/", "//", "%"}, {"**"}}};
  if (level == kLevels.size()) return unary();
  ExpressionPtr left = arithmetic(level + 1);
  for (;;) {
    const auto& operators = kLevels[level];
    if (std::ranges::none_of(operators, [this](std::string_view one) { return is_operator(one); }))
      return left;
    Expression out = node(ExpressionKind::Arithmetic, peek().text);
    ++at_;
    out.operands.push_back(std::move(left));
    out.operands.push_back(arithmetic(level + 1));
    left = made(std::move(out));
  }
}

ExpressionPtr Parser::unary(bool with_filter) {
  const Level level(*this);
  ExpressionPtr operand;
  if (is_operator("-") || is_operator("+")) {
    Expression out = node(is_operator("-") ? ExpressionKind::Negative : ExpressionKind::Positive);
    ++at_;
    out.operands.push_back(unary(false));
    operand = made(std::move(out));
  } else {
    operand = primary();
  }
  operand = postfix(std::move(operand));
  return with_filter ? suffixes(std::move(operand)) : std::move(operand);
}

ExpressionPtr Parser::primary() {
  const TemplateToken& token = peek();
  switch (token.kind) {
    case TokenKind::Name: {
      Expression out = node(ExpressionKind::Constant, token.text);
      ++at_;
      if (const auto constant = constant_named(out.name)) {
        out.constant = *constant;
      } else {
        out.kind = ExpressionKind::Name;
      }
      return made(std::move(out));
    }
    case TokenKind::String:
      return string_constant();
    case TokenKind::Integer:
    case TokenKind::Float:
      return number_constant();
    default:
      break;
  }
  if (is_operator("[")) return list();
  if (is_operator("{")) return dict();
  if (skip_operator("(")) {
    if (skip_operator(")")) return made(node(ExpressionKind::Tuple));
    ExpressionPtr inner = tuple();
    expect_operator(")");
    return inner;
  }
  fail_here(concat("\"", token.text, "\" is not a value."));
}

ExpressionPtr Parser::string_constant() {
  Expression out = node(ExpressionKind::Constant);
  std::string text;
  while (peek().kind == TokenKind::String) text += take().text;
  out.constant = Value(std::move(text));
  return made(std::move(out));
}

ExpressionPtr Parser::number_constant() {
  Expression out = node(ExpressionKind::Constant);
  const TemplateToken token = take();
  if (token.kind == TokenKind::Float) {
    out.constant = Value(std::strtod(token.text.c_str(), nullptr));  // inf beyond its range
    return made(std::move(out));
  }
  static constexpr std::array<std::pair<std::string_view, int>, 6> kBases = {
      {{"0x", 16}, {"0X", 16}, {"0o", 8}, {"0O", 8}, {"0b", 2}, {"0B", 2}}};
  const auto* const base = std::ranges::find_if(
      kBases, [&token](const auto& entry) { return token.text.starts_with(entry.first); });
  const bool is_decimal = base == kBases.end();
  std::int64_t value = 0;
  const char* const begin = token.text.data() + (is_decimal ? 0 : 2);
  const char* const end = token.text.data() + token.text.size();
  const auto [stop, error] = std::from_chars(begin, end, value, is_decimal ? 10 : base->second);
  if (error != std::errc() || stop != end) {
    fail_here(concat(
        token.text, error == std::errc::result_out_of_range ? " is too large." : " is no number."));
  }
  out.constant = Value(value);
  return made(std::move(out));
}

ExpressionPtr Parser::list() {
  Expression out = node(ExpressionKind::List);
  expect_operator("[");
  while (!skip_operator("]")) {
    if (!out.operands.empty()) expect_operator(",");
    if (skip_operator("]")) break;
    out.operands.push_back(expression());
  }
  return made(std::move(out));
}

ExpressionPtr Parser::dict() {
  Expression out = node(ExpressionKind::Dict);
  expect_operator("{");
  while (!skip_operator("}")) {
    if (!out.operands.empty()) expect_operator(",");
    if (skip_operator("}")) break;
    out.operands.push_back(expression());
    expect_operator(":");
    out.operands.push_back(expression());
  }
  return made(std::move(out));
}

ExpressionPtr Parser::postfix(ExpressionPtr operand) {
  for (;;) {
    if (is_operator("[")) {
      operand = subscript(std::move(operand));
    } else if (is_operator("(")) {
      operand = call(std::move(operand));
    } else if (is_operator(".")) {
      Expression out = node(ExpressionKind::Attribute);
      ++at_;
      const bool is_index = peek().kind == TokenKind::Integer;
      out.operands.push_back(std::move(operand));
      if (is_index) {
        out.kind = ExpressionKind::Subscript;
        out.operands.push_back(number_constant());
      } else {
        out.name = expect_name();
      }
      operand = made(std::move(out));
    } else {
      return operand;
    }
  }
}

ExpressionPtr Parser::subscript(ExpressionPtr operand) {
  Expression out = node(ExpressionKind::Subscript);
  expect_operator("[");
  out.operands.push_back(std::move(operand));
  ExpressionPtr first = is_operator(":") ? nullptr : expression();
  if (!is_operator(":")) {
    out.operands.push_back(std::move(first));
    expect_operator("]");
    return made(std::move(out));
  }
  out.kind = ExpressionKind::Slice;
  out.operands.push_back(std::move(first));
  for (int part = 0; part < 2; ++part) {
    const bool has_part = skip_operator(":") && !is_operator(":") && !is_operator("]");
    out.operands.push_back(has_part ? expression() : nullptr);
  }
  expect_operator("]");
  return made(std::move(out));
}

// Filters, tests and calls behind a value.
ExpressionPtr Parser::suffixes(ExpressionPtr operand) {
  for (;;) {
    if (skip_operator("|")) {
      operand = filter(std::move(operand));
    } else if (is_name("is")) {
      operand = test(std::move(operand));
    } else if (is_operator("(")) {
      operand = call(std::move(operand));
    } else {
      return operand;
    }
  }
}

// The name of a filter and its arguments.
ExpressionPtr Parser::filter(ExpressionPtr operand) {
  Expression out = node(ExpressionKind::Filter);
  out.name = expect_name();
  if (!is_filter(out.name)) fail_unknown("filter", out.name);
  out.operands.push_back(std::move(operand));
  if (is_operator("(")) arguments(out);
  return made(std::move(out));
}

ExpressionPtr Parser::test(ExpressionPtr operand) {
  Expression out = node(ExpressionKind::Test);
  ++at_;
  Expression negated = node(ExpressionKind::Not);
  const bool is_negated = skip_name("not");
  out.name = expect_name();
  if (!is_test(out.name)) fail_unknown("test", out.name);
  out.operands.push_back(std::move(operand));
  const TokenKind next = peek().kind;
  if (is_name("is")) fail_here("A test follows a test.");
  const bool is_keyword = is_name("else") || is_name("or") || is_name("and") || is_name("if") ||
                          is_name("in") || is_name("not");
  const bool is_value = next == TokenKind::String || next == TokenKind::Integer ||
                        next == TokenKind::Float || is_operator("[") || is_operator("{");
  if (is_operator("(")) {
    arguments(out);
  } else if (is_value || (next == TokenKind::Name && !is_keyword)) {
    out.operands.push_back(postfix(primary()));
  }
  if (!is_negated) return made(std::move(out));
  negated.operands.push_back(made(std::move(out)));
  return made(std::move(negated));
}

ExpressionPtr Parser::call(ExpressionPtr callee) {
  Expression out = node(ExpressionKind::Call);
  out.operands.push_back(std::move(callee));
  arguments(out);
  return made(std::move(out));
}

void Parser::arguments(Expression& out) {
  expect_operator("(");
  bool is_first = true;
  while (!skip_operator(")")) {
    if (!std::exchange(is_first, false)) expect_operator(",");
    if (skip_operator(")")) break;
    const bool is_named = peek().kind == TokenKind::Name && peek(1).kind == TokenKind::Operator &&
                          peek(1).text == "=";
    if (is_named) {
      std::string name = take().text;
      ++at_;
      out.named.emplace_back(std::move(name), expression());
    } else {
      if (!out.named.empty()) fail_here("An argument without a name follows one with a name.");
      out.operands.push_back(expression());
    }
  }
}

}  // namespace

Block parse_template(std::string_view source, std::string_view where) {
  return Parser(source, where).run();
}

}  // namespace hone::text
