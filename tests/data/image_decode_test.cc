// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "hone/core/error.h"
#include "hone/core/mmap_file.h"
#include "hone/data/image/image.h"
#include "tests/support/image_codecs.h"
#include "tests/support/test_data.h"

namespace hone::data {
namespace {

using testing::HasSubstr;

std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string refusal(const std::string& file, ErrorCategory category = ErrorCategory::CorruptFile) {
  try {
    decode_image(as_bytes(file), "x.img");
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), category) << error.what();
    EXPECT_THAT(error.what(), testing::StartsWith("[x.img] "));
    return error.what();
  }
  return {};
}

std::string pixels_of(const Image& image) { return {image.pixels.begin(), image.pixels.end()}; }

double mean_difference(const Image& image, const std::string& pixels) {
  EXPECT_EQ(image.pixels.size(), pixels.size());
  double sum = 0;
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    sum += std::abs(static_cast<double>(image.pixels[i]) -
                    static_cast<double>(static_cast<unsigned char>(pixels[i])));
  }
  return sum / static_cast<double>(pixels.size());
}

TEST(DecodeImage, reads_ppm_and_pgm_with_comments_and_other_maxima) {
  const std::string pixels = test::scene(3, 5, 3);
  const Image color = decode_image(as_bytes(test::ppm_file(3, 5, pixels)), "x");
  EXPECT_EQ(color.height, 3);
  EXPECT_EQ(color.width, 5);
  EXPECT_EQ(pixels_of(color), pixels);
  const Image gray = decode_image(
      as_bytes("P5 # a comment\n# another\n2 1\n100\n" + std::string("\x32\x64", 2)), "x");
  EXPECT_THAT(gray.pixels, testing::ElementsAre(128, 128, 128, 255, 255, 255));
}

TEST(DecodeImage, reads_every_kind_of_png_as_rgb) {
  const std::string pixels = test::scene(6, 9, 3);
  EXPECT_EQ(pixels_of(decode_image(as_bytes(test::png_file(6, 9, 8, 2, pixels)), "x")), pixels);
  const auto decode = [](const std::string& file) {
    return decode_image(as_bytes(file), "x").pixels;
  };
  using testing::ElementsAre;
  EXPECT_THAT(decode(test::png_file(1, 2, 8, 0, "\x10\x20")), ElementsAre(16, 16, 16, 32, 32, 32));
  EXPECT_THAT(decode(test::png_file(1, 3, 1, 0, std::string("\xa0", 1))),
              ElementsAre(255, 255, 255, 0, 0, 0, 255, 255, 255));
  EXPECT_THAT(decode(test::png_file(1, 2, 8, 3, std::string("\x01\x00", 2),
                                    std::string("\x01\x02\x03\x04\x05\x06", 6))),
              ElementsAre(4, 5, 6, 1, 2, 3));
  EXPECT_THAT(
      decode(test::png_file(1, 2, 8, 6, std::string("\x0a\x0b\x0c\xff\x01\x02\x03\x00", 8))),
      ElementsAre(10, 11, 12, 255, 255, 255))
      << "what is transparent is white";
}

TEST(DecodeImage, reads_jpeg_baseline_progressive_and_gray) {
  const std::string pixels = test::scene(48, 40, 3), gray = test::scene(48, 40, 1);
  for (const bool progressive : {false, true}) {
    const Image image = decode_image(as_bytes(test::jpeg_file(48, 40, pixels, progressive)), "x");
    EXPECT_EQ(image.width, 40);
    EXPECT_LT(mean_difference(image, pixels), 2) << progressive;
  }
  std::string wide;
  for (const char value : gray) wide += std::string(3, value);
  EXPECT_LT(mean_difference(decode_image(as_bytes(test::jpeg_file(48, 40, gray)), "x"), wide), 2);
}

TEST(DecodeImage, makes_a_jpeg_smaller_but_not_below_the_side_asked_for) {
  const std::string file = test::jpeg_file(200, 320, test::scene(200, 320, 3));
  for (const auto& [side, height] : {std::pair<Index, Index>{0, 200},
                                     {200, 200},
                                     {101, 200},
                                     {100, 100},
                                     {50, 50},
                                     {25, 25},
                                     {4, 25}}) {
    EXPECT_EQ(decode_image(as_bytes(file), "x", side).height, height) << side;
  }
}

TEST(DecodeImage, refuses_what_is_cut_short_damaged_or_no_image) {
  const std::string pixels = test::scene(32, 32, 3);
  for (const std::string& file :
       {test::jpeg_file(32, 32, pixels), test::jpeg_file(32, 32, pixels, true),
        test::png_file(32, 32, 8, 2, pixels), test::ppm_file(32, 32, pixels)}) {
    for (const double part : {0.1, 0.5, 0.9}) {
      const auto length = static_cast<std::size_t>(part * static_cast<double>(file.size()));
      EXPECT_NE(refusal(file.substr(0, length)), "") << part;
    }
  }
  EXPECT_THAT(refusal(""), HasSubstr("an empty file"));
  EXPECT_THAT(refusal("GIF89a"), HasSubstr("a JPEG, PNG, PGM or PPM image"));
  EXPECT_THAT(refusal("P6\n3 3\n65535\n" + std::string(54, 'x')), HasSubstr("8 bits"));
  EXPECT_THAT(refusal("P6\n3\n"), HasSubstr("the height"));
  EXPECT_THAT(refusal("P6\n99999999 1\n255\n"), HasSubstr("width of at most"));
}

TEST(DecodeImage, allocates_nothing_for_a_size_that_the_file_cannot_hold) {
  EXPECT_THAT(refusal("P6\n16000000 16000000\n255\n"), HasSubstr("16000000 x 16000000"));
  EXPECT_THAT(refusal("P5\n0 3\n255\n"), HasSubstr("0 x 3"));
  std::string png = test::png_file(4, 4, 8, 2, test::scene(4, 4, 3));
  const std::string plain = test::png_file(30000, 30000, 8, 0, std::string(30000, 'x'));
  EXPECT_THAT(refusal(plain), HasSubstr("30000 x 30000"));
}

TEST(FitToSquare, takes_the_middle_and_keeps_a_constant_and_an_image_of_that_size) {
  Image wide{4, 8, std::vector<std::uint8_t>(4 * 8 * 3)};
  for (Index y = 0; y < 4; ++y) {
    for (Index x = 0; x < 8; ++x) {
      for (Index c = 0; c < 3; ++c) {
        wide.pixels[static_cast<std::size_t>((y * 8 + x) * 3 + c)] =
            static_cast<std::uint8_t>(x < 2 || x >= 6 ? 255 : 10 * (y * 4 + x - 2) + c);
      }
    }
  }
  std::vector<std::uint8_t> planes(3 * 4 * 4);
  fit_to_square(wide, 4, planes);
  for (Index c = 0; c < 3; ++c) {
    for (Index i = 0; i < 16; ++i) {
      EXPECT_EQ(planes[static_cast<std::size_t>(c * 16 + i)], 10 * i + c);
    }
  }
  const Image flat{50, 30, std::vector<std::uint8_t>(50 * 30 * 3, 77)};
  for (const Index side : {1, 7, 30, 64}) {
    std::vector<std::uint8_t> out(static_cast<std::size_t>(3 * side * side));
    fit_to_square(flat, side, out);
    EXPECT_THAT(out, testing::Each(77)) << side;
  }
}

// A slope stays a slope: the mean of each half is what it was.
TEST(FitToSquare, averages_what_it_makes_smaller) {
  Image slope{64, 64, {}};
  for (Index i = 0; i < 64 * 64; ++i) {
    slope.pixels.insert(slope.pixels.end(), 3, static_cast<std::uint8_t>(4 * (i % 64)));
  }
  std::vector<std::uint8_t> planes(3 * 8 * 8);
  fit_to_square(slope, 8, planes);
  for (Index x = 1; x < 7; ++x) {
    EXPECT_NEAR(planes[static_cast<std::size_t>(x)], 4 * (8 * static_cast<double>(x) + 3.5), 1);
  }
}

TEST(RealImages, decode_to_the_sizes_that_their_sources_state) {
  HONE_REQUIRE_TEST_DATA(sheet, "vision/cifar10/cifar10_batch_0.png");
  const MmapFile file(sheet);
  const Image image = decode_image(file.bytes(), "sheet");
  EXPECT_EQ(image.width, 1024);
  EXPECT_EQ(image.height, 1000);
  HONE_REQUIRE_TEST_DATA(flowers, "vision/17flowers/test");
  Index decoded = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(flowers)) {
    if (!has_image_name(entry.path()) || ++decoded > 24) continue;
    const MmapFile jpeg(entry.path());
    const Image flower = decode_image(jpeg.bytes(), entry.path().string());
    EXPECT_GE(std::min(flower.height, flower.width), 499);
    EXPECT_GE(decode_image(jpeg.bytes(), "x", 100).height, 100);
  }
  EXPECT_GT(decoded, 24);
}

}  // namespace
}  // namespace hone::data
