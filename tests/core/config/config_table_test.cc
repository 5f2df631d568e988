// SPDX-License-Identifier: Apache-2.0
#include "hone/core/config/config_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "tests/support/error_of.h"

namespace hone {

struct Garden {
  Index trees = 3;
  double height = 1.5;
  bool open = true;
  std::string name = "old";
  std::vector<std::string> plants = {"fern"};
  std::optional<double> rain;
  ConfigKeys given = {};
};

// Without trees nobody sees how high the wall is.
static ConfigEntries config_entries(Garden& garden) {
  ConfigEntries entries = {
      {"size.trees", &garden.trees, "how many"}, {"size.height", &garden.height, "of the wall"},
      {"gate.open", &garden.open, "now", false}, {"gate.name", &garden.name, "on the sign"},
      {"beds.plants", &garden.plants, "by bed"}, {"beds.rain", &garden.rain, "a day"}};
  if (garden.trees == 0) entries[1].ignored_by = "size.trees = 0";
  return entries;
}

namespace {

using test::refusal;
using testing::HasSubstr;

TEST(ConfigTable, names_types_and_values) {
  Garden garden;
  std::string types, values;
  for (const ConfigEntry& entry : config_entries(garden)) {
    types += std::string(type_of(entry)) + '|';
    values += value_of(entry) + '|';
  }
  EXPECT_EQ(types, "integer|number|boolean|string|strings|number or auto|");
  EXPECT_EQ(values, "3|1.5|true|\"old\"|[\"fern\"]|\"auto\"|");
}

TEST(ConfigTable, takes_a_value_of_any_type_with_its_place) {
  ConfigValue shed, pond, depth;
  const ConfigEntries entries{{"shed", &shed}, {"pond", &pond}, {"pond.depth", &depth}};
  const auto read = [&](std::string_view toml) { read_entries(entries, toml, "g.toml"); };
  EXPECT_EQ(type_of(entries[0]), "value");
  read("pond = 1\nshed = { doors = [1, 2.5], 'a b' = { open = true, name = \"x\" } }");
  EXPECT_EQ(shed.json, (Json{{"a b", {{"name", "x"}, {"open", true}}}, {"doors", {1, 2.5}}}));
  EXPECT_EQ(shed.place, "g.toml:2");
  EXPECT_EQ(value_of(entries[0]),
            "{\"a b\" = {\"name\" = \"x\", \"open\" = true}, \"doors\" = [1, 2.5]}");
  EXPECT_EQ(pond.json, 1);
  EXPECT_EQ(depth.place, "") << "not given";
  read("pond = { depth = \"deep\" }");
  EXPECT_EQ(depth.json, "deep");
  EXPECT_EQ(pond.json, 1) << "its table has keys of its own";
  EXPECT_THAT(refusal([&] { read("pond = { width = 2 }"); }), HasSubstr("'pond.width'"));
  EXPECT_THAT(refusal([&] { read("shed = [1979-05-27]"); }),
              HasSubstr("[g.toml:1] expected a TOML value for shed, got array"));
}

TEST(ConfigTable, takes_an_optional_number_as_number_or_auto_only) {
  Garden garden;
  read_config_text(garden, "[beds]\nrain = 2\n", "g.toml");
  EXPECT_EQ(garden.rain, 2.0);
  set_config(garden, "beds.rain=auto");
  EXPECT_FALSE(garden.rain);
  set_config(garden, "beds.rain=0");
  EXPECT_EQ(garden.rain, 0.0) << "0 is a number like any other";
  read_config_text(garden, "beds.rain = \"auto\"", "g.toml");
  EXPECT_FALSE(garden.rain);
  EXPECT_THAT(refusal([&] { read_config_text(garden, "beds.rain = \"much\"", "g.toml"); }),
              HasSubstr("expected a TOML number or auto for beds.rain, got string"));
  EXPECT_THAT(refusal([&] { set_config(garden, "beds.rain=true"); }), HasSubstr("number or auto"));
}

TEST(ConfigTable, survives_being_written_and_read) {
  Garden garden{7, 1.0 / 3, false, "a \"b\"\n", {"x", "y, z"}, 0.25};
  Garden again;
  read_config_text(again, to_toml(garden), "g.toml");
  EXPECT_EQ(to_json(again), to_json(garden));
  EXPECT_EQ(again.height, garden.height);
  EXPECT_EQ(again.plants, garden.plants);
  EXPECT_EQ(to_json(Garden())["beds.rain"], "\"auto\"");
}

TEST(ConfigTable, refuses_keys_of_very_many_parts_but_no_dots_elsewhere) {
  Garden garden;
  const std::string dots(200, '.');
  std::string deep = "a";
  for (int i = 0; i < 33; ++i) deep += ". 'b'";
  read_config_text(garden, "# " + dots + "\n[gate]\nname = \"" + dots + "\"\n", "g.toml");
  EXPECT_EQ(garden.name, dots);
  EXPECT_THAT(refusal([&] { read_config_text(garden, "\n" + deep + " = 1", "g.toml"); }),
              HasSubstr("[g.toml:2] expected keys of at most 32 parts"));
}

// Keys without a section, keys that must be there, checks, and an array of tables.
struct Orchard {
  Index rows = 0;
  double distance = 4;
  struct Tree {
    std::string kind;
    std::vector<std::string> grafts;
  };
  std::vector<Tree> trees;

  ConfigEntries entries() {
    return {{.name = "rows", .field = &rows, .required = true, .check = in_range(rows, 1, 9)},
            {.name = "soil.distance", .field = &distance, .check = in_range(distance, 2, 8)}};
  }
  static ConfigEntries entries(Tree& tree) {
    return {{.name = "tree.kind", .field = &tree.kind, .required = true},
            {.name = "tree.grafts", .field = &tree.grafts}};
  }
  ConfigLists lists() {
    ConfigList list{.name = "tree",
                    .append = [this](const std::string&) { return entries(trees.emplace_back()); }};
    for (Tree& tree : trees) list.items.push_back(entries(tree));
    return {list};
  }
  void read(std::string_view toml) { read_entries(entries(), toml, "o.toml", lists()); }
  std::string text() { return entries_to_toml(entries(), lists()); }
};

TEST(ConfigTable, reads_and_writes_arrays_of_tables) {
  Orchard orchard;
  orchard.read(
      "rows = 2\n[soil]\ndistance = 3\n[[tree]]\nkind = \"apple\"\ngrafts = [\"a\"]\n"
      "[[tree]]\nkind = \"pear\"\n");
  ASSERT_EQ(orchard.trees.size(), 2u);
  EXPECT_EQ(orchard.trees[0].kind, "apple");
  EXPECT_EQ(orchard.trees[0].grafts, std::vector<std::string>{"a"});
  EXPECT_EQ(orchard.trees[1].kind, "pear");
  EXPECT_EQ(orchard.text(),
            "rows = 2\n\n[soil]\ndistance = 3.0\n\n[[tree]]\nkind = \"apple\"\ngrafts = [\"a\"]\n"
            "\n[[tree]]\nkind = \"pear\"\ngrafts = []\n");
  Orchard again;
  again.read(orchard.text());
  EXPECT_EQ(again.text(), orchard.text());
}

TEST(ConfigTable, checks_what_it_reads_and_what_must_be_there) {
  const auto complaint = [](std::string_view toml) {
    return refusal([&] { Orchard().read(toml); });
  };
  EXPECT_EQ(complaint("rows = 1"), "");
  EXPECT_THAT(complaint("soil.distance = 3"), HasSubstr("[o.toml] The key rows is missing."));
  EXPECT_THAT(complaint("\nrows = 10"), HasSubstr("[o.toml:2] expected 1 to 9 for rows, got 10"));
  EXPECT_THAT(complaint("rows = 1\nsoil.distance = nan"), HasSubstr("[o.toml:2]"));
  EXPECT_THAT(complaint("rows = 1\n[[tree]]\nkind = \"a\"\n[[tree]]\ngrafts = []"),
              HasSubstr("[o.toml:4] The key tree.kind is missing."));
  EXPECT_THAT(complaint("rows = 1\n[tree]\nkind = \"a\""), HasSubstr("[[tree]] tables, got table"));
  EXPECT_THAT(complaint("rows = 1\n[[tre]]\nkind = \"a\""), HasSubstr("Did you mean 'tree'?"));
  Orchard orchard;
  EXPECT_THAT(refusal([&] { set_entry(orchard.entries(), "rows=0"); }),
              HasSubstr("1 to 9 for rows, got 0"));
}

// Tables of different kinds have different keys.
TEST(ConfigTable, reads_tables_of_several_kinds) {
  constexpr std::array<std::string_view, 2> kKinds{"bed", "path"};
  std::string kind, plant;
  Index width = 0;
  const ConfigList parts{
      .name = "part",
      .append =
          [&](const std::string& one) {
            ConfigEntries entries{{.name = "part.kind", .field = &kind, .required = true}};
            if (one == "bed") entries.push_back({.name = "part.plant", .field = &plant});
            if (one == "path") entries.push_back({.name = "part.width", .field = &width});
            return entries;
          },
      .kind = "kind",
      .kinds = kKinds};
  const auto read = [&](std::string_view toml) { read_entries({}, toml, "p.toml", {parts}); };
  read("[[part]]\nkind = \"path\"\nwidth = 3\n[[part]]\nplant = \"rose\"\nkind = \"bed\"\n");
  EXPECT_EQ(width, 3);
  EXPECT_EQ(plant, "rose");
  EXPECT_EQ(kind, "bed");
  const auto complaint = [&](std::string_view toml) { return refusal([&] { read(toml); }); };
  EXPECT_THAT(complaint("[[part]]\nkind = \"bed\"\nwidth = 3\n"), HasSubstr("part.width"));
  EXPECT_THAT(complaint("\n[[part]]\nkind = \"pond\"\n"),
              HasSubstr("[p.toml:3] expected bed or path for part.kind, got \"pond\""));
  EXPECT_THAT(complaint("[[part]]\nkind = 2\n"), HasSubstr("bed or path for part.kind"));
  EXPECT_THAT(complaint("[[part]]\nwidth = 2\n"), HasSubstr("The key part.kind is missing."));
}

TEST(ConfigTable, an_unknown_key_without_a_near_one_gets_the_keys_beside_it) {
  Garden garden;
  const auto complaint = [&](std::string_view toml) {
    return refusal([&] { read_config_text(garden, toml, "g.toml"); });
  };
  EXPECT_THAT(complaint("[gate]\nzzzz = 1"),
              HasSubstr("Unknown key 'gate.zzzz'. The known ones are: open, name."));
  EXPECT_THAT(complaint("[zzzz]\nx = 1"), HasSubstr("The known ones are: [size], [gate], [beds]."));
}

TEST(ConfigTable, keeps_everything_when_a_part_is_refused) {
  Garden garden;
  EXPECT_NE(
      refusal([&] { read_config_text(garden, "[size]\ntrees = 9\n[gate]\nopen = 1\n", "g.toml"); }),
      "");
  EXPECT_EQ(to_json(garden), to_json(Garden()));
}

TEST(ConfigTable, hashes_and_compares_what_is_fixed_in_a_run) {
  const Garden before;
  Garden now;
  now.open = false;
  EXPECT_EQ(config_hash(before), config_hash(now));
  EXPECT_EQ(refusal([&] { check_same_run(to_json(before), now); }), "");
  now.rain = 0;
  EXPECT_NE(config_hash(before), config_hash(now));
  EXPECT_THAT(refusal([&] { check_same_run(to_json(before), now); }),
              HasSubstr("[beds.rain] expected the value that the run was started with, \"auto\""));
}

TEST(ConfigTable, takes_the_default_for_a_key_that_was_not_recorded) {
  Json recorded = to_json(Garden());
  recorded.erase("gate.name");
  Garden now;
  EXPECT_EQ(refusal([&] { check_same_run(recorded, now); }), "");
  now.name = "new";
  EXPECT_THAT(refusal([&] { check_same_run(recorded, now); }), HasSubstr("[gate.name]"));
}

TEST(ConfigTable, collects_the_keys_that_were_given) {
  Garden garden;
  read_config_text(garden, "[size]\ntrees = 3\n[beds]\nrain = \"auto\"\n", "g.toml");
  set_config(garden, "gate.name=old");
  set_config(garden, "beds.plants=moss");
  using testing::ElementsAre;
  EXPECT_THAT(garden.given, ElementsAre("beds.plants", "beds.rain", "gate.name", "size.trees"))
      << "also where the value is the default";
  EXPECT_NE(refusal([&] { read_config_text(garden, "gate.open = true\nx = 1", "g.toml"); }), "");
  EXPECT_EQ(garden.given.size(), 4u) << "a refused file gives nothing";
}

TEST(ConfigTable, refuses_a_given_key_without_an_effect_and_keeps_silent_about_defaults) {
  Garden garden;
  set_config(garden, "size.trees=0");
  EXPECT_EQ(refusal([&] { check_given(garden); }), "");
  set_config(garden, "size.height=1.5");
  EXPECT_EQ(refusal([&] { check_given(garden); }),
            "[size.height] This key has no effect with size.trees = 0: remove it from the "
            "configuration.");
  set_config(garden, "size.trees=1");
  EXPECT_EQ(refusal([&] { check_given(garden); }), "");
}

TEST(ConfigTable, writes_a_key_without_an_effect_as_a_comment) {
  Garden garden;
  garden.trees = 0;
  EXPECT_THAT(to_toml(garden), HasSubstr("\n# height = 1.5  (no effect with size.trees = 0)\n"));
  Garden again;
  read_config_text(again, to_toml(garden), "g.toml");
  EXPECT_EQ(refusal([&] { check_given(again); }), "");
  Garden other = garden;
  other.height = 2;
  EXPECT_EQ(config_hash(garden), config_hash(other));
  EXPECT_EQ(refusal([&] { check_same_run(to_json(garden), other); }), "");
}

TEST(ConfigTable, checks_ranges_and_choices_by_key) {
  constexpr std::array<std::string_view, 3> kKnown = {"a", "b", "c"};
  EXPECT_EQ(refusal([&] { check_choice("k", "b", kKnown); }), "");
  EXPECT_THAT(refusal([&] { check_choice("k", "d", kKnown); }),
              HasSubstr("[k] expected a, b or c, got d"));
  EXPECT_EQ(refusal([] { check_range("k", Index{3}, 3, 4); }), "");
  EXPECT_THAT(refusal([] { check_range("k", Index{5}, 3, 4); }), HasSubstr("3 to 4, got 5"));
  EXPECT_THAT(refusal([] { check_range("k", std::stod("nan"), 0, 1); }), HasSubstr("0 to 1"));
}

}  // namespace
}  // namespace hone
