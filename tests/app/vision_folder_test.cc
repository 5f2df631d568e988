// SPDX-License-Identifier: Apache-2.0
#include "hone/app/vision_folder.h"

#include <gtest/gtest.h>

#include "hone/core/file/file_io.h"
#include "tests/support/test_data.h"

namespace hone::app {
namespace {

TEST(VisionFolder, is_known_by_its_config_and_by_nothing_else) {
  const test::TemporaryFolder folder;
  const auto says = [&](const char* config) {
    write_text_file(folder.path() / "config.json", config);
    return is_vision_model(folder.path());
  };
  EXPECT_FALSE(is_vision_model(folder.path())) << "no config.json";
  EXPECT_TRUE(says(R"({"model": "cnn", "format": "hone-vision"})"));
  EXPECT_FALSE(is_vision_model(folder.path() / "config.json")) << "the file";
  for (const char* other :
       {R"({"model_type": "llama"})", R"({"format": "gguf"})", R"({"format": 3})",
        R"({"format": {"format": "hone-vision"}})", R"(["format", "hone-vision"])", "null", "",
        R"({"format": "hone-vision")", "\xff\xfe"}) {
    EXPECT_FALSE(says(other)) << other;
  }
  EXPECT_FALSE(is_vision_model("")) << "no path";
  EXPECT_FALSE(is_vision_model(std::string(5000, 'x'))) << "no name of a file";
  std::filesystem::remove(folder.path() / "config.json");
  std::filesystem::create_directory(folder.path() / "config.json");
  EXPECT_FALSE(is_vision_model(folder.path())) << "a folder of that name";
}

TEST(Archive, is_known_by_its_first_bytes) {
  const test::TemporaryFolder folder;
  const auto file = folder.path() / "net.pt";
  EXPECT_FALSE(is_archive(file)) << "no file";
  EXPECT_FALSE(is_archive(folder.path()));
  EXPECT_FALSE(is_archive(""));
  for (const auto& [text, want] : {std::pair{"PK\3\4rest", true},
                                   {"PK\3\4", true},
                                   {"PK\3", false},
                                   {"GGUF", false},
                                   {"PK\5\6", false},
                                   {"", false}}) {
    write_text_file(file, text);
    EXPECT_EQ(is_archive(file), want) << text;
  }
}

}  // namespace
}  // namespace hone::app
