// SPDX-License-Identifier: Apache-2.0
#include "hone/report/pictures.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "hone/core/base64.h"
#include "hone/core/check.h"
#include "hone/report/svg.h"

namespace hone::report {
namespace {

// The width of a drawing in its own units: that of a picture on the page, or somewhat more.
constexpr double kWidth = 240;

}  // namespace

std::string draw(const Picture& picture) {
  HONE_CHECK(picture.width > 0 && picture.height > 0, "picture", "at least one pixel",
             concat(picture.width, " x ", picture.height));
  const double scale = kWidth / static_cast<double>(picture.width);
  const double height = scale * static_cast<double>(picture.height);
  SvgWriter svg(kWidth, height, picture.name, picture.note);
  svg.add_image({0, 0}, {kWidth, height}, "data:image/png;base64," + to_base64(picture.png));
  for (const PictureBox& box : picture.boxes) {
    svg.add_rectangle({scale * box.left, scale * box.top}, {scale * box.width, scale * box.height},
                      "box", box.label);
  }
  for (const PictureBox& box : picture.boxes) {
    svg.add_text({scale * box.left + 5, scale * box.top + 16}, box.label, Anchor::Start,
                 "box-name");
  }
  return svg.finish();
}

Json to_json(const Pictures& pictures) {
  Json json = {{"kind", "pictures"}, {"title", clean_text(pictures.title)}};
  json["pictures"] = Json::array();
  for (const Picture& picture : pictures.pictures) {
    Json boxes = Json::array();
    for (const PictureBox& box : picture.boxes) {
      boxes.push_back({{"label", clean_text(box.label)},
                       {"left", box.left},
                       {"top", box.top},
                       {"width", box.width},
                       {"height", box.height}});
    }
    json["pictures"].push_back({{"name", clean_text(picture.name)},
                                {"note", clean_text(picture.note)},
                                {"width", picture.width},
                                {"height", picture.height},
                                {"boxes", std::move(boxes)}});
  }
  return json;
}

}  // namespace hone::report
