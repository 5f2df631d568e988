// SPDX-License-Identifier: Apache-2.0
// The same of configurations: each is read, or refused with one hone::Error and nothing changed.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "hone/core/config/config_table.h"
#include "tests/fuzz/mutation_support.h"
#include "tests/support/error_of.h"

namespace hone {

struct Orchard {
  Index trees = 3;
  double height = 1.5;
  bool open = true;
  std::string name = "old";
  std::vector<std::string> plants = {"fern", "moss"};
  std::optional<double> rain = 0.25;
};

static ConfigEntries config_entries(Orchard& orchard) {
  return {{"size.trees", &orchard.trees, "how many"}, {"size.height", &orchard.height, "a wall"},
          {"gate.open", &orchard.open, "now"},        {"gate.name", &orchard.name, "on the sign"},
          {"beds.plants", &orchard.plants, "by bed"}, {"beds.rain", &orchard.rain, "a day"}};
}

namespace {

void read(const std::string& text) {
  Orchard orchard;
  const std::string before = to_toml(orchard);
  try {
    read_config_text(orchard, text, "fuzz.toml");
  } catch (const Error&) {
    EXPECT_EQ(to_toml(orchard), before);
    throw;
  }
  Orchard again;  // what was read can be written and read
  const std::string written = to_toml(orchard);
  EXPECT_EQ(test::error_of([&] { read_config_text(again, written, "written.toml"); }), "no error");
  EXPECT_EQ(to_toml(again), written);
}

TEST(ConfigMutation, bytes) { test::run_mutations(to_toml(Orchard()), test::mutate_binary, read); }

TEST(ConfigMutation, tokens) { test::run_mutations(to_toml(Orchard()), test::mutate_json, read); }

}  // namespace
}  // namespace hone
