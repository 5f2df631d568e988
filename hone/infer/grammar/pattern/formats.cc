// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/grammar/pattern/formats.h"

#include <map>
#include <string>

#include "hone/core/check.h"

namespace hone::infer::grammar {
namespace {

std::map<std::string_view, std::string> make_formats() {
  // RFC 3339, from year 1000 to 2999. February 29 comes in leap years only.
  const std::string date =
      "([12]\\d{3}-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)|"
      "02-(0[1-9]|1\\d|2[0-8]))|([12]\\d(0[48]|[2468][048]|[13579][26])|(1[26]|2[048])00)-02-29)";
  const std::string time =
      "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,9})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)";
  const std::string clock = "T(\\d{1,9}H(\\d{1,9}M(\\d{1,9}S)?)?|\\d{1,9}M(\\d{1,9}S)?|\\d{1,9}S)";
  const std::string days = "(\\d{1,9}D|\\d{1,9}M(\\d{1,9}D)?|\\d{1,9}Y(\\d{1,9}M(\\d{1,9}D)?)?)";
  // Atoms of RFC 5322 and labels of RFC 1123, shorter than their limits.
  const std::string atom = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,20}";
  const std::string label = "[A-Za-z0-9]{1,20}(-[A-Za-z0-9]{1,20}){0,2}";
  const std::string host = concat(label, "(\\.", label, "){0,3}");
  const std::string byte = "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)";
  const std::string hex = "[0-9a-fA-F]{1,4}";
  // RFC 3986.
  const std::string path_character = "([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})";
  const std::string query_and_fragment =
      concat("(\\?(", path_character, "|[/?])*)?(#(", path_character, "|[/?])*)?");
  const std::string ipv6 =
      concat("(", hex, ":){7}", hex, "|(", hex, ":){1,7}:|(", hex, ":){1,6}:", hex, "|(", hex,
             ":){1,4}(:", hex, "){1,3}|::(", hex, ":){0,6}", hex, "|::");
  return {{"date", date},
          {"time", time},
          {"date-time", concat(date, "T", time)},
          {"duration", concat("P(", days, "(", clock, ")?|", clock, "|\\d{1,9}W)")},
          {"uuid", "[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"},
          {"email", concat(atom, "(\\.", atom, "){0,2}@", label, "(\\.", label, "){1,2}")},
          {"hostname", host},
          {"ipv4", concat(byte, "(\\.", byte, "){3}")},
          {"ipv6", ipv6},
          {"uri", concat("[A-Za-z][A-Za-z0-9+.-]{0,15}://", host, "(:\\d{1,4})?(/", path_character,
                         "*)*", query_and_fragment)},
          {"uri-reference", concat("(/", path_character, "+)+/?", query_and_fragment)}};
}

}  // namespace

std::optional<std::string> pattern_of_format(std::string_view format) {
  static const std::map<std::string_view, std::string> formats = make_formats();
  const auto found = formats.find(format);
  if (found == formats.end()) return std::nullopt;
  return concat("^(", found->second, ")$");
}

}  // namespace hone::infer::grammar
