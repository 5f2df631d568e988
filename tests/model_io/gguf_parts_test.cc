// SPDX-License-Identifier: Apache-2.0
// GGUF models of block types that hone only reads, in one file and in several.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "hone/core/file/mmap_file.h"
#include "hone/model_io/family/file_tensors.h"
#include "hone/model_io/write_model.h"
#include "tests/model_io/tiny_gguf.h"
#include "tests/model_io/tiny_model.h"
#include "tests/support/test_data.h"

namespace hone::model_io {
namespace {

namespace fs = std::filesystem;
using test::GgufPartSpec;
using test::part_path;
using testing::HasSubstr;

void expect_same_bytes(const ModelFile& a, const ModelFile& b) {
  ASSERT_EQ(a.tensors().size(), b.tensors().size());
  for (const NamedMatrix& tensor : a.tensors()) {
    const StoredMatrix &x = tensor.matrix, &y = b.tensor(tensor.name).matrix;
    EXPECT_EQ(x.block_type, y.block_type) << tensor.name;
    ASSERT_EQ(x.bytes.size(), y.bytes.size()) << tensor.name;
    EXPECT_EQ(std::memcmp(x.bytes.data(), y.bytes.data(), x.bytes.size()), 0) << tensor.name;
  }
}

class GgufParts : public testing::Test {
 protected:
  // Writes the parts after `edit` and returns what opening the first one says.
  void expect_error(ErrorCategory category, const std::string& text,
                    const std::function<void(std::vector<GgufPartSpec>&)>& edit) {
    std::vector<GgufPartSpec> parts = test::tiny_split();
    edit(parts);
    test::write_parts(path(), parts);
    for (const std::size_t named : {0, 2}) expect_refused(part_path(path(), named), category, text);
  }
  void expect_refused(const fs::path& file, ErrorCategory category, const std::string& text) {
    try {
      test::open_bare(file);
      ADD_FAILURE() << "no error about " << text;
    } catch (const Error& error) {
      const std::string message = error.what();
      EXPECT_EQ(error.category(), category) << message;
      EXPECT_THAT(message, HasSubstr(text));
      EXPECT_THAT(message, HasSubstr("-of-00003.gguf"));
      EXPECT_EQ(message.find('\n'), std::string::npos);
    }
  }
  const fs::path& path() const { return folder_.path(); }

  test::TemporaryFolder folder_;
};

TEST_F(GgufParts, any_part_opens_the_model_that_one_file_holds) {
  test::write_tiny_gguf(path() / "whole.gguf");
  test::write_parts(path(), test::tiny_split());
  const auto whole = test::open_bare(path() / "whole.gguf");
  EXPECT_EQ(whole->files().size(), 1u);
  for (std::size_t i = 0; i < 3; ++i) {
    const auto model = test::open_bare(part_path(path(), i));
    expect_same_bytes(*whole, *model);
    EXPECT_EQ(model->files().size(), 3u);
    Index bytes = 0;
    for (std::size_t part = 0; part < 3; ++part)
      bytes += static_cast<Index>(fs::file_size(part_path(path(), part)));
    EXPECT_EQ(model->file_bytes(), bytes);
    EXPECT_EQ(model->architecture().hidden_size, 256);
  }
}

TEST_F(GgufParts, a_link_into_a_store_of_blobs_finds_its_siblings) {
  fs::create_directories(path() / "blobs");
  test::write_parts(path(), test::tiny_split());
  for (std::size_t i = 0; i < 3; ++i) {
    const fs::path blob = path() / "blobs" / concat("blob", i);
    fs::rename(part_path(path(), i), blob);
    fs::create_symlink(blob, part_path(path(), i));
  }
  EXPECT_EQ(test::open_bare(part_path(path(), 1))->tensors().size(), 12u);
}

TEST_F(GgufParts, writing_them_as_one_file_copies_every_block) {
  test::write_parts(path(), test::tiny_split());
  const auto parts = test::open_bare(part_path(path(), 0));
  const WriteReport report = write_gguf(
      path() / "one.gguf", {parts->architecture(), parts->tensors(), nullptr, Json::object()});
  EXPECT_TRUE(report.kept.empty());
  expect_same_bytes(*parts, *test::open_bare(path() / "one.gguf"));
}

TEST_F(GgufParts, other_formats_get_the_decoded_values) {
  test::write_tiny_gguf(path() / "m.gguf");
  const auto model = test::open_bare(path() / "m.gguf");
  const ModelSource source{model->architecture(), model->tensors(), nullptr, Json::object()};
  write_gguf(path() / "f32.gguf", source, StoreType::F32);
  const auto wide = test::open_bare(path() / "f32.gguf");
  for (const NamedMatrix& tensor : model->tensors())
    EXPECT_EQ(test::decoded(tensor), test::decoded(wide->tensor(tensor.name))) << tensor.name;
  const WriteReport report = write_hugging_face(path() / "folder", source, std::nullopt);
  EXPECT_EQ(report.decoded, 9);
  EXPECT_EQ(report.decoded_type, StoreType::F16);
  const auto folder = test::open_bare(path() / "folder");
  EXPECT_EQ(folder->tensor("lm_head.weight").matrix.dtype, Dtype::Float16);
}

TEST_F(GgufParts, a_missing_part_is_named) {
  test::write_parts(path(), test::tiny_split());
  fs::remove(part_path(path(), 1));
  expect_refused(part_path(path(), 2), ErrorCategory::NotFound,
                 "m-00002-of-00003.gguf] There is no such file, which is part 2 of the 3 parts");
}

TEST_F(GgufParts, names_must_say_what_the_keys_say) {
  test::write_parts(path(), test::tiny_split());
  for (const char* name : {"m-00001-of-00003.gguf.bak", "other.gguf", "m-1-of-3.gguf",
                           "m-00003-of-00003.gguf", "-00001-of-00003.gguf"}) {
    const fs::path copy = path() / name;
    fs::copy_file(part_path(path(), 0), copy, fs::copy_options::overwrite_existing);
    expect_refused(copy, ErrorCategory::CorruptFile,
                   std::string(name) == "m-00003-of-00003.gguf"
                       ? "a name that ends in -00001-of-00003.gguf"
                       : "-00001-of-00003.gguf, as its keys say, got '");
  }
}

TEST_F(GgufParts, keys_of_all_parts_agree) {
  using Parts = std::vector<GgufPartSpec>;
  expect_error(ErrorCategory::CorruptFile, "split.no of 1, got 2",
               [](Parts& parts) { parts[1].number = 2; });
  expect_error(ErrorCategory::CorruptFile, "split.count of 3, got 4",
               [](Parts& parts) { parts[1].count = 4; });
  expect_error(ErrorCategory::CorruptFile, "split.tensors.count of 12, got 11",
               [](Parts& parts) { parts[1].all_tensors = 11; });
  expect_error(ErrorCategory::CorruptFile, "There is no key split.tensors.count",
               [](Parts& parts) { parts[1].all_tensors.reset(); });
  expect_error(ErrorCategory::CorruptFile, "There is no key split.no",
               [](Parts& parts) { parts[1].number.reset(); });
  expect_error(ErrorCategory::CorruptFile, "There is no key split.no",
               [](Parts& parts) { parts[1].number = parts[1].count = std::nullopt; });
  expect_error(ErrorCategory::CorruptFile, "the architecture 'llama' of the first part, got 'qwen'",
               [](Parts& parts) { parts[1].architecture = "qwen"; });
}

TEST_F(GgufParts, every_tensor_occurs_exactly_once) {
  using Parts = std::vector<GgufPartSpec>;
  expect_error(ErrorCategory::CorruptFile,
               "m-00003-of-00003.gguf] Tensor 'blk.0.attn_v.weight' is also in another part",
               [](Parts& parts) { parts[2].tensors.insert(parts[2].tensors.begin(), 4); });
  expect_error(ErrorCategory::CorruptFile,
               "expected 12 tensors in 3 parts (split.tensors.count), got 11",
               [](Parts& parts) { parts[1].tensors.pop_back(); });
  expect_error(ErrorCategory::CorruptFile, "no tensor blk.0.attn_v.weight of shape [64, 256]",
               [](Parts& parts) {
                 parts[1].tensors.pop_back();
                 for (GgufPartSpec& part : parts) part.all_tensors = 11;
               });
  expect_error(ErrorCategory::CorruptFile, "There is no tensor token_embd.weight",
               [](Parts& parts) {
                 parts[1].tensors.clear();
                 for (GgufPartSpec& part : parts) part.all_tensors = 7;
               });
}

TEST_F(GgufParts, counts_beyond_reason_are_refused_before_any_file_is_sought) {
  for (const Index count : {Index{65'536}, Index{4'000'000'000}}) {
    std::vector<GgufPartSpec> parts = test::tiny_split();
    parts[0].count = count;
    test::write_parts(path(), parts);
    expect_refused(part_path(path(), 0), ErrorCategory::CorruptFile,
                   concat("split.count of at most 65535, got ", count));
  }
  std::vector<GgufPartSpec> parts = test::tiny_split();
  parts[0].number = 3;
  test::write_parts(path(), parts);
  expect_refused(part_path(path(), 0), ErrorCategory::CorruptFile, "split.no of 0 to 2, got 3");
}

TEST_F(GgufParts, a_part_that_is_cut_short_or_no_gguf_is_named) {
  test::write_parts(path(), test::tiny_split());
  const std::string good = read_text_file(part_path(path(), 1));
  write_text_file(part_path(path(), 1), good.substr(0, good.size() - 100));
  expect_refused(part_path(path(), 0), ErrorCategory::CorruptFile, "m-00002-of-00003.gguf");
  write_text_file(part_path(path(), 1), "hello, this is not a model");
  expect_refused(part_path(path(), 0), ErrorCategory::CorruptFile, "m-00002-of-00003.gguf");
  fs::remove(part_path(path(), 1));
  fs::create_directory(part_path(path(), 1));
  expect_refused(part_path(path(), 0), ErrorCategory::CorruptFile, "m-00002-of-00003.gguf");
}

}  // namespace
}  // namespace hone::model_io
