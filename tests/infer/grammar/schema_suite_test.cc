// SPDX-License-Identifier: Apache-2.0
// The JSON-Schema-Test-Suite, in Debian's package json-schema-test-suite. HONE_JSON_SCHEMA_SUITE
// names its folder where it is elsewhere.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <optional>
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

bool is_listed(std::string_view list, std::string_view word) {
  return list.find(concat(" ", word, " ")) != std::string_view::npos;
}

// Whether a pattern has only what docs/structured-output.md lists.
bool has_listed_syntax(const std::string& pattern) {
  for (const char* part :
       {"(?=", "(?!", "(?<=", "(?<!", "\\b", "\\B", "\\p", "\\P", "\\k", "\\1"}) {
    if (pattern.find(part) != pattern.npos) return false;
  }
  return true;
}

// Whether "multipleOf" says how many digits may follow the point, or has few multiples between
// bounds, or says nothing, because numbers are no values.
bool has_few_multiples(const Json& schema) {
  const double of = schema["multipleOf"].get<double>();
  for (int digits = 0; digits <= 32; ++digits) {
    if (of == std::strtod(concat("1e-", digits).c_str(), nullptr)) return true;
  }
  if (schema.contains("type")) {
    const std::string types = schema["type"].dump();
    const auto has = [&](const char* type) { return types.find(type) != types.npos; };
    if (!has("\"number\"") && !has("\"integer\"")) return true;
  }
  std::optional<double> low, high;
  for (const char* keyword : {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"}) {
    if (!schema.contains(keyword) || !schema[keyword].is_number()) continue;
    const bool is_low = std::string_view(keyword).ends_with("inimum");
    (is_low ? low : high) = schema[keyword].get<double>();
  }
  return low && high && (*high - *low) / of < 999;
}

// What docs/structured-output.md says about a schema. Independent of the compiler.
struct Verdict {
  // The keywords for which it must be refused; none if it must be enforced.
  std::set<std::string> refused{};
  // It may be refused for "oneOf", whose alternatives must exclude each other in a way that can be
  // shown.
  bool has_one_of = false;
  // Some texts of a format are not generated.
  bool has_format = false;
};

bool is_fine(const Json& schema, const std::string& key, const Json& value, bool is_root) {
  constexpr std::string_view kBesideReferences =
      " $ref $defs definitions title description default examples example $comment $schema"
      " deprecated readOnly writeOnly contentMediaType contentEncoding discriminator ";
  constexpr std::string_view kEnforced =
      " type properties required additionalProperties enum const items prefixItems minItems"
      " maxItems minLength maxLength minimum maximum exclusiveMinimum exclusiveMaximum anyOf allOf"
      " oneOf pattern format multipleOf ";
  constexpr std::string_view kFormats =
      " date time date-time duration uuid email hostname ipv4 ipv6 uri uri-reference password"
      " binary float double ";
  if (key == "$id") return is_root;
  if (key == "$ref" && value != "#") {
    const auto target = value.get<std::string>();
    return target.starts_with("#/$defs/") || target.starts_with("#/definitions/");
  }
  if (is_listed(kBesideReferences, key)) return true;
  if (!is_listed(kEnforced, key) || schema.contains("$ref")) return false;
  if (key == "items") return !value.is_array();
  if (key.starts_with("exclusive") || key == "required") return !value.is_boolean();
  if (key == "format") return is_listed(kFormats, value.get<std::string>());
  if (key == "pattern") return has_listed_syntax(value.get<std::string>());
  if (key == "multipleOf") return has_few_multiples(schema);
  if (key != "type") return true;
  bool is_named = true;
  for (const Json& type : value.is_array() ? value : Json::array({value})) {
    is_named = is_named && type.is_string() && type != "any";
  }
  return is_named;
}

void judge_schema(const Json& schema, bool is_root, Verdict& verdict) {
  if (!schema.is_object()) return;
  const auto look_into = [&](const Json& inner) { judge_schema(inner, false, verdict); };
  for (const auto& [key, value] : schema.items()) {
    if (!is_fine(schema, key, value, is_root)) verdict.refused.insert(key);
    verdict.has_one_of = verdict.has_one_of || key == "oneOf";
    verdict.has_format = verdict.has_format || key == "format";
    if (is_listed(" properties $defs definitions ", key)) {
      for (const auto& [name, inner] : value.items()) look_into(inner);
    } else if (is_listed(" anyOf oneOf allOf prefixItems ", key)) {
      for (const Json& inner : value) look_into(inner);
    } else if (is_listed(" items additionalProperties ", key)) {
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
  int enforced = 0, refused = 0, one_of = 0, valid = 0, invalid = 0;
};

bool names_keyword(const std::string& problem, const std::string& keyword) {
  return problem.find("\"" + keyword + "\"") != std::string::npos;
}

void run_group(const Json& group, const std::string& where, Tally& tally) {
  const Json& schema = group["schema"];
  Verdict verdict;
  judge_schema(schema, true, verdict);
  const std::string problem = test::refusal_of(schema.dump());
  const bool is_empty = problem.find("No value satisfies") != std::string::npos;
  if (!verdict.refused.empty()) {
    ++tally.refused;
    const auto is_named = [&](const std::string& name) { return names_keyword(problem, name); };
    EXPECT_TRUE(std::ranges::any_of(verdict.refused, is_named))
        << where << ": no refused keyword is named in: " << problem;
    return;
  }
  if (verdict.has_one_of && names_keyword(problem, "oneOf")) {
    ++tally.one_of;
    return;
  }
  ++tally.enforced;
  EXPECT_TRUE(problem == "no error" || is_empty) << where << problem;
  const auto compiled = problem == "no error" ? JsonSchema::compile(schema.dump()) : nullptr;
  for (const Json& item : group["tests"]) {
    const bool valid = item["valid"].get<bool>();
    const auto orders = all_orders(parse_schema_text(item["data"].dump()));
    const bool accepted =
        compiled != nullptr && std::ranges::any_of(orders, [&](const SchemaValue& order) {
          return test::accepts(compiled, spell(order));
        });
    const bool may_be_refused = verdict.has_format && item["data"].is_string();
    if (may_be_refused && valid && !accepted) continue;
    ++(valid ? tally.valid : tally.invalid);
    EXPECT_EQ(accepted, valid) << where << ", " << item["description"] << " " << item["data"];
  }
}

// The keywords of a draft, and of its optional files those that concern patterns and formats.
std::vector<fs::path> files_of_draft(const fs::path& draft) {
  std::vector<fs::path> files;
  for (const fs::path& folder : {draft, draft / "optional" / "format"}) {
    if (!fs::is_directory(folder)) continue;
    for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
  }
  for (const char* name : {"ecmascript-regex.json", "non-bmp-regex.json", "format.json"}) {
    if (fs::exists(draft / "optional" / name)) files.push_back(draft / "optional" / name);
  }
  // Other vocabularies than that of JSON Schema have other meanings.
  std::erase_if(files, [](const fs::path& file) {
    return file.extension() != ".json" || file.filename() == "vocabulary.json";
  });
  std::sort(files.begin(), files.end());
  return files;
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
    for (const fs::path& file : files_of_draft(suite_folder() / draft)) {
      for (const Json& group : read_json_file(file)) {
        run_group(group, concat(file.string(), ": ", group["description"].dump()), tally);
      }
    }
    std::printf(
        "%s: %d schemas enforced (%d valid and %d invalid instances), %d refused, %d for oneOf\n",
        draft, tally.enforced, tally.valid, tally.invalid, tally.refused, tally.one_of);
    all.enforced += tally.enforced;
    all.one_of += tally.one_of;
  }
  EXPECT_GT(all.enforced, 100);
  EXPECT_LT(all.one_of, all.enforced / 5);
}

}  // namespace
}  // namespace hone::infer::grammar
