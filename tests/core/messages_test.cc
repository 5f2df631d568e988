// SPDX-License-Identifier: Apache-2.0
// The texts of errors that compare nothing: sentences that name the place and the cause.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>

#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "hone/core/file/folder_lock.h"
#include "hone/core/file/json_io.h"
#include "hone/core/file/mmap_file.h"
#include "hone/core/format/gguf.h"
#include "hone/core/format/safetensors.h"
#include "tests/support/error_of.h"
#include "tests/support/test_data.h"

namespace hone {
namespace {

namespace fs = std::filesystem;
using test::refusal;

class Messages : public testing::Test {
 protected:
  std::string at(const char* name) const { return (folder_.path() / name).string(); }
  std::string says(const char* name, std::string_view sentence) const {
    return concat("[", at(name), "] ", sentence);
  }
  test::TemporaryFolder folder_;
};

TEST_F(Messages, of_files_give_the_reason_of_the_system) {
  write_text_file(at("file"), "x");
  EXPECT_EQ(refusal([&] { read_text_file(at("none")); }, ErrorCategory::NotFound),
            says("none", "Could not open the file: No such file or directory"));
  EXPECT_EQ(refusal([&] { MmapFile file(at("file/inside")); }, ErrorCategory::NotFound),
            says("file/inside", "Could not open the file: Not a directory"));
  EXPECT_EQ(refusal([&] { write_text_file(at("none/x"), "text"); }, ErrorCategory::Io),
            says("none/x", "Could not create the file: No such file or directory"));
  EXPECT_EQ(refusal([&] { AtomicFolder folder(at("file/x")); }, ErrorCategory::Io),
            says("file/x", "Could not create the folder: Not a directory"));
  EXPECT_EQ(refusal([&] { FolderLock lock(at("file/x")); }, ErrorCategory::Io),
            says("file/x", "Could not make the folder: Not a directory"));
  fs::create_symlink(at("loop"), at("loop"));
  EXPECT_EQ(refusal([&] { write_text_file(at("loop"), "text"); }, ErrorCategory::Io),
            says("loop", "This symbolic link does not lead anywhere."));
}

TEST_F(Messages, of_outputs_name_the_input_that_they_would_damage) {
  fs::create_directories(at("model"));
  write_text_file(at("model/weights"), "x");
  const std::string weights = at("model/weights"), model = at("model");
  EXPECT_EQ(refusal([&] { check_output_spares(model, model); }),
            says("model", "The output must not be the input."));
  EXPECT_EQ(refusal([&] { check_output_spares(model, weights); }),
            says("model", concat("The output must not contain the input ", weights, ".")));
  EXPECT_EQ(refusal([&] { check_output_spares(weights, model); }),
            says("model/weights", concat("The output must not lie within the input ", model, ".")));
}

TEST_F(Messages, of_a_locked_folder_say_who_has_it) {
  const FolderLock lock(at("run"));
  EXPECT_EQ(refusal([&] { FolderLock second(at("run")); }, ErrorCategory::Resource),
            says("run", "Another run of hone has locked this folder."));
}

TEST(Json, errors_name_the_key_or_the_fault) {
  const auto parse = [](std::string_view text) {
    return refusal([&] { parse_json(text, "a.json", {.depth = 2}); }, ErrorCategory::CorruptFile);
  };
  EXPECT_EQ(parse(R"({"a": 1, "a": 2})"), R"([a.json] The JSON key "a" occurs twice.)");
  EXPECT_EQ(parse("[[[]]]"), "[a.json] The JSON is nested more than 2 levels deep.");
  EXPECT_THAT(parse("{"), testing::StartsWith("[a.json] This is not valid JSON: "));
}

TEST_F(Messages, of_writers_name_the_tensor) {
  const SafetensorsWriter::Entry entry{"w", Dtype::Float32, Shape{2}};
  const SafetensorsWriter::Entry twice[] = {entry, entry};
  EXPECT_EQ(refusal([&] { SafetensorsWriter writer(at("m.safetensors"), twice, {}); }),
            says("m.safetensors", "Tensor w occurs twice."));
  GgufWriter writer(at("m.gguf"));
  const Index dims[] = {32};
  writer.add_tensor("a", GgufType::F32, dims);
  writer.write(std::vector<std::byte>(4));
  EXPECT_EQ(refusal([&] { writer.add_tensor("b", GgufType::F32, dims); }),
            says("m.gguf", "Tensor b is added after the first write()."));
}

}  // namespace
}  // namespace hone
