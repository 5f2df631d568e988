// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "hone/core/file/json_io.h"
#include "hone/core/index.h"

namespace hone::report {

// A labeled rectangle, in pixels of its picture.
struct PictureBox {
  double left = 0, top = 0, width = 0, height = 0;
  std::string label;
};

struct Picture {
  std::string name, note;
  bool marked = false;  // its name has the color of what needs attention
  Index width = 0, height = 0;
  std::vector<std::byte> png;  // goes into the page, not into the JSON document
  std::vector<PictureBox> boxes;
};

// Small pictures side by side, as many in a row as there is room for.
struct Pictures {
  std::string title, note;
  std::vector<Picture> pictures;
};

// One SVG element with the picture and its boxes. Throws Error{InvalidArgument} for a picture
// without pixels.
std::string draw(const Picture& picture);
// Everything but the pixels.
Json to_json(const Pictures& pictures);

}  // namespace hone::report
