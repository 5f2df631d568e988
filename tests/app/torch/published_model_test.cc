// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <sstream>

#include "hone/app/torch/classify.h"
#include "hone/app/torch/eval_vision.h"
#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "hone/core/file/mmap_file.h"
#include "hone/core/log.h"
#include "hone/data/image/image.h"
#include "tests/support/image_files.h"
#include "tests/support/program.h"
#include "tests/support/test_data.h"

namespace hone::app {
namespace {

namespace fs = std::filesystem;

constexpr Index kImages = 400, kSide = 32;
constexpr std::array<const char*, 10> kClasses = {
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"};

// CIFAR-10's training images 1000 to 1399, one in each row of a sheet, as a folder of PNG files.
// Returns their paths, whose parents are named as their classes.
std::vector<fs::path> write_images(const fs::path& sheet_file, const fs::path& label_file,
                                   const fs::path& folder) {
  const MmapFile file(sheet_file);
  const data::Image sheet = data::decode_image(file.bytes(), sheet_file.string());
  std::istringstream labels(read_text_file(label_file));
  int label = 0;
  for (Index i = 0; i < 1000; ++i) labels >> label;
  std::vector<fs::path> out;
  for (Index i = 0; i < kImages; ++i) {
    labels >> label;
    const auto row = sheet.pixels.begin() + 3 * i * sheet.width;
    const std::vector<std::byte> png =
        data::encode_png({kSide, kSide, {row, row + 3 * kSide * kSide}});
    out.push_back(folder / "test" / kClasses.at(static_cast<std::size_t>(label)) /
                  concat(i, ".png"));
    test::write_bytes(out.back(), {reinterpret_cast<const char*>(png.data()), png.size()});
  }
  return out;
}

// Its source states 99.75 % on these images, which it was trained on.
TEST(PublishedModel, a_converted_resnet20_scores_what_its_source_states) {
  HONE_REQUIRE_TEST_DATA(weights, "vision/cifar10/resnet20-12fca82f.th");
  HONE_REQUIRE_TEST_DATA(sheet, "vision/cifar10/cifar10_batch_1.png");
  HONE_REQUIRE_TEST_DATA(labels, "vision/cifar10/cifar10_batch_0_1_labels.txt");
  set_log_level(LogLevel::Error);
  const test::TemporaryFolder folder;
  const fs::path model = folder.path() / "model", names = folder.path() / "names.txt";
  std::string lines;
  for (const char* name : kClasses) lines += concat(name, '\n');
  test::write_bytes(names, lines);
  const test::ProgramResult tool =
      test::Program({"/usr/bin/env", "python3",
                     test::source_file("tools/pth_to_safetensors.py").string(), weights.string(),
                     model.string(), "--arch", "resnet20", "--classes", names.string()})
          .wait();
  if (tool.status == 127) GTEST_SKIP() << "no python3";
  ASSERT_EQ(tool.status, 0) << tool.err;

  const std::vector<fs::path> images = write_images(sheet, labels, folder.path() / "data");
  VisionEvalOptions options;
  options.model = model;
  options.data = (folder.path() / "data").string();
  options.threads = 1;
  const VisionCard card = evaluate_vision(options);
  EXPECT_EQ(card.images, kImages);
  EXPECT_NEAR(card.accuracy, 0.9975, 1.5 / kImages) << "an image more or less may round otherwise";
  const std::vector<ClassifiedImage> classified =
      classify_images({.model = model, .threads = 1}, {images.begin(), images.begin() + 20}, 1);
  Index right = 0;
  for (const ClassifiedImage& image : classified) {
    right += image.classes.at(0).name == image.path.parent_path().filename() ? 1 : 0;
  }
  EXPECT_GE(right, 19);
}

}  // namespace
}  // namespace hone::app
