// SPDX-License-Identifier: Apache-2.0
#include "hone/cli/validators.h"

#include <charconv>
#include <cmath>
#include <string>
#include <utility>

#include "hone/core/check.h"

namespace hone::cli {
namespace {

template <class Number>
bool parse(const std::string& text, Number& value) {
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  return parsed.ec == std::errc() && parsed.ptr == end;
}

std::string refuse(const std::string& expected, const std::string& text) {
  return concat("expected ", expected, ", got ", text.substr(0, 40));
}

}  // namespace

CLI::Validator whole_number(Index low, Index high) {
  const bool bounded = high != std::numeric_limits<Index>::max();
  const std::string range = concat("a whole number from ", low, " to ", high);
  const std::string expected = bounded ? range : concat("a whole number of at least ", low);
  const auto check = [=](std::string& text) -> std::string {
    Index value = 0;
    if (parse(text, value) && value >= low && value <= high) return "";
    const bool is_digits = text.find_first_not_of("0123456789") == std::string::npos;
    return refuse(is_digits && text.size() > 18 ? range : expected, text);
  };
  return {check, bounded ? concat(low, "..", high) : concat(low, ".."), "WHOLE"};
}

CLI::Validator positive_number() {
  const auto check = [](std::string& text) {
    double value = 0;
    return parse(text, value) && std::isfinite(value) && value > 0
               ? ""
               : refuse("a finite number above 0", text);
  };
  return {check, "> 0", "POSITIVE"};
}

CLI::Validator number_from(double low, double high) {
  const auto check = [=](std::string& text) {
    double value = 0;
    return parse(text, value) && value >= low && value <= high
               ? ""
               : refuse(concat("a number from ", low, " to ", high), text);
  };
  return {check, concat(low, "..", high), "NUMBER"};
}

CLI::Validator not_empty(std::string what) {
  const auto check = [what = std::move(what)](std::string& text) {
    return text.empty() ? refuse(what, "none") : "";
  };
  return {check, "", "NOT_EMPTY"};
}

void refuse_options(const std::vector<CLI::Option*>& options, const std::string& reason) {
  for (const CLI::Option* option : options) {
    HONE_REQUIRE(option->count() == 0, option->get_name(), reason);
  }
}

}  // namespace hone::cli
