// SPDX-License-Identifier: Apache-2.0
#include "hone/data/grammar_source.h"

#include <algorithm>
#include <cctype>

#include "hone/core/check.h"

namespace hone::data {
namespace {

std::string_view trim(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> parts;
  for (;;) {
    const auto comma = text.find(',');
    parts.emplace_back(trim(text.substr(0, comma)));
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

template <class Range>
int find_named(const Range& range, std::string_view name) {
  for (std::size_t i = 0; i < range.size(); ++i) {
    if (range[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

class Parser {
 public:
  explicit Parser(std::string_view source) : source_(source) {}

  GrammarSource run() {
    while (!source_.empty()) {
      const std::string whole = take_line();
      const std::string_view line = trim(whole);
      if (line.empty() || line.front() == '#') continue;
      if (whole.front() == ' ') {
        parse_member(line);
      } else {
        parse_heading(line);
      }
    }
    if (grammar_.rules.empty()) fail_here("The grammar has no rule.");
    return std::move(grammar_);
  }

 private:
  enum class Section { None, Domain, Rule };

  [[noreturn]] void fail_here(std::string_view expected, std::string_view got) const {
    fail_argument(concat("grammar line ", line_), expected, got);
  }
  [[noreturn]] void fail_here(std::string_view sentence) const {
    fail_argument(concat("grammar line ", line_), sentence);
  }

  // Takes one line. A backslash at its end joins the next line without its indentation.
  std::string take_line();

  void parse_heading(std::string_view line);

  void parse_domain(std::string_view text);

  // slot friend: person where name != hero and kind = sex
  void parse_slot(std::string_view text);

  GrammarFilter parse_filter(std::string_view text, int domain) const;

  int find_form(int domain, std::string_view name) const {
    const auto& forms = grammar_.domains[domain].forms;
    const auto found = std::find(forms.begin(), forms.end(), name);
    if (found == forms.end()) fail_here("a form of the domain", name);
    return static_cast<int>(found - forms.begin());
  }

  int find_slot(std::string_view name) const {
    const int slot = find_named(grammar_.slots, name);
    if (slot < 0) fail_here("a declared slot", name);
    return slot;
  }

  void parse_member(std::string_view line) {
    if (section_ == Section::Rule) {
      grammar_.rules.back().alternatives.push_back(parse_alternative(line, 0));
      if (!line.empty()) fail_here("the end of the line", line);
    } else if (section_ == Section::Domain) {
      parse_value(line);
    } else {
      fail_here("An indented line must follow a domain or a rule.");
    }
  }

  void parse_value(std::string_view line) {
    GrammarDomain& domain = grammar_.domains.back();
    domain.weights.push_back(take_weight(line));
    domain.values.push_back(split_list(line));
    const auto& forms = domain.values.back();
    if (forms.size() != domain.forms.size()) {
      fail_here(concat(domain.forms.size(), " forms"), concat(forms.size()));
    }
    for (const std::string& form : forms) {
      if (form.empty()) fail_here("A form is empty.");
    }
    for (std::size_t i = 0; i + 1 < domain.values.size(); ++i) {
      if (domain.values[i][0] == forms[0])
        fail_here(concat("The key ", forms[0], " occurs twice."));
    }
  }

  // Takes the weight before an alternative or a value: "3* rest" or "3*rest".
  double take_weight(std::string_view& text) const {
    std::size_t digits = 0;
    while (digits < text.size() && std::isdigit(static_cast<unsigned char>(text[digits]))) ++digits;
    if (digits == 0 || digits == text.size() || text[digits] != '*') return 1;
    if (digits > 6) fail_here("a weight below 1000000", text.substr(0, digits));
    double weight = 0;
    for (char digit : text.substr(0, digits)) weight = weight * 10 + (digit - '0');
    if (weight == 0) fail_here("a weight above 0", "0");
    text.remove_prefix(digits + 1);
    return weight;
  }

  // Reads up to the end, or up to '|' or ')' inside a group.
  GrammarAlternative parse_alternative(std::string_view& text, int depth) {
    if (depth > 16) fail_here("Groups are nested more than 16 levels deep.");
    GrammarAlternative alternative;
    alternative.weight = take_weight(text);
    if (depth == 0) text = trim(text);
    while (!text.empty() && (depth == 0 || (text.front() != '|' && text.front() != ')'))) {
      switch (text.front()) {
        case '<':
          alternative.items.push_back(parse_reference(take_until(text, '>')));
          break;
        case '{':
          alternative.items.push_back(parse_mention(take_until(text, '}')));
          break;
        case '(':
          alternative.items.push_back(parse_group(text, depth));
          break;
        default:
          alternative.items.push_back(parse_text(text));
      }
    }
    return alternative;
  }

  GrammarItem parse_text(std::string_view& text) const {
    const auto end = std::min(text.find_first_of("<{(|)}>"), text.size());
    if (end == 0) fail_here("text", text.substr(0, 1));
    GrammarItem item;
    item.text = text.substr(0, end);
    text.remove_prefix(end);
    return item;
  }

  std::string_view take_until(std::string_view& text, char close) const {
    const auto end = text.find(close);
    if (end == std::string_view::npos) fail_here(concat("a closing ", close), text);
    const std::string_view inside = text.substr(1, end - 1);
    text.remove_prefix(end + 1);
    return inside;
  }

  GrammarItem parse_group(std::string_view& text, int depth) {
    GrammarItem item;
    item.kind = GrammarItem::Kind::Group;
    do {
      text.remove_prefix(1);
      item.alternatives.push_back(parse_alternative(text, depth + 1));
      if (text.empty()) fail_here("a closing )", "the end of the line");
    } while (text.front() == '|');
    text.remove_prefix(1);
    return item;
  }

  // "rule" or "stem:slot.form"
  GrammarItem parse_reference(std::string_view inside) const {
    GrammarItem item;
    const auto colon = inside.find(':');
    item.text = inside.substr(0, colon);
    item.kind = GrammarItem::Kind::Rule;
    if (colon == std::string_view::npos) return item;
    item.kind = GrammarItem::Kind::Switch;
    parse_slot_and_form(inside.substr(colon + 1), item);
    return item;
  }

  // "slot", "slot.form", "slot!" (draws it); an upper-case first letter capitalizes the spelling.
  GrammarItem parse_mention(std::string_view inside) const {
    GrammarItem item;
    item.kind = GrammarItem::Kind::Use;
    std::string name(inside);
    if (name.empty()) fail_here("There is no slot between the braces.");
    if (std::isupper(static_cast<unsigned char>(name[0]))) {
      item.capital = true;
      name[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(name[0])));
    }
    if (name.back() == '!') {
      name.pop_back();
      item.kind = GrammarItem::Kind::Draw;
    }
    parse_slot_and_form(name, item);
    if (item.kind == GrammarItem::Kind::Draw && item.form != 0) {
      fail_here(concat("A slot is drawn by its key, so ", inside, " may not name a form."));
    }
    return item;
  }

  void parse_slot_and_form(std::string_view text, GrammarItem& item) const {
    const auto dot = text.find('.');
    item.slot = find_slot(text.substr(0, dot));
    if (dot != std::string_view::npos) {
      item.form = find_form(grammar_.slots[item.slot].domain, text.substr(dot + 1));
    }
  }

  std::string_view source_;
  GrammarSource grammar_;
  Section section_ = Section::None;
  Index line_ = 0;
};

std::string Parser::take_line() {
  std::string line;
  for (bool joined = true; joined;) {
    const auto end = std::min(source_.find('\n'), source_.size());
    std::string_view part = source_.substr(0, end);
    source_.remove_prefix(std::min(end + 1, source_.size()));
    ++line_;
    joined = part.ends_with('\\') && !source_.empty();
    if (joined) part.remove_suffix(1);
    line += line.empty() ? part : part.substr(std::min(part.find_first_not_of(' '), part.size()));
  }
  return line;
}

void Parser::parse_heading(std::string_view line) {
  const auto space = std::min(line.find(' '), line.size());
  const std::string_view word = line.substr(0, space), rest = trim(line.substr(space));
  if (word == "domain") {
    parse_domain(rest);
  } else if (word == "slot") {
    parse_slot(rest);
  } else if (word == "rule") {
    if (rest.empty()) fail_here("The rule has no name.");
    if (grammar_.find_rule(rest) >= 0) fail_here(concat("Rule ", rest, " is defined twice."));
    grammar_.rules.push_back({std::string(rest), line_, {}});
    section_ = Section::Rule;
  } else {
    fail_here("domain, slot or rule", word);
  }
}

void Parser::parse_slot(std::string_view text) {
  section_ = Section::None;
  const auto colon = text.find(':');
  if (colon == std::string_view::npos) fail_here("name: domain", text);
  GrammarSlot slot;
  slot.name = trim(text.substr(0, colon));
  std::string_view rest = trim(text.substr(colon + 1));
  const auto where = rest.find(" where ");
  slot.domain = find_named(grammar_.domains, trim(rest.substr(0, where)));
  if (slot.domain < 0) fail_here("a known domain", rest);
  while (where != std::string_view::npos) {
    const auto begin = slot.filters.empty() ? where + 7 : rest.find(" and ") + 5;
    rest.remove_prefix(begin);
    slot.filters.push_back(parse_filter(rest.substr(0, rest.find(" and ")), slot.domain));
    if (rest.find(" and ") == std::string_view::npos) break;
  }
  if (find_named(grammar_.slots, slot.name) >= 0)
    fail_here(concat("Slot ", slot.name, " is defined twice."));
  grammar_.slots.push_back(std::move(slot));
}

void Parser::parse_domain(std::string_view text) {
  const auto colon = text.find(':');
  if (colon == std::string_view::npos) fail_here("name: form, form, …", text);
  GrammarDomain domain;
  domain.name = trim(text.substr(0, colon));
  domain.forms = split_list(text.substr(colon + 1));
  if (find_named(grammar_.domains, domain.name) >= 0)
    fail_here(concat("Domain ", domain.name, " is defined twice."));
  grammar_.domains.push_back(std::move(domain));
  section_ = Section::Domain;
}

GrammarFilter Parser::parse_filter(std::string_view text, int domain) const {
  const auto equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0) fail_here("form = slot", text);
  GrammarFilter filter;
  filter.equal = text[equals - 1] != '!';
  filter.form = find_form(domain, trim(text.substr(0, equals - (filter.equal ? 0 : 1))));
  filter.other_slot = find_slot(trim(text.substr(equals + 1)));
  return filter;
}

}  // namespace

int GrammarSource::find_rule(std::string_view name) const { return find_named(rules, name); }

GrammarSource parse_grammar(std::string_view source) { return Parser(source).run(); }

}  // namespace hone::data
