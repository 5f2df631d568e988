// SPDX-License-Identifier: Apache-2.0
#include "hone/text/chat_template/python_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "hone/core/check.h"
#include "hone/text/chat_template/work_limit.h"
#include "hone/text/unicode/utf8.h"

namespace hone::text {
namespace {

constexpr std::string_view kHex = "0123456789abcdef";

void append_hex(std::string& out, char32_t value, int digits) {
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4)
    out.push_back(kHex[value >> shift & 15]);
}

// The shortest digits that read back as the same number, as Python prints them.
std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 64> buffer{};
  const auto end =
      std::to_chars(buffer.begin(), buffer.end(), value, std::chars_format::scientific).ptr;
  const std::string_view spelled(buffer.data(), static_cast<std::size_t>(end - buffer.data()));
  const std::size_t e = spelled.find('e');
  const int exponent = std::stoi(std::string(spelled.substr(e + 1)));
  std::string digits;
  for (const char c : spelled.substr(0, e)) {
    if (c >= '0' && c <= '9') digits.push_back(c);
  }
  std::string out(value < 0 || std::signbit(value) ? "-" : "");
  if (exponent < -4 || exponent >= 16) {
    out += digits.substr(0, 1);
    if (digits.size() > 1) out += concat(".", digits.substr(1));
    const int size = std::abs(exponent);
    return concat(out, exponent < 0 ? "e-" : "e+", size < 10 ? "0" : "", size);
  }
  if (exponent < 0) {
    out += "0.";
    out.append(static_cast<std::size_t>(-exponent - 1), '0');
    return out + digits;
  }
  const auto whole = static_cast<std::size_t>(exponent) + 1;
  if (digits.size() < whole) digits.append(whole - digits.size(), '0');
  const std::string fraction = digits.substr(whole);
  return concat(out, digits.substr(0, whole), ".", fraction.empty() ? "0" : fraction);
}

std::string scalar_text(const Value& value) {
  switch (value.kind()) {
    case ValueKind::None:
      return "None";
    case ValueKind::Bool:
      return value.truth() ? "True" : "False";
    case ValueKind::Int:
      return concat(value.integer());
    case ValueKind::Float:
      return float_text(value.number());
    case ValueKind::Object:
      return "<namespace>";
    case ValueKind::Function:
      return concat("<function ", value.function().name, ">");
    default:
      return "";
  }
}

bool is_printable(char32_t c) {
  const bool is_control = c < 0x20 || (c >= 0x7F && c <= 0xA0) || c == 0xAD;
  const bool is_separator = is_white_space(c) && c != ' ';
  return !is_control && !is_separator && !(c >= 0xD800 && c <= 0xDFFF) && c != 0xFEFF &&
         !(c >= 0x200B && c <= 0x200F) && !(c >= 0x2028 && c <= 0x202E) &&
         !(c >= 0x2060 && c <= 0x206F) && !(c >= 0xE000 && c <= 0xF8FF);
}

MarkedText text_repr(const MarkedText& marked) {
  const std::string& text = marked.text();
  const bool has_single = text.find('\'') != std::string::npos;
  const char quote = has_single && text.find('"') == std::string::npos ? '"' : '\'';
  MarkedText out{std::string(1, quote)};
  const std::vector<std::size_t> at = characters(text);
  for (std::size_t i = 0; i + 1 < at.size(); ++i) {
    const std::string_view spelled(text.data() + at[i], at[i + 1] - at[i]);
    const CodePoint c = decode_utf8(spelled);
    static constexpr std::string_view kEscaped = "\\\n\r\t", kNames = "\\nrt";
    std::string escaped;
    if (const auto known = kEscaped.find(spelled[0]); known != std::string_view::npos) {
      escaped = {'\\', kNames[known]};
    } else if (spelled[0] == quote) {
      escaped = {'\\', quote};
    } else if (c.bytes == 0 || is_printable(c.value)) {
      escaped = spelled;
    } else if (c.value < 0x100) {
      escaped = "\\x";
      append_hex(escaped, c.value, 2);
    } else {
      escaped = c.value < 0x10000 ? "\\u" : "\\U";
      append_hex(escaped, c.value, c.value < 0x10000 ? 4 : 8);
    }
    out.append(escaped, marked.origin(at[i]));
  }
  out.append(std::string_view(&quote, 1));
  return out;
}

MarkedText list_repr(const Value& value) {
  const bool is_tuple = value.is(ValueKind::Tuple);
  MarkedText out(is_tuple ? "(" : "[");
  const ValueList& items = value.list();
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.append(", ");
    out.append(to_repr(items[i]));
  }
  if (is_tuple && items.size() == 1) out.append(",");
  out.append(is_tuple ? ")" : "]");
  return out;
}

MarkedText dict_repr(const ValueDict& dict) {
  MarkedText out("{");
  bool is_first = true;
  for (const auto& [key, value] : dict.entries) {
    if (!std::exchange(is_first, false)) out.append(", ");
    out.append(to_repr(key));
    out.append(": ");
    out.append(to_repr(value));
  }
  out.append("}");
  return out;
}

class JsonWriter {
 public:
  explicit JsonWriter(const JsonSpelling& spelling) : spelling_(spelling) {}

  void write(const Value& value, int depth) {
    WorkLimit::spend(sizeof(Value));
    switch (value.kind()) {
      case ValueKind::None:
        return out_.append("null");
      case ValueKind::Bool:
        return out_.append(value.truth() ? "true" : "false");
      case ValueKind::Int:
        return out_.append(scalar_text(value));
      case ValueKind::Float:
        return write_float(value.number());
      case ValueKind::Text:
        return write_text(value.marked());
      case ValueKind::List:
      case ValueKind::Tuple:
        return write_list(value.list(), depth);
      case ValueKind::Dict:
        return write_dict(value.dict(), depth);
      default:
        fail_template(concat("tojson cannot write a value of the type ", value.type_name(), "."));
    }
  }
  MarkedText take() { return std::move(out_); }

 private:
  void write_float(double value) {
    if (std::isnan(value)) return out_.append("NaN");
    if (std::isinf(value)) return out_.append(value > 0 ? "Infinity" : "-Infinity");
    out_.append(float_text(value));
  }
  void write_text(const MarkedText& marked);
  void begin_line(int depth) {
    if (spelling_.indent < 0) return;
    out_.append("\n" + std::string(static_cast<std::size_t>(depth * spelling_.indent), ' '));
  }
  void separate(bool is_first, int depth) {
    if (!is_first) out_.append(spelling_.item_separator);
    begin_line(depth);
  }
  void write_list(const ValueList& items, int depth) {
    if (items.empty()) return out_.append("[]");
    out_.append("[");
    for (std::size_t i = 0; i < items.size(); ++i) {
      separate(i == 0, depth + 1);
      write(items[i], depth + 1);
    }
    begin_line(depth);
    out_.append("]");
  }
  void write_dict(const ValueDict& dict, int depth) {
    if (dict.entries.empty()) return out_.append("{}");
    auto entries = dict.entries;
    if (spelling_.sort_keys) {
      std::ranges::stable_sort(entries, {},
                               [](const auto& entry) { return to_str(entry.first).text(); });
    }
    out_.append("{");
    bool is_first = true;
    for (const auto& [key, value] : entries) {
      separate(std::exchange(is_first, false), depth + 1);
      if (key.is(ValueKind::Text)) {
        write_text(key.marked());
      } else {
        out_.append("\"");
        JsonWriter inner(spelling_);
        inner.write(key, 0);
        out_.append(inner.take());
        out_.append("\"");
      }
      out_.append(spelling_.key_separator);
      write(value, depth + 1);
    }
    begin_line(depth);
    out_.append("}");
  }

  const JsonSpelling& spelling_;
  MarkedText out_;
};

void JsonWriter::write_text(const MarkedText& marked) {
  static constexpr std::string_view kEscaped = "\"\\\n\r\t\f\b", kNames = "\"\\nrtfb";
  const std::string& text = marked.text();
  const std::vector<std::size_t> at = characters(text);
  out_.append("\"");
  for (std::size_t i = 0; i + 1 < at.size(); ++i) {
    const std::string_view spelled(text.data() + at[i], at[i + 1] - at[i]);
    std::string escaped(spelled);
    char32_t c = decode_utf8(spelled).value;
    if (const auto known = kEscaped.find(spelled[0]); known != std::string_view::npos) {
      escaped = {'\\', kNames[known]};
    } else if (c < 0x20 || (spelling_.ensure_ascii && c >= 0x7F)) {
      escaped = "\\u";
      if (c >= 0x10000) {
        c -= 0x10000;
        append_hex(escaped, 0xD800 + (c >> 10), 4);
        escaped += "\\u";
        c = 0xDC00 + (c & 0x3FF);
      }
      append_hex(escaped, c, 4);
    }
    out_.append(escaped, marked.origin(at[i]));
  }
  out_.append("\"");
}

// The end of the separator of lines that begins here, or `at`.
std::size_t line_end(std::string_view text, std::size_t at) {
  if (text.substr(at).starts_with("\r\n")) return at + 2;
  const CodePoint c = decode_utf8(text.substr(at));
  const bool ends = (c.value >= 0x0A && c.value <= 0x0D) || (c.value >= 0x1C && c.value <= 0x1E) ||
                    c.value == 0x85 || c.value == 0x2028 || c.value == 0x2029;
  return ends && c.bytes > 0 ? at + static_cast<std::size_t>(c.bytes) : at;
}

ValueList split_at_spaces(const MarkedText& text, std::int64_t most, bool from_right) {
  const std::string& bytes = text.text();
  const std::vector<std::size_t> at = characters(bytes);
  const auto is_space_at = [&](std::size_t i) {
    return is_python_space(decode_utf8(std::string_view(bytes).substr(at[i])).value);
  };
  std::vector<std::pair<std::size_t, std::size_t>> words;  // characters
  const std::size_t count = at.size() - 1;
  for (std::size_t i = 0; i < count;) {
    if (is_space_at(i)) {
      ++i;
      continue;
    }
    const std::size_t begin = i;
    while (i < count && !is_space_at(i)) ++i;
    words.emplace_back(begin, i);
  }
  // Beyond the limit, the rest is one part, which keeps the white space at its far end.
  if (const auto limit = static_cast<std::size_t>(most); most >= 0 && words.size() > limit) {
    if (from_right) {
      const auto rest = words.end() - static_cast<std::ptrdiff_t>(limit) - 1;
      rest->first = 0;
      words.erase(words.begin(), rest);
    } else {
      words.resize(limit + 1);
      words.back().second = count;
    }
  }
  ValueList out;
  for (const auto& [begin, end] : words) {
    out.emplace_back(text.substr(at[begin], at[end] - at[begin]));
  }
  return out;
}

}  // namespace

MarkedText to_str(const Value& value) {
  switch (value.kind()) {
    case ValueKind::Text:
      return value.marked();
    case ValueKind::List:
    case ValueKind::Tuple:
      return list_repr(value);
    case ValueKind::Dict:
      return dict_repr(value.dict());
    default:
      return MarkedText(scalar_text(value));
  }
}

MarkedText to_repr(const Value& value) {
  if (value.is(ValueKind::Text)) return text_repr(value.marked());
  if (value.is_undefined()) return MarkedText("Undefined");
  return to_str(value);
}

MarkedText to_json(const Value& value, const JsonSpelling& spelling) {
  JsonWriter writer(spelling);
  writer.write(value, 0);
  return writer.take();
}

std::vector<std::size_t> characters(std::string_view text) {
  WorkLimit::spend(text.size());
  std::vector<std::size_t> begins;
  begins.reserve(text.size() + 1);
  for (std::size_t at = 0; at < text.size();) {
    begins.push_back(at);
    at += static_cast<std::size_t>(std::max(1, decode_utf8(text.substr(at, 4)).bytes));
  }
  begins.push_back(text.size());
  return begins;
}

bool is_python_space(char32_t character) {
  return is_white_space(character) || (character >= 0x1C && character <= 0x1F);
}

MarkedText strip(const MarkedText& text, Side side, const std::string* set) {
  const std::string& bytes = text.text();
  const std::vector<std::size_t> at = characters(bytes);
  const auto goes = [&](std::size_t i) {
    const std::string_view spelled(bytes.data() + at[i], at[i + 1] - at[i]);
    if (set != nullptr) return set->find(spelled) != std::string::npos;
    const CodePoint c = decode_utf8(spelled);
    return c.bytes > 0 && is_python_space(c.value);
  };
  std::size_t begin = 0, end = at.size() - 1;
  if (side != Side::Right) {
    while (begin < end && goes(begin)) ++begin;
  }
  if (side != Side::Left) {
    while (end > begin && goes(end - 1)) --end;
  }
  return text.substr(at[begin], at[end] - at[begin]);
}

ValueList split(const MarkedText& text, const std::string* separator, std::int64_t most,
                bool from_right) {
  if (separator == nullptr) return split_at_spaces(text, most, from_right);
  if (separator->empty()) fail_template("split() has an empty separator.");
  WorkLimit::spend_on_search(text.text(), *separator);
  const std::string& bytes = text.text();
  std::vector<std::size_t> cuts;
  const auto is_enough = [&] { return most >= 0 && std::ssize(cuts) >= most; };
  if (from_right) {
    for (std::size_t end = bytes.size(); !is_enough() && end >= separator->size();) {
      const std::size_t found = bytes.rfind(*separator, end - separator->size());
      if (found == std::string::npos) break;
      cuts.push_back(found);
      end = found;
    }
    std::ranges::reverse(cuts);
  } else {
    for (std::size_t at = 0; !is_enough();) {
      const std::size_t found = bytes.find(*separator, at);
      if (found == std::string::npos) break;
      cuts.push_back(found);
      at = found + separator->size();
    }
  }
  ValueList out;
  std::size_t begin = 0;
  for (const std::size_t cut : cuts) {
    out.emplace_back(text.substr(begin, cut - begin));
    begin = cut + separator->size();
  }
  out.emplace_back(text.substr(begin));
  return out;
}

ValueList split_lines(const MarkedText& text) {
  ValueList out;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = line_end(text.text(), at);
    if (end == at) {
      ++at;
      continue;
    }
    out.emplace_back(text.substr(begin, at - begin));
    begin = at = end;
  }
  if (begin < text.size()) out.emplace_back(text.substr(begin));
  return out;
}

MarkedText replace(const MarkedText& text, std::string_view old, const MarkedText& with,
                   std::int64_t most) {
  MarkedText out;
  std::int64_t done = 0;
  const auto goes_on = [&] { return most < 0 || done < most; };
  if (old.empty()) {  // in front of each character, and at the end
    const std::vector<std::size_t> at = characters(text.text());
    for (std::size_t i = 0; i < at.size(); ++i) {
      if (goes_on()) out.append(with);
      ++done;
      if (i + 1 < at.size()) out.append(text.substr(at[i], at[i + 1] - at[i]));
    }
    return out;
  }
  WorkLimit::spend_on_search(text.text(), old);
  std::size_t begin = 0;
  for (; goes_on(); ++done) {
    const std::size_t found = text.text().find(old, begin);
    if (found == std::string::npos) break;
    out.append(text.substr(begin, found - begin));
    out.append(with);
    begin = found + old.size();
  }
  out.append(text.substr(begin));
  return out;
}

MarkedText change_case(const MarkedText& text, LetterCase letter_case) {
  MarkedText out;
  bool is_first = true, is_inside = false;  // of a word
  for (std::size_t i = 0; i < text.size(); ++i) {
    char c = text.text()[i];
    const bool is_lower = c >= 'a' && c <= 'z', is_upper = c >= 'A' && c <= 'Z';
    const bool wants_upper = letter_case == LetterCase::Upper ||
                             (letter_case == LetterCase::Capitalized && is_first) ||
                             (letter_case >= LetterCase::Title && !is_inside);
    if (is_lower && wants_upper) c = static_cast<char>(c - 'a' + 'A');
    if (is_upper && !wants_upper) c = static_cast<char>(c - 'A' + 'a');
    out.append(std::string_view(&c, 1), text.origin(i));
    is_first = false;
    static constexpr std::string_view kBegins = "-({[< \t\n\r\f\v";
    is_inside = letter_case == LetterCase::TitleWords
                    ? kBegins.find(c) == std::string_view::npos
                    : is_lower || is_upper || static_cast<unsigned char>(c) >= 0x80;
  }
  return out;
}

}  // namespace hone::text
