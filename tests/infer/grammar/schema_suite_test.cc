// SPDX-License-Identifier: Apache-2.0
// The JSON-Schema-Test-Suite, in Debian's package json-schema-test-suite. HONE_JSON_SCHEMA_SUITE
// names its folder where it is elsewhere.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <set>

#include "hone/core/file/json_io.h"
#include "tests/infer/grammar/grammar_support.h"

namespace hone::infer::grammar {
namespace {

namespace fs = std::filesystem;

fs::path suite_folder() {
  const char* chosen = std::getenv("HONE_JSON_SCHEMA_SUITE");
  return chosen != nullptr ? chosen : "/usr/share/json-schema-test-suite/tests";
}

// The keywords for which a schema must be refused, by the list in docs/structured-output.md; none
// if it must be enforced. Independent of the compiler.
void find_refused(const Json& schema, bool is_root, std::set<std::string>& refused) {
  if (!schema.is_object()) return;
  const auto is_listed = [](std::string_view list, const std::string& key) {
    return list.find(" " + key + " ") != std::string_view::npos;
  };
  constexpr std::string_view kBesideReferences =
      " $ref $defs definitions $id title description default examples $comment $schema deprecated"
      " readOnly writeOnly ";
  constexpr std::string_view kEnforced =
      " type properties required additionalProperties enum const items prefixItems minItems "
      "maxItems"
      " minLength maxLength minimum maximum exclusiveMinimum exclusiveMaximum anyOf ";
  const auto look_into = [&](const Json& inner) { find_refused(inner, false, refused); };
  for (const auto& [key, value] : schema.items()) {
    bool fine = is_listed(kBesideReferences, key) ||
                (is_listed(kEnforced, key) && !schema.contains("$ref"));
    if (key == "$id") fine = is_root;
    if (key == "$ref" && value != "#") {
      const auto target = value.get<std::string>();
      fine = target.starts_with("#/$defs/") || target.starts_with("#/definitions/");
    }
    if (key == "items") fine = fine && !value.is_array();
    if (key.starts_with("exclusive") || key == "required") fine = fine && !value.is_boolean();
    if (key == "type") {
      for (const Json& type : value.is_array() ? value : Json::array({value})) {
        fine = fine && type.is_string() && type != "any";
      }
    }
    if (!fine) refused.insert(key);
    if (key == "properties" || key == "$defs" || key == "definitions") {
      for (const auto& [name, inner] : value.items()) look_into(inner);
    } else if (key == "anyOf" || key == "prefixItems") {
      for (const Json& inner : value) look_into(inner);
    } else if (key == "items" || key == "additionalProperties") {
      look_into(value);
    }
  }
}

// All orders of the properties of every object, as the documented form has one of them.
std::vector<SchemaValue> all_orders(const SchemaValue& value) {
  std::vector<SchemaValue> results = {value};
  const auto replace_each = [&](const SchemaValue& child, auto&& place) {
    std::vector<SchemaValue> next;
    for (const SchemaValue& choice : all_orders(child)) {
      for (SchemaValue result : results) {
        place(result) = choice;
        next.push_back(std::move(result));
      }
    }
    results = std::move(next);
  };
  for (std::size_t i = 0; i < value.elements.size(); ++i) {
    replace_each(value.elements[i], [i](SchemaValue& v) -> SchemaValue& { return v.elements[i]; });
  }
  for (std::size_t i = 0; i < value.members.size(); ++i) {
    replace_each(value.members[i].second,
                 [i](SchemaValue& v) -> SchemaValue& { return v.members[i].second; });
  }
  std::vector<SchemaValue> ordered;
  const auto by_name = [](const auto& a, const auto& b) { return a.first < b.first; };
  for (SchemaValue& result : results) {
    std::ranges::sort(result.members, by_name);
    do {
      ordered.push_back(result);
    } while (std::next_permutation(result.members.begin(), result.members.end(), by_name));
  }
  return ordered;
}

struct Tally {
  int enforced = 0, refused = 0, valid = 0, invalid = 0;
};

void run_group(const Json& group, const std::string& where, Tally& tally) {
  const Json& schema = group["schema"];
  std::set<std::string> refused;
  find_refused(schema, true, refused);
  const std::string problem = test::refusal_of(schema.dump());
  const bool is_empty = problem.find("No value satisfies") != std::string::npos;
  if (!refused.empty()) {
    ++tally.refused;
    EXPECT_TRUE(std::ranges::any_of(refused,
                                    [&](const std::string& name) {
                                      return problem.find("\"" + name + "\"") != std::string::npos;
                                    }))
        << where << ": no refused keyword is named in: " << problem;
    return;
  }
  ++tally.enforced;
  EXPECT_TRUE(problem == "no error" || is_empty) << where << problem;
  const auto compiled = problem == "no error" ? JsonSchema::compile(schema.dump()) : nullptr;
  for (const Json& item : group["tests"]) {
    const bool valid = item["valid"].get<bool>();
    ++(valid ? tally.valid : tally.invalid);
    const auto orders = all_orders(parse_schema_text(item["data"].dump()));
    const bool accepted =
        compiled != nullptr && std::ranges::any_of(orders, [&](const SchemaValue& order) {
          return test::accepts(compiled, spell(order));
        });
    EXPECT_EQ(accepted, valid) << where << ", " << item["description"] << " " << item["data"];
  }
}

TEST(SchemaSuite, every_group_is_enforced_or_refused_by_name) {
  if (!fs::is_directory(suite_folder())) {
    GTEST_SKIP() << "no JSON-Schema-Test-Suite (apt-get install json-schema-test-suite, or"
                    " HONE_JSON_SCHEMA_SUITE)";
  }
  Tally all;
  for (const char* draft : {"draft4", "draft6", "draft7", "draft2019-09", "draft2020-12"}) {
    if (!fs::is_directory(suite_folder() / draft)) continue;
    Tally tally;
    for (const auto& entry : fs::directory_iterator(suite_folder() / draft)) {
      if (entry.path().extension() != ".json") continue;
      for (const Json& group : read_json_file(entry.path())) {
        run_group(group, concat(entry.path().string(), ": ", group["description"].dump()), tally);
      }
    }
    std::printf("%s: %d schemas enforced (%d valid and %d invalid instances), %d refused\n", draft,
                tally.enforced, tally.valid, tally.invalid, tally.refused);
    all.enforced += tally.enforced;
  }
  EXPECT_GT(all.enforced, 100);
}

}  // namespace
}  // namespace hone::infer::grammar
