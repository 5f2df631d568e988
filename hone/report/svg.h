// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hone::report {

struct SvgPoint {
  double x = 0, y = 0;
};

// Escapes text for the content and the double-quoted attributes of XML and HTML. Bytes that are not
// UTF-8 and control characters become U+FFFD, so that any text is safe.
std::string escape_markup(std::string_view text);
// Only the first step: valid UTF-8 without control characters other than tab and line feed.
std::string clean_text(std::string_view text);

enum class Anchor { Start, Middle, End };

// Writes one well-formed SVG element. The style comes from CSS classes of the page, so that light
// and dark themes share the drawing. Coordinates are in user units with y downwards.
class SvgWriter {
 public:
  SvgWriter(double width, double height, std::string_view title, std::string_view description);

  // Classes are space-separated and not escaped, so they must not come from data.
  void add_line(SvgPoint from, SvgPoint to, std::string_view classes);
  void add_polyline(const std::vector<SvgPoint>& points, std::string_view classes);
  void add_circle(SvgPoint center, double radius, std::string_view classes,
                  std::string_view tooltip = {});
  void add_rectangle(SvgPoint corner, SvgPoint size, std::string_view classes,
                     std::string_view tooltip = {});
  void add_text(SvgPoint at, std::string_view text, Anchor anchor, std::string_view classes);
  // Reads upwards from `at`.
  void add_upward_text(SvgPoint at, std::string_view text, std::string_view classes);
  // `address` is that of the image's data: nothing is fetched.
  void add_image(SvgPoint corner, SvgPoint size, std::string_view address);

  // Returns the finished element. The writer must not be used afterwards.
  std::string finish();

 private:
  void close_shape(std::string_view tooltip, std::string_view name);

  std::string out_;
};

// The estimated width of a text in the page's font, in units of the font size.
double text_width(std::string_view text);

}  // namespace hone::report
