// SPDX-License-Identifier: Apache-2.0
// The same of image files: each is decoded or refused with one hone::Error.
#include <gtest/gtest.h>

#include "hone/core/log.h"
#include "hone/data/image/gzip.h"
#include "hone/data/image/readers.h"
#include "tests/fuzz/mutation_support.h"
#include "tests/support/image_codecs.h"

namespace hone::data {
namespace {

constexpr Index kHeight = 21, kWidth = 34;

void decode(const std::string& file) {
  const Image image = decode_image(test::as_bytes(file), "fuzz", 16);
  std::vector<std::uint8_t> planes(3 * 16 * 16);
  fit_to_square(image, 16, planes);
}

TEST(ImageMutation, jpeg) {
  const std::string pixels = test::scene(kHeight, kWidth, 3);
  test::run_mutations(test::jpeg_file(kHeight, kWidth, pixels), test::mutate_binary, decode);
}

TEST(ImageMutation, progressive_jpeg) {
  const std::string pixels = test::scene(kHeight, kWidth, 3);
  test::run_mutations(test::jpeg_file(kHeight, kWidth, pixels, true), test::mutate_binary, decode);
}

TEST(ImageMutation, cmyk_jpeg) {
  const std::string pixels = test::scene(kHeight, kWidth, 4);
  test::run_mutations(test::jpeg_file(kHeight, kWidth, pixels, {.stored = JCS_YCCK}),
                      test::mutate_binary, decode);
}

TEST(ImageMutation, png) {
  const std::string pixels = test::scene(kHeight, kWidth, 3);
  test::run_mutations(test::png_file(kHeight, kWidth, 8, 2, pixels), test::mutate_binary, decode);
}

TEST(ImageMutation, png_with_palette) {
  std::string rows;
  for (Index i = 0; i < 24 * 24; ++i) rows += static_cast<char>(i % 5);
  test::run_mutations(test::png_file(24, 24, 8, 3, rows, test::scene(1, 5, 3)),
                      test::mutate_head(80), decode);
}

TEST(ImageMutation, netpbm) {
  test::run_mutations(test::ppm_file(9, 7, test::scene(9, 7, 3)), test::mutate_head(14), decode);
}

TEST(ImageMutation, idx) {
  test::run_mutations(test::idx_file({30, 5, 5}, test::scene(30, 25, 1)), test::mutate_head(16),
                      [](const std::string& file) {
                        parse_idx({file.begin(), file.end()}, 3, "fuzz");
                      });
}

TEST(ImageMutation, gzipped_idx) {
  const std::string seed = test::gzip(test::idx_file({30, 28, 28}, test::scene(30, 784, 1)));
  test::run_mutations(seed, test::mutate_binary, [](const std::string& file) {
    constexpr Index kMost = 1 << 20;
    parse_idx(unpack_gzip(test::as_bytes(file), "fuzz", kMost), 3, "fuzz");
  });
}

TEST(ImageMutation, cifar_batch) {
  std::string seed;
  for (char label = 0; label < 4; ++label) seed += label + test::scene(32, 32, 3);
  test::run_mutations(seed, test::mutate_binary, [](const std::string& file) {
    std::vector<std::uint16_t> labels;
    std::vector<std::uint8_t> pixels;
    parse_cifar_batch({reinterpret_cast<const std::uint8_t*>(file.data()), file.size()}, "fuzz",
                      labels, pixels);
  });
}

}  // namespace
}  // namespace hone::data
