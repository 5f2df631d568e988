// SPDX-License-Identifier: Apache-2.0
#include "hone/model_io/metadata/model_metadata.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "hone/core/check.h"
#include "hone/model_io/metadata/gguf_value.h"

namespace hone::model_io {
namespace {

TEST(ModelMetadata, has_the_last_value_of_a_key_and_the_last_text_of_a_name) {
  ModelMetadata metadata;
  metadata.set_string("general.name", "a", "test");
  metadata.set_string("general.name", "b", "test");
  metadata.set_chat_template(kDefaultTemplate, "x", "test");
  metadata.set_chat_template(kDefaultTemplate, "y", "test");
  ASSERT_EQ(metadata.entries().size(), 1u);
  EXPECT_EQ(metadata.text("general.name"), "b");
  EXPECT_EQ(metadata.text("general.license"), "");
  ASSERT_EQ(metadata.chat_templates().size(), 1u);
  EXPECT_EQ(*metadata.chat_template(), "y");
  EXPECT_EQ(metadata.chat_template("tool_use"), nullptr);
}

TEST(ModelMetadata, leaves_out_what_is_too_large_or_no_utf8) {
  ModelMetadata metadata;
  const std::string large(kMostEntryBytes + 1, 'x');
  metadata.set_string("large", large, "test");
  metadata.set_string("bytes", "\xff", "test");
  metadata.set_string("\xff", "key", "test");
  metadata.set_string("", "key", "test");
  metadata.set_chat_template(kDefaultTemplate, large, "test");
  metadata.set_chat_template(kDefaultTemplate, "\xc3", "test");
  metadata.set_card(large, "test");
  metadata.set_card("\x80", "test");
  metadata.set({"number", GgufValueType::U8, 256}, "test");
  EXPECT_TRUE(metadata.entries().empty());
  EXPECT_TRUE(metadata.chat_templates().empty());
  EXPECT_EQ(metadata.card(), "");
}

TEST(ModelMetadata, carries_no_more_than_its_limits_together) {
  ModelMetadata by_bytes, by_count;
  const std::string half(kMostEntryBytes / 2, 'x');
  for (int i = 0; i < 20; ++i) by_bytes.set_string(concat("k", i), half, "test");
  EXPECT_EQ(by_bytes.entries().size(), 7u);  // with their keys, eight are beyond 4 MiB
  for (std::size_t i = 0; i < kMostEntries + 9; ++i)
    by_count.set_string(concat("k", static_cast<Index>(i)), "x", "test");
  EXPECT_EQ(by_count.entries().size(), kMostEntries);
}

TEST(GgufValue, survives_json_in_every_type_at_its_limits) {
  using enum GgufValueType;
  const auto expect = [](GgufValueType type, const Json& value) {
    const auto bytes = encode_gguf_value(type, value);
    ASSERT_TRUE(bytes) << name_of(type) << value.dump();
    const bool is_array = value.is_array();
    const GgufValue stored{.key = "k",
                           .type = type,
                           .is_array = is_array,
                           .count = is_array ? static_cast<Index>(value.size()) : 1,
                           .bytes = std::as_bytes(std::span(*bytes))};
    EXPECT_EQ(decode_gguf_value(stored), value) << name_of(type);
    EXPECT_EQ(find_value_type(name_of(type)), type);
  };
  const auto integers = [&]<class T>(GgufValueType type, T) {
    expect(type, std::numeric_limits<T>::max());
    expect(type, std::numeric_limits<T>::min());
    expect(type, Json::array({std::numeric_limits<T>::min(), 7, std::numeric_limits<T>::max()}));
    EXPECT_FALSE(encode_gguf_value(type, "7"));
    EXPECT_FALSE(encode_gguf_value(type, 7.5));
  };
  integers(U8, std::uint8_t{});
  integers(I8, std::int8_t{});
  integers(U16, std::uint16_t{});
  integers(I16, std::int16_t{});
  integers(U32, std::uint32_t{});
  integers(I32, std::int32_t{});
  integers(U64, std::uint64_t{});
  integers(I64, std::int64_t{});
  EXPECT_FALSE(encode_gguf_value(U32, -1));
  EXPECT_FALSE(encode_gguf_value(I64, std::numeric_limits<std::uint64_t>::max()));
  expect(F32, static_cast<double>(0.1f));
  expect(F64, Json::array({0.1, -1e300}));
  expect(Bool, Json::array({true, false}));
  expect(String, Json::array({"", "L\u00f6we", std::string("a\0b", 3)}));
  expect(String, Json::array());
  EXPECT_FALSE(encode_gguf_value(String, Json::array({"a", 1})));
  EXPECT_FALSE(encode_gguf_value(Array, Json::array({1})));
  EXPECT_FALSE(find_value_type("u128"));
}

}  // namespace
}  // namespace hone::model_io
