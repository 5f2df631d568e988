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

#include "hone/core/json_io.h"
#include "tests/infer/grammar/grammar_support.h"

namespace hone::infer::grammar {
namespace {

namespace fs = std::filesystem;

fs::path suite_folder() {
  const char* chosen = std::getenv("HONE_JSON_SCHEMA_SUITE");
  return chosen != nullptr ? chosen : "/usr/share/json-schema-test-suite/tests";
}

// Why a schema must be refused, by the list in docs/structured-output.md; empty if it must be
// enforced. Independent of the compiler.
std::string reason_to_refuse(const Json& schema, bool is_root) {
  if (schema.is_boolean()) return "";
  static const std::set<std::string> known = {"type",
                                              "properties",
                                              "required",
                                              "additionalProperties",
                                              "enum",
                                              "const",
                                              "items",
                                              "prefixItems",
                                              "minItems",
                                              "maxItems",
                                              "minLength",
                                              "maxLength",
                                              "minimum",
                                              "maximum",
                                              "exclusiveMinimum",
                                              "exclusiveMaximum",
                                              "anyOf",
                                              "$ref",
                                              "$defs",
                                              "definitions"};
  static const std::set<std::string> ignored = {"title",      "description", "default",
                                                "examples",   "$comment",    "$schema",
                                                "deprecated", "readOnly",    "writeOnly"};
  std::string reason;
  const auto look_into = [&](const Json& inner) {
    if (reason.empty()) reason = reason_to_refuse(inner, false);
  };
  for (const auto& [key, value] : schema.items()) {
    const bool fine = known.contains(key) || ignored.contains(key) || (key == "$id" && is_root);
    if (!fine) return key;
    const bool may_stand_beside_ref = ignored.contains(key) || key == "$ref" || key == "$defs" ||
                                      key == "definitions" || key == "$id";
    if (schema.contains("$ref") && !may_stand_beside_ref) return key;
    if (key == "$ref" && value != "#" && !value.get<std::string>().starts_with("#/$defs/") &&
        !value.get<std::string>().starts_with("#/definitions/")) {
      return key;
    }
    if (key == "items" && value.is_array()) return key;
    if (key.starts_with("exclusive") && value.is_boolean()) return key;
    if (key == "required" && value.is_boolean()) return key;
    if (key == "type") {
      for (const Json& type : value.is_array() ? value : Json::array({value})) {
        if (type.is_object() || type == "any") return key;
      }
    }
    if (key == "properties" || key == "$defs" || key == "definitions") {
      for (const auto& [name, inner] : value.items()) look_into(inner);
    } else if (key == "anyOf" || key == "prefixItems") {
      for (const Json& inner : value) look_into(inner);
    } else if (key == "items" || key == "additionalProperties") {
      look_into(value);
    }
  }
  return reason;
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
  const std::string expected_refusal = reason_to_refuse(schema, true);
  const std::string problem = test::refusal_of(schema.dump());
  const bool is_empty = problem.find("No value satisfies") != std::string::npos;
  if (!expected_refusal.empty()) {
    ++tally.refused;
    EXPECT_NE(problem.find("\"" + expected_refusal + "\""), std::string::npos)
        << where << ": " << expected_refusal << " is not named in: " << problem;
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
