// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/config/nearest_name.h"
#include "hone/core/file/json_io.h"
#include "hone/core/names.h"
#include "hone/core/philox.h"
#include "hone/core/text_format.h"
#include "tests/support/test_data.h"

namespace hone {
namespace {

TEST(NearestName, finds_the_key_that_was_meant) {
  const std::array<std::string_view, 5> known{"learning_rate", "weight_decay", "warmup", "beta1",
                                              "beta2"};
  EXPECT_EQ(nearest_name("lerning_rate", known), "learning_rate");
  EXPECT_EQ(nearest_name("weightdecay", known), "weight_decay");
  EXPECT_EQ(nearest_name("beta2", known), "beta2");
  EXPECT_EQ(nearest_name("beta9", known), "beta1");  // as near as beta2: the first
  EXPECT_EQ(nearest_name("warmpu", known), "warmup");
  EXPECT_EQ(nearest_name("tmep", std::array<std::string_view, 2>{"seed", "temp"}), "temp");
  EXPECT_EQ(nearest_name("x", {}), "");
}

TEST(NearestName, names_nothing_that_is_too_far) {
  const std::array<std::string_view, 3> known{"train", "eval", "lm"};
  EXPECT_EQ(nearest_name("tran", known), "train");
  for (const char* word : {"", "x", "bogus", "ln", "evidence"}) {
    EXPECT_EQ(nearest_name(word, known), "") << word;
  }
  EXPECT_EQ(describe_unknown("command", "evl", known),
            "Unknown command 'evl'. Did you mean 'eval'?");
  EXPECT_EQ(describe_unknown("command", "bogus", known),
            "Unknown command 'bogus'. The known ones are: train, eval, lm.");
}

TEST(NearestName, finds_a_name_that_begins_alike) {
  const std::array<std::string_view, 4> known{"kv", "temp", "max-tokens", "trainer.steps"};
  EXPECT_EQ(nearest_name("temperature", known), "temp");
  EXPECT_EQ(nearest_name("max-new-tokens", known), "max-tokens");  // by its distance
  EXPECT_EQ(nearest_name("max", known), "max-tokens");
  for (const char* word : {"kvcache", "ma", "trainer"}) {
    EXPECT_EQ(nearest_name(word, known), "") << word;
  }
}

TEST(NearestName, finds_a_key_by_what_follows_its_dot) {
  const std::array<std::string_view, 4> known{"lr.peak", "trainer.steps", "optim.eps",
                                              "data.stories"};
  EXPECT_EQ(nearest_name("steps", known), "trainer.steps");
  EXPECT_EQ(nearest_name("peek", known), "lr.peak");
  EXPECT_EQ(nearest_name("trainer.step", known), "trainer.steps");
  EXPECT_EQ(nearest_name("lr.paek", known), "lr.peak");
  EXPECT_EQ(nearest_name("model.steps", known), "");
}

TEST(NearestName, ranks_the_nearest_ones) {
  const std::array<std::string_view, 4> known{"layers.1.up", "layers.0.down", "layers.0.up",
                                              "head"};
  using Names = std::vector<std::string_view>;
  EXPECT_EQ(nearest_names("layer.0.up", known, 3),
            (Names{"layers.0.up", "layers.1.up", "layers.0.down"}));
  EXPECT_EQ(nearest_names("", known, 9),  // equally near ones keep their order
            (Names{"head", "layers.1.up", "layers.0.up", "layers.0.down"}));
  EXPECT_EQ(nearest_names("x", {}, 3), Names{});
  EXPECT_EQ(nearest_names("dwon", known, 1), Names{"layers.0.down"});  // a part is near
  EXPECT_EQ(nearest_names("layer", known, 1), Names{"layers.1.up"});
}

// The recursive definition of the edit distance.
std::size_t slow_distance(std::string_view a, std::string_view b) {
  if (a.empty()) return b.size();
  if (b.empty()) return a.size();
  const std::size_t change = a[0] == b[0] ? 0 : 1;
  std::size_t least =
      std::min({slow_distance(a.substr(1), b.substr(1)) + change, slow_distance(a.substr(1), b) + 1,
                slow_distance(a, b.substr(1)) + 1});
  const bool is_swap = a.size() > 1 && b.size() > 1 && a[0] == b[1] && a[1] == b[0];
  if (is_swap) least = std::min(least, slow_distance(a.substr(2), b.substr(2)) + 1);
  return least;
}

TEST(NearestName, is_the_minimum_of_the_recursive_distance) {
  PhiloxStream random(5);
  const auto word = [&] {
    std::string text(random.below(6), 'a');
    for (char& c : text) c = static_cast<char>('a' + random.below(3));
    return text;
  };
  for (int trial = 0; trial < 200; ++trial) {
    const std::vector<std::string> words{word(), word(), word(), word()};
    const std::vector<std::string_view> known(words.begin(), words.end());
    const std::string wanted = word();
    std::vector<std::string_view> near;
    std::ranges::copy_if(known, std::back_inserter(near), [&](std::string_view name) {
      return 3 * slow_distance(wanted, name) <= std::max(wanted.size(), name.size());
    });
    // Otherwise a name that begins alike, by three letters or more.
    if (near.empty()) {
      std::ranges::copy_if(known, std::back_inserter(near), [&](std::string_view name) {
        const bool begins = name.starts_with(wanted) || wanted.starts_with(name);
        return begins && std::min(name.size(), wanted.size()) >= 3;
      });
      near.resize(std::min<std::size_t>(near.size(), 1));
    }
    const auto best = std::ranges::min_element(
        near, {}, [&](std::string_view name) { return slow_distance(wanted, name); });
    EXPECT_EQ(nearest_name(wanted, known), best == near.end() ? "" : *best) << wanted;
  }
}

TEST(NearestName, a_word_of_a_megabyte_costs_no_megabyte_squared) {
  const std::string endless(1 << 20, 'x');
  const std::string name = endless.substr(0, 150);
  const std::array<std::string_view, 2> known{"short", name};
  EXPECT_EQ(nearest_name(endless, known), name);
}

TEST(TextFormat, fixed_rounds_and_alignment_pads_but_never_cuts) {
  EXPECT_EQ(fixed(3.14159, 2), "3.14");
  EXPECT_EQ(fixed(-0.5, 0), "-0");
  EXPECT_EQ(fixed(1e9, 1), "1000000000.0");
  EXPECT_EQ(align_right("ab", 5), "   ab");
  EXPECT_EQ(align_left("ab", 5), "ab   ");
  EXPECT_EQ(align_right("abcdef", 3), "abcdef");
  EXPECT_EQ(align_left("abcdef", 3), "abcdef");
  EXPECT_EQ(align_left("", 2), "  ");
  EXPECT_EQ(align_right("x", 0), "x");
}

TEST(TextFormat, bytes_have_three_digits_and_the_units_of_their_base) {
  const std::vector<std::tuple<Index, const char*, const char*>> cases{
      {0, "0 bytes", "0 bytes"},
      {1, "1 byte", "1 byte"},
      {999, "999 bytes", "999 bytes"},
      {1000, "1 kB", "1000 bytes"},
      {1024, "1.02 kB", "1 KiB"},
      {1536, "1.54 kB", "1.5 KiB"},
      {999'499, "999 kB", "976 KiB"},
      {999'500, "1 MB", "976 KiB"},
      {Index{64} << 20, "67.1 MB", "64 MiB"},
      {98'432'000, "98.4 MB", "93.9 MiB"},
      {Index{1023} << 20, "1.07 GB", "1023 MiB"},
      {Index{3} << 29, "1.61 GB", "1.5 GiB"},
      {5'000'000'000'000'000, "5000 TB", "4547 TiB"}};
  for (const auto& [bytes, decimal, binary] : cases) {
    EXPECT_EQ(format_bytes(bytes), decimal);
    EXPECT_EQ(format_bytes(bytes, ByteUnits::Binary), binary);
  }
}

TEST(TextFormat, digits_are_grouped_by_threes) {
  for (const auto& [number, text] :
       std::vector<std::pair<Index, const char*>>{{0, "0"},
                                                  {999, "999"},
                                                  {1000, "1,000"},
                                                  {1'234'567, "1,234,567"},
                                                  {-12'345, "-12,345"},
                                                  {-123, "-123"}}) {
    EXPECT_EQ(group_digits(number), text);
  }
}

TEST(TextFormat, cells_stand_under_each_other) {
  EXPECT_EQ(format_table({{"type", "size"}, {"q4_1", "76 MB"}, {"é…", "1", "note"}, {}}, "lrl"),
            "type   size\n"
            "q4_1  76 MB\n"
            "é…        1  note\n"
            "\n");
  EXPECT_EQ(format_table({}, ""), "");
}

TEST(EscapeControls, leaves_text_and_shows_every_byte_of_the_rest) {
  for (const char* text : {"", "plain \\ text", "\xc3\xa9t\xc3\xa9", "\xe2\x96\x81token",
                           "\xf0\x9f\x98\x80", "\xc2\xa0no-break"}) {
    EXPECT_EQ(escape_controls(text), text);
  }
  EXPECT_EQ(escape_controls(std::string_view("a\0b\x1b[31m\t\r\n\x7f", 12)),
            "a\\x00b\\x1b[31m\\x09\\x0d\\x0a\\x7f");
  EXPECT_EQ(escape_controls("\xc2\x80|\xc2\x9f|"), "\\xc2\\x80|\\xc2\\x9f|") << "C1";
  EXPECT_EQ(escape_controls("\x9b|\xc3|\xe2\x96"), "\\x9b|\\xc3|\\xe2\\x96") << "no UTF-8";
  EXPECT_EQ(escape_controls("\xff\xc3\xa9\xed"), "\\xff\xc3\xa9\\xed");
}

TEST(QuoteName, shows_printable_ascii_and_escapes_the_rest) {
  EXPECT_EQ(quote_name("a.b"), "'a.b'");
  EXPECT_EQ(quote_name(""), "''");
  EXPECT_EQ(quote_name("a\nb\x7f"), "'a\\x0ab\\x7f'");
  EXPECT_EQ(quote_name(std::string_view("\0\xff", 2)), "'\\x00\\xff'");
  EXPECT_EQ(quote_name(std::string(80, 'n')), "'" + std::string(80, 'n') + "'");
  EXPECT_EQ(quote_name(std::string(81, 'n')), "'" + std::string(80, 'n') + "...'");
}

TEST(FindDuplicate, gives_a_later_position_of_a_repeated_name) {
  const auto find = [](const std::vector<std::string>& names) {
    return find_duplicate(static_cast<Index>(names.size()), [&](Index i) -> std::string_view {
      return names[static_cast<std::size_t>(i)];
    });
  };
  EXPECT_EQ(find({}), -1);
  EXPECT_EQ(find({"a"}), -1);
  EXPECT_EQ(find({"a", "A", "", "b"}), -1);
  EXPECT_EQ(find({"a", "b", "a"}), 2);
  EXPECT_EQ(find({"", ""}), 1);
  PhiloxStream random(6);
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<std::string> names;
    for (std::uint32_t i = 0; i < 12; ++i) names.push_back(concat(random.below(60)));
    const Index at = find(names);
    std::vector<std::string> sorted = names;
    std::ranges::sort(sorted);
    const bool repeats = std::ranges::adjacent_find(sorted) != sorted.end();
    ASSERT_EQ(at >= 0, repeats);
    if (at < 0) continue;
    const auto end = names.begin() + at;
    EXPECT_NE(std::find(names.begin(), end, *end), end);
  }
}

std::string error_of(std::string_view text, const JsonLimits& limits = {}) {
  try {
    parse_json(text, "some.json", limits);
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), ErrorCategory::CorruptFile);
    const std::string message = error.what();
    EXPECT_NE(message.find("some.json"), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_LT(message.size(), 400u) << message;
    return message;
  }
  ADD_FAILURE() << "accepted " << text.substr(0, 60);
  return {};
}

TEST(Json, refuses_every_kind_of_malformed_text) {
  for (const std::string_view text :
       {"",         " ",        "{",          "}",       "[",       "]",         "[1,]",
        "{\"a\"}",  "{\"a\":}", "{\"a\":1,}", "{a:1}",   "'a'",     "[1 2]",     "nul",
        "tru",      "+1",       "01",         "1.",      ".5",      "1e",        "0x10",
        "NaN",      "Infinity", "-",          "\"abc",   "\"\\x\"", "\"\\u12\"", "\"\\ud800\"",
        "\"a\nb\"", "[] []",    "{} x",       "// c\n1", "[1e400]", "\"\xc3\"",  "\"\xed\xa0\x80\"",
        "\"\xf8\""}) {
    EXPECT_NE(error_of(text), "");
  }
  EXPECT_NE(error_of(std::string_view("\"a\0b\"", 5)), "");
}

TEST(Json, counts_depth_over_arrays_and_objects_alike) {
  const auto nested = [](Index depth, bool objects) {
    std::string open, close;
    for (Index i = 0; i < depth; ++i) {
      const bool object = objects && i % 2 == 1;
      open += object ? "{\"k\":" : "[";
      close += object ? '}' : ']';
    }
    std::reverse(close.begin(), close.end());
    return open + "1" + close;
  };
  for (const bool objects : {false, true}) {
    for (const Index depth : {1, 5, 64}) {
      EXPECT_NO_THROW(parse_json(nested(depth, objects), "f", {.depth = depth}));
      EXPECT_NE(error_of(nested(depth + 1, objects), {.depth = depth}).find("deep"),
                std::string::npos);
    }
    EXPECT_NO_THROW(parse_json(nested(64, objects), "f"));
    EXPECT_NE(error_of(nested(65, objects)), "");
    EXPECT_NE(error_of(nested(1'000'000, objects)), "");  // no recursion
  }
  // Siblings do not add up.
  EXPECT_NO_THROW(parse_json("[[1],[2],{\"a\":[]},{\"b\":[]}]", "f", {.depth = 3}));
}

TEST(Json, refuses_a_key_twice_in_one_object_only) {
  EXPECT_NE(error_of("{\"twice\":1,\"b\":2,\"twice\":3}").find("twice"), std::string::npos);
  EXPECT_NE(error_of("{\"a\":{\"x\":1,\"x\":1}}"), "");
  EXPECT_NE(error_of("[{\"a\":1,\"\\u0061\":2}]"), "");  // the same key, written twice
  EXPECT_NO_THROW(parse_json("[{\"a\":1},{\"a\":{\"a\":2}}]", "f"));
  const Json last =
      parse_json("{\"a\":1,\"b\":[2],\"a\":[3,{\"c\":4}]}", "f", {.refuse_duplicate_keys = false});
  EXPECT_EQ(last.dump(), "{\"a\":[3,{\"c\":4}],\"b\":[2]}");
}

TEST(Json, keeps_order_numbers_and_text_through_a_file) {
  const test::TemporaryFolder folder;
  const std::string text =
      "{\"z\":1,\"a\":-9223372036854775808,\"m\":18446744073709551615,\"x\":0.1,"
      "\"s\":\"\\u00e9\\n\\\"\",\"e\":[],\"o\":{},\"n\":null,\"t\":true}";
  const Json json = parse_json(text, "f");
  write_json_file(folder.path() / "a.json", json);
  const Json again = read_json_file(folder.path() / "a.json");
  EXPECT_EQ(again.dump(), json.dump());
  EXPECT_EQ(again.begin().key(), "z");
  EXPECT_EQ(again["a"].get<std::int64_t>(), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(again["m"].get<std::uint64_t>(), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(again["s"], "\xc3\xa9\n\"");
}

TEST(Json, writing_replaces_bytes_that_are_not_utf8) {
  const test::TemporaryFolder folder;
  write_json_file(folder.path() / "a.json", Json{{"k", "a\xff"}});
  EXPECT_EQ(read_json_file(folder.path() / "a.json")["k"], "a\xef\xbf\xbd");
}

TEST(Json, reads_a_hundred_thousand_keys_quickly) {
  std::string text = "{";
  for (Index i = 0; i < 100'000; ++i) text += concat(i > 0 ? "," : "", "\"key", i, "\":", i);
  const Json json = parse_json(text + "}", "f");  // minutes when every key searches all others
  EXPECT_EQ(json.size(), 100'000u);
  EXPECT_NE(error_of(text + ",\"key5\":1}"), "");
}

}  // namespace
}  // namespace hone
