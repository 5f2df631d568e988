// SPDX-License-Identifier: Apache-2.0
#include "hone/core/format/gguf.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>

#include "hone/core/check.h"
#include "hone/core/file/mmap_file.h"
#include "tests/support/error_of.h"
#include "tests/support/test_data.h"

namespace hone {
namespace {

using Type = GgufValueType;

// Bytes of a GGUF file, field by field, true or not.
class Raw {
 public:
  template <class T>
  Raw& put(T value) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), bytes, bytes + sizeof value);
    return *this;
  }
  Raw& text(std::string_view value) {
    put(static_cast<std::uint64_t>(value.size()));
    for (const char c : value) bytes_.push_back(static_cast<std::byte>(c));
    return *this;
  }
  Raw& header(std::uint64_t tensors, std::uint64_t values, std::uint32_t version = 3) {
    for (const char c : std::string_view("GGUF")) bytes_.push_back(static_cast<std::byte>(c));
    return put(version).put(tensors).put(values);
  }
  Raw& key(std::string_view name, Type type) {
    return text(name).put(static_cast<std::uint32_t>(type));
  }
  Raw& tensor(std::string_view name, std::vector<std::uint64_t> dims, GgufType type,
              std::uint64_t offset) {
    text(name).put(static_cast<std::uint32_t>(dims.size()));
    for (const std::uint64_t dim : dims) put(dim);
    return put(static_cast<std::uint32_t>(type)).put(offset);
  }
  Raw& pad(std::size_t alignment = 32) {
    while (bytes_.size() % alignment != 0) bytes_.push_back(std::byte{0});
    return *this;
  }
  Raw& data(std::size_t count) {
    bytes_.insert(bytes_.end(), count, std::byte{1});
    return *this;
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

ErrorCategory category_of(const Raw& raw) {
  try {
    parse_gguf(raw.bytes(), "x.gguf");
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("x.gguf"), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    return error.category();
  }
  ADD_FAILURE() << "accepted";
  return ErrorCategory::Internal;
}

void expect_corrupt(const Raw& raw, std::string_view what) {
  EXPECT_EQ(category_of(raw), ErrorCategory::CorruptFile) << what;
}

TEST(Gguf, reads_what_the_writer_wrote) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "a.gguf";
  const std::vector<float> matrix{1, 2, 3, 4, 5, 6};
  const std::vector<std::string> words{"a", "", "long"};
  const std::vector<Index> dims{3, 2}, one{5};
  GgufWriter writer(path);
  writer.set_integer("n", 7);
  writer.set_number("x", 0.5);
  writer.set_boolean("b", true);
  writer.set_string("s", "text");
  writer.set_strings("words", words);
  writer.set_numbers("numbers", matrix);
  writer.set_integers("ids", std::vector<std::int32_t>{-1, 2});
  writer.add_tensor("m", GgufType::F32, dims);
  writer.add_tensor("v", GgufType::F32, one);
  writer.write(std::as_bytes(std::span(matrix)).first(7));
  writer.write(std::as_bytes(std::span(matrix)).subspan(7));
  writer.write(std::as_bytes(std::span(matrix)).first(20));
  writer.commit();

  const MmapFile bytes(path);
  const GgufFile file = parse_gguf(bytes.bytes(), "a");
  EXPECT_EQ(file.version(), 3u);
  EXPECT_EQ(file.integer("n"), 7);
  EXPECT_EQ(file.number("x"), 0.5);
  EXPECT_EQ(file.number("n"), 7);
  EXPECT_EQ(file.boolean("b"), true);
  EXPECT_EQ(file.string("s"), "text");
  EXPECT_EQ(file.strings("words")->at(2), "long");
  EXPECT_EQ(file.floats("numbers"), matrix);
  EXPECT_EQ(file.integers("ids"), (std::vector<Index>{-1, 2}));
  EXPECT_EQ(file.integer("absent"), std::nullopt);
  EXPECT_THROW(file.integer("s"), Error);
  EXPECT_THROW(file.string("words"), Error);
  EXPECT_THROW(file.strings("numbers"), Error);
  EXPECT_THROW(file.boolean("n"), Error);
  ASSERT_EQ(file.tensors().size(), 2u);
  EXPECT_EQ(file.tensors()[0].dims[0], 3);
  EXPECT_EQ(file.tensors()[0].dims[1], 2);
  EXPECT_EQ(std::memcmp(file.tensors()[0].bytes.data(), matrix.data(), 24), 0);
  EXPECT_EQ((file.tensors()[1].bytes.data() - bytes.bytes().data()) % 32, 0);
  EXPECT_EQ(file.tensors()[1].bytes.size(), 20u);
}

TEST(Gguf, reads_version_2_and_other_alignments) {
  Raw raw;
  raw.header(2, 1, 2).key("general.alignment", Type::U32).put(std::uint32_t{64});
  raw.tensor("a", {2}, GgufType::F32, 0).tensor("b", {32}, GgufType::Q8_0, 64);
  raw.pad(64).data(8).pad(64).data(34);
  const GgufFile file = parse_gguf(raw.bytes(), "x");
  EXPECT_EQ(file.tensors()[1].bytes.size(), 34u);
}

TEST(Gguf, a_vocabulary_file_may_end_before_the_aligned_data) {
  Raw raw;
  raw.header(0, 1).key("k", Type::U8).put(std::uint8_t{1});
  EXPECT_EQ(parse_gguf(raw.bytes(), "x").integer("k"), 1);
}

TEST(Gguf, reads_the_vocabulary_of_gpt_2) {
  HONE_REQUIRE_TEST_DATA(path, "tokenizers/ggml-vocab-gpt-2.gguf");
  const MmapFile bytes(path);
  const GgufFile file = parse_gguf(bytes.bytes(), path.string());
  EXPECT_EQ(file.string("general.architecture"), "gpt2");
  EXPECT_EQ(file.strings("tokenizer.ggml.tokens")->size(), 50257u);
  EXPECT_EQ(file.strings("tokenizer.ggml.merges")->size(), 50000u);
}

TEST(Gguf, refuses_other_versions_and_byte_orders) {
  EXPECT_EQ(category_of(Raw().header(0, 0, 1)), ErrorCategory::Unsupported);
  EXPECT_EQ(category_of(Raw().header(0, 0, 4)), ErrorCategory::Unsupported);
  EXPECT_EQ(category_of(Raw().header(0, 0, 0x03000000u)), ErrorCategory::Unsupported);
  expect_corrupt(Raw().put(std::uint32_t{0x46554748}).data(20), "magic");
  expect_corrupt(Raw(), "nothing");
}

TEST(Gguf, bounds_counts_by_the_bytes_that_remain) {
  expect_corrupt(Raw().header(0, ~std::uint64_t{0}), "2^64-1 keys");
  expect_corrupt(Raw().header(~std::uint64_t{0}, 0), "2^64-1 tensors");
  const std::string many =
      test::refusal([] { parse_gguf(Raw().header(0, 1'000'000).data(1 << 25).bytes(), "x.gguf"); },
                    ErrorCategory::CorruptFile);
  EXPECT_NE(many.find("at most 65536 keys"), std::string::npos) << many;
  expect_corrupt(Raw().header(0, 2).key("k", Type::U8).put(std::uint8_t{1}), "one key too few");
  expect_corrupt(Raw().header(0, 1).put(~std::uint64_t{0}).data(64), "key of 2^64-1 bytes");
  expect_corrupt(Raw().header(0, 1).key("k", Type::String).put(std::uint64_t{1} << 62).data(64),
                 "string of 2^62 bytes");
  const auto array = [](Type element, std::uint64_t count) {
    Raw raw;
    raw.header(0, 1).key("k", Type::Array).put(static_cast<std::uint32_t>(element)).put(count);
    return raw.data(64);
  };
  expect_corrupt(array(Type::U64, std::uint64_t{1} << 61), "array whose bytes overflow");
  expect_corrupt(array(Type::U8, 65), "array one element too long");
  expect_corrupt(array(Type::String, std::uint64_t{1} << 60), "array of 2^60 strings");
  expect_corrupt(array(Type::Array, 1), "nested array");
  expect_corrupt(array(static_cast<Type>(13), 1), "unknown element type");
}

TEST(Gguf, refuses_bad_keys) {
  const auto u8 = [](Raw& raw, std::string_view name) {
    raw.key(name, Type::U8).put(std::uint8_t{1});
  };
  Raw twice, empty, kind, boolean;
  twice.header(0, 2);
  u8(twice, "k");
  u8(twice, "k");
  expect_corrupt(twice, "key twice");
  empty.header(0, 1);
  u8(empty, "");
  expect_corrupt(empty, "empty key");
  expect_corrupt(kind.header(0, 1).key("k", static_cast<Type>(13)).data(32), "unknown type");
  expect_corrupt(boolean.header(0, 1).key("k", Type::Bool).put(std::uint8_t{2}), "boolean of 2");
}

TEST(Gguf, refuses_bad_alignments) {
  for (const std::uint32_t alignment : {0u, 3u, 48u, 131072u}) {
    Raw raw;
    raw.header(0, 1).key("general.alignment", Type::U32).put(alignment);
    expect_corrupt(raw, concat("alignment ", alignment));
  }
  Raw kind;
  kind.header(0, 1).key("general.alignment", Type::U8).put(std::uint8_t{32});
  expect_corrupt(kind, "alignment as u8");
}

TEST(Gguf, refuses_lies_about_tensors) {
  const auto one = [](std::vector<std::uint64_t> dims, GgufType type, std::uint64_t offset,
                      std::size_t data, std::string_view name = "t") {
    Raw raw;
    return raw.header(1, 0).tensor(name, std::move(dims), type, offset).pad().data(data);
  };
  EXPECT_NO_THROW(parse_gguf(one({2}, GgufType::F32, 0, 8).bytes(), "x"));
  expect_corrupt(one({2}, GgufType::F32, 0, 7), "data too short");
  expect_corrupt(one({std::uint64_t{1} << 60}, GgufType::F32, 0, 8), "2^62 bytes");
  expect_corrupt(one({2}, GgufType::F32, 32, 64), "offset not the running sum");
  expect_corrupt(one({2}, GgufType::F32, ~std::uint64_t{0}, 8), "offset of 2^64-1");
  expect_corrupt(one({0}, GgufType::F32, 0, 8), "no elements");
  expect_corrupt(one({33}, GgufType::Q8_0, 0, 68), "row no multiple of the block");
  expect_corrupt(one({std::uint64_t{1} << 32, std::uint64_t{1} << 32}, GgufType::F32, 0, 8),
                 "product overflows");
  expect_corrupt(one({std::uint64_t{1} << 63}, GgufType::F32, 0, 8), "dimension of 2^63");
  expect_corrupt(one({1, 1, 1, 1, 1}, GgufType::F32, 0, 8), "rank 5");
  expect_corrupt(one({2}, GgufType::F32, 0, 8, ""), "no name");
  expect_corrupt(one({2}, GgufType::F32, 0, 8, std::string(64, 'n')), "name of 64 bytes");
  EXPECT_EQ(category_of(one({32}, static_cast<GgufType>(31), 0, 64)), ErrorCategory::Unsupported);
  Raw twice;
  twice.header(2, 0).tensor("t", {8}, GgufType::F32, 0).tensor("t", {8}, GgufType::F32, 32);
  expect_corrupt(twice.pad().data(64), "name twice");
}

TEST(Gguf, a_truncated_file_is_told_by_its_size) {
  Raw raw;
  raw.header(2, 0).tensor("t", {8}, GgufType::F32, 0).tensor("u", {2}, GgufType::F32, 32);
  const std::vector<std::byte> file = raw.pad().data(40).bytes();
  EXPECT_NO_THROW(parse_gguf(file, "x"));
  for (const std::size_t missing : {1u, 8u, 40u}) {
    try {
      parse_gguf(std::span(file).first(file.size() - missing), "x");
      ADD_FAILURE() << missing << " bytes are missing";
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(),
                   concat("[x] expected a file of ", file.size(),
                          " bytes, which its tensors need, got ", file.size() - missing, " bytes")
                       .c_str());
    }
  }
}

std::vector<std::byte> many_tensors(std::uint64_t count) {
  Raw raw;
  raw.header(count, 0);
  for (std::uint64_t i = 0; i < count; ++i) raw.tensor(concat("t", i), {8}, GgufType::F32, 32 * i);
  return raw.pad().data(32 * count).bytes();
}

double seconds_to_parse(const std::vector<std::byte>& file) {
  const auto begin = std::chrono::steady_clock::now();
  parse_gguf(file, "x");
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

TEST(Gguf, reads_many_tensors_in_linear_time) {
  const auto small = many_tensors(50'000), large = many_tensors(500'000);
  EXPECT_LT(seconds_to_parse(large) / seconds_to_parse(small), 40);  // 10 linear, 100 quadratic
}

TEST(GgufWriter, leaves_no_file_when_data_is_missing) {
  const test::TemporaryFolder folder;
  const std::vector<Index> dims{4};
  {
    GgufWriter writer(folder.path() / "a.gguf");
    writer.add_tensor("t", GgufType::F32, dims);
    EXPECT_THROW(writer.commit(), Error);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(GgufWriter, refuses_what_the_format_cannot_hold) {
  const test::TemporaryFolder folder;
  GgufWriter writer(folder.path() / "a.gguf");
  const std::vector<Index> dims{33};
  EXPECT_THROW(writer.add_tensor("t", GgufType::Q8_0, dims), Error);
  EXPECT_THROW(writer.add_tensor(std::string(64, 'n'), GgufType::F32, dims), Error);
  EXPECT_THROW(writer.set_integer("n", -1), Error);
  writer.add_tensor("t", GgufType::F32, dims);
  const std::vector<std::byte> data(33 * 4 + 1);
  EXPECT_THROW(writer.write(data), Error);  // beyond the tensor
}

}  // namespace
}  // namespace hone
