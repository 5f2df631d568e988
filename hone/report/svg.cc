// SPDX-License-Identifier: Apache-2.0
#include "hone/report/svg.h"

#include <fmt/core.h>

#include <iterator>

namespace hone::report {
namespace {

constexpr std::string_view kReplacement = "\uFFFD";

// The length of the valid UTF-8 sequence at the start of `text`; 0 if there is none.
std::size_t sequence_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0u) != 0x80u) return 0;
  }
  const unsigned second = byte(1);
  const bool is_bad = (lead == 0xe0 && second < 0xa0) || (lead == 0xed && second > 0x9f) ||
                      (lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second > 0x8f);
  return is_bad ? 0 : length;
}

// Two decimals are less than a pixel at every displayed size.
std::string number(double value) {
  std::string text = fmt::format("{:.2f}", value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text == "-0" ? "0" : text;
}

std::string_view name_of(Anchor anchor) {
  switch (anchor) {
    case Anchor::Start:
      return "start";
    case Anchor::Middle:
      return "middle";
    case Anchor::End:
      return "end";
  }
  return "start";
}

}  // namespace

std::string clean_text(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = sequence_length(text);
    const auto byte = static_cast<unsigned char>(text[0]);
    const bool is_control = (byte < 0x20 && byte != '\t' && byte != '\n') || byte == 0x7f ||
                            text.starts_with("\xEF\xBF\xBE") || text.starts_with("\xEF\xBF\xBF");
    if (length == 0 || is_control) {
      out += kReplacement;
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

std::string escape_markup(std::string_view text) {
  std::string out;
  for (char c : clean_text(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

double text_width(std::string_view text) {
  double width = 0;
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte & 0xc0u) == 0x80u) continue;  // within a character
    if (std::string_view("ijltfr.,:' |[]()").find(c) != std::string_view::npos) {
      width += 0.34;
    } else if ((c >= 'A' && c <= 'Z') || c == 'm' || c == 'w') {
      width += 0.72;
    } else {
      width += 0.56;
    }
  }
  return width;
}

SvgWriter::SvgWriter(double width, double height, std::string_view title,
                     std::string_view description) {
  out_ = fmt::format(
      "<svg viewBox=\"0 0 {} {}\" role=\"img\">"
      "<title>{}</title><desc>{}</desc>\n",
      number(width), number(height), escape_markup(title), escape_markup(description));
}

void SvgWriter::add_line(SvgPoint from, SvgPoint to, std::string_view classes) {
  fmt::format_to(std::back_inserter(out_),
                 "<line class=\"{}\" x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"/>\n", classes,
                 number(from.x), number(from.y), number(to.x), number(to.y));
}

void SvgWriter::add_polyline(const std::vector<SvgPoint>& points, std::string_view classes) {
  fmt::format_to(std::back_inserter(out_), "<polyline class=\"{}\" points=\"", classes);
  for (const SvgPoint& point : points) {
    fmt::format_to(std::back_inserter(out_), "{},{} ", number(point.x), number(point.y));
  }
  out_ += "\"/>\n";
}

void SvgWriter::close_shape(std::string_view tooltip, std::string_view name) {
  if (tooltip.empty()) {
    out_ += "/>\n";
  } else {
    fmt::format_to(std::back_inserter(out_), "><title>{}</title></{}>\n", escape_markup(tooltip),
                   name);
  }
}

void SvgWriter::add_circle(SvgPoint center, double radius, std::string_view classes,
                           std::string_view tooltip) {
  fmt::format_to(std::back_inserter(out_), "<circle class=\"{}\" cx=\"{}\" cy=\"{}\" r=\"{}\"",
                 classes, number(center.x), number(center.y), number(radius));
  close_shape(tooltip, "circle");
}

void SvgWriter::add_rectangle(SvgPoint corner, SvgPoint size, std::string_view classes,
                              std::string_view tooltip) {
  fmt::format_to(std::back_inserter(out_),
                 "<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"2\"",
                 classes, number(corner.x), number(corner.y), number(size.x), number(size.y));
  close_shape(tooltip, "rect");
}

void SvgWriter::add_text(SvgPoint at, std::string_view text, Anchor anchor,
                         std::string_view classes) {
  fmt::format_to(std::back_inserter(out_),
                 "<text class=\"{}\" x=\"{}\" y=\"{}\" text-anchor=\"{}\">{}</text>\n", classes,
                 number(at.x), number(at.y), name_of(anchor), escape_markup(text));
}

void SvgWriter::add_upward_text(SvgPoint at, std::string_view text, std::string_view classes) {
  fmt::format_to(std::back_inserter(out_),
                 "<text class=\"{}\" transform=\"translate({} {}) rotate(-90)\">{}</text>\n",
                 classes, number(at.x), number(at.y), escape_markup(text));
}

void SvgWriter::add_image(SvgPoint corner, SvgPoint size, std::string_view address) {
  fmt::format_to(std::back_inserter(out_),
                 "<image x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" href=\"{}\"/>\n",
                 number(corner.x), number(corner.y), number(size.x), number(size.y),
                 escape_markup(address));
}

std::string SvgWriter::finish() { return std::move(out_ += "</svg>\n"); }

}  // namespace hone::report
