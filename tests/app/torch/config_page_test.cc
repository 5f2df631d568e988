// SPDX-License-Identifier: Apache-2.0
// docs/config.md against the tables that the parsers read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "hone/core/file/file_io.h"
#include "hone/train/task/lm/lm_config.h"
#include "hone/train/task/vision/vision_config.h"
#include "tests/support/test_data.h"

namespace hone::app {
namespace {

// The rows of keys below a heading.
std::vector<std::string> rows_below(const std::string& heading) {
  std::istringstream page(read_text_file(test::source_file("docs/config.md")));
  std::vector<std::string> rows;
  bool inside = false;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("## ")) inside = line == heading;
    if (inside && line.starts_with("| `") && line.find("` | ") != std::string::npos) {
      rows.push_back(line);
    }
  }
  return rows;
}

template <class Config>
std::vector<std::string> rows_of(Config config = {}) {
  std::vector<std::string> rows;
  for (const ConfigEntry& entry : config_entries(config)) {
    std::ostringstream row;
    row << "| `" << entry.name << "` | " << type_of(entry) << " | `" << value_of(entry) << "` | "
        << entry.meaning << " |";
    rows.push_back(row.str());
  }
  return rows;
}

TEST(ConfigPage, lists_exactly_the_keys_types_defaults_and_meanings_of_the_parsers) {
  EXPECT_THAT(rows_below("## `hone train lm`"), testing::ContainerEq(rows_of<task::LmConfig>()));
  EXPECT_THAT(rows_below("## `hone train vision`"),
              testing::ContainerEq(rows_of<task::VisionConfig>()));
  const std::vector<std::string> vision = rows_of<task::VisionConfig>();
  std::vector<std::string> differing;
  for (const std::string& row : rows_of(task::part_contrast_config())) {
    if (std::ranges::find(vision, row) == vision.end()) differing.push_back(row);
  }
  EXPECT_THAT(rows_below("## `hone train paco`"), testing::ContainerEq(differing));
}

}  // namespace
}  // namespace hone::app
