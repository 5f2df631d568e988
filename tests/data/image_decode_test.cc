// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cmath>
#include <cstdlib>
#include <map>

#include "hone/core/check.h"
#include "hone/core/error.h"
#include "hone/core/file/file_io.h"
#include "hone/core/file/mmap_file.h"
#include "hone/core/machine/process_memory.h"
#include "hone/data/image/image.h"
#include "tests/support/image_codecs.h"
#include "tests/support/peer.h"
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

std::vector<std::uint8_t> decode(const std::string& file) {
  return decode_image(as_bytes(file), "x").pixels;
}

// A string of bytes, also of zeros.
std::string bytes(std::initializer_list<int> values) {
  std::string out;
  for (const int value : values) out += static_cast<char>(value);
  return out;
}

TEST(DecodeImage, reads_every_kind_of_png_as_rgb) {
  const std::string pixels = test::scene(6, 9, 3);
  EXPECT_EQ(pixels_of(decode_image(as_bytes(test::png_file(6, 9, 8, 2, pixels)), "x")), pixels);
  using testing::ElementsAre;
  EXPECT_THAT(decode(test::png_file(1, 2, 8, 0, "\x10\x20")), ElementsAre(16, 16, 16, 32, 32, 32));
  EXPECT_THAT(decode(test::png_file(1, 3, 1, 0, bytes({0xa0}))),
              ElementsAre(255, 255, 255, 0, 0, 0, 255, 255, 255));
  EXPECT_THAT(decode(test::png_file(1, 2, 4, 0, bytes({0x17}))),
              ElementsAre(17, 17, 17, 119, 119, 119));
  EXPECT_THAT(decode(test::png_file(1, 2, 8, 3, bytes({1, 0}), bytes({1, 2, 3, 4, 5, 6}))),
              ElementsAre(4, 5, 6, 1, 2, 3));
  EXPECT_EQ(pixels_of(decode_image(as_bytes(test::interlaced_png_file(6, 9, pixels)), "x")),
            pixels);
}

TEST(DecodeImage, takes_the_high_byte_of_samples_of_16_bits) {
  using testing::ElementsAre;
  const std::string samples = bytes({0x00, 0xff, 0x01, 0x80, 0x80, 0xff, 0xff, 0xff});
  EXPECT_THAT(decode(test::png_file(1, 4, 16, 0, samples)),
              ElementsAre(0, 0, 0, 1, 1, 1, 128, 128, 128, 255, 255, 255));
  EXPECT_THAT(decode(test::png_file(1, 2, 16, 4, samples)), ElementsAre(0, 0, 0, 128, 128, 128));
  EXPECT_THAT(decode(test::png_file(1, 1, 16, 2, samples.substr(0, 6))), ElementsAre(0, 1, 128));
  EXPECT_THAT(decode(test::png_file(1, 1, 16, 6, samples)), ElementsAre(0, 1, 128));
}

TEST(DecodeImage, drops_transparency_and_ignores_gamma) {
  using testing::ElementsAre;
  const std::string gamma = test::png_chunk("gAMA", test::big_endian(100'000));
  EXPECT_THAT(decode(test::png_file(1, 2, 8, 0, bytes({100, 200}), "", gamma)),
              ElementsAre(100, 100, 100, 200, 200, 200));
  EXPECT_THAT(decode(test::png_file(1, 2, 8, 6, bytes({10, 11, 12, 255, 1, 2, 3, 0}))),
              ElementsAre(10, 11, 12, 1, 2, 3));
  EXPECT_THAT(decode(test::png_file(1, 2, 8, 4, bytes({10, 0, 200, 128}))),
              ElementsAre(10, 10, 10, 200, 200, 200));
  const auto transparent = [](std::initializer_list<int> values) {
    return test::png_chunk("tRNS", bytes(values));
  };
  EXPECT_THAT(decode(test::png_file(1, 2, 8, 3, bytes({1, 0}), bytes({1, 2, 3, 4, 5, 6}),
                                    transparent({0, 128}))),
              ElementsAre(4, 5, 6, 1, 2, 3));
  EXPECT_THAT(decode(test::png_file(1, 2, 8, 0, bytes({7, 8}), "", transparent({0, 7}))),
              ElementsAre(7, 7, 7, 8, 8, 8));
  EXPECT_THAT(
      decode(test::png_file(1, 1, 8, 2, bytes({7, 8, 9}), "", transparent({0, 7, 0, 8, 0, 9}))),
      ElementsAre(7, 8, 9));
}

// A mask with nothing on it packs to a 7000th of its pixels.
TEST(DecodeImage, reads_blank_masks_of_one_bit_and_knows_what_a_byte_can_hold) {
  const auto blank = [](Index side, int depth, int color_type, Index row_bytes) {
    const auto size = static_cast<std::size_t>(side * row_bytes);
    return test::png_file(side, side, depth, color_type, std::string(size, '\0'));
  };
  const std::string mask = blank(4000, 1, 0, 500);
  EXPECT_LT(mask.size(), 3000u);
  EXPECT_THAT(decode_image(as_bytes(mask), "x").width, 4000);
  const std::string color = blank(1000, 8, 2, 3000);
  EXPECT_THAT(decode_image(as_bytes(color), "x").width, 1000);
  // The head of a larger image than 1032 times the file's bytes could be.
  std::string lying = test::png_file(1, 1, 8, 2, bytes({1, 2, 3}));
  const std::string head = test::png_file(300, 300, 8, 2, std::string(270'000, '\0'));
  lying.replace(0, 33, head.substr(0, 33));
  EXPECT_THAT(refusal(lying), HasSubstr("pixels in a file of"));
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

// Each color fills the image: its channels are stored inverted, and each of them is what is left of
// the light that black lets through.
TEST(DecodeImage, reads_inverted_cmyk_and_ycck) {
  for (const auto& ink : std::vector<std::array<int, 4>>{
           {255, 255, 255, 255}, {0, 255, 255, 255}, {200, 100, 50, 128}, {90, 90, 90, 0}}) {
    std::string pixels;
    for (Index i = 0; i < 16 * 16; ++i) {
      for (const int value : ink) pixels += static_cast<char>(value);
    }
    for (const J_COLOR_SPACE stored : {JCS_CMYK, JCS_YCCK}) {
      const std::vector<std::uint8_t> found =
          decode(test::jpeg_file(16, 16, pixels, {.quality = 100, .stored = stored}));
      ASSERT_EQ(found.size(), 3u * 16 * 16);
      for (std::size_t i = 0; i < found.size(); ++i) {
        EXPECT_NEAR(found[i], ink[i % 3] * ink[3] / 255.0, 2) << i << ' ' << stored;
      }
    }
    const test::JpegOptions plain{.quality = 100, .stored = JCS_CMYK, .has_adobe_marker = false};
    EXPECT_EQ(decode(test::jpeg_file(16, 16, pixels, plain)),
              decode(test::jpeg_file(16, 16, pixels, {.quality = 100, .stored = JCS_CMYK})));
  }
}

TEST(DecodeImage, passes_over_bytes_of_a_jpeg_that_stand_for_no_pixel) {
  const std::string pixels = test::scene(48, 40, 3);
  for (const bool progressive : {false, true}) {
    const std::string file = test::jpeg_file(48, 40, pixels, progressive);
    const std::vector<std::uint8_t> expected = decode(file);
    const std::string end = file.substr(file.size() - 2);
    ASSERT_EQ(end, "\xff\xd9");
    const std::string before_end = file.substr(0, file.size() - 2) + bytes({1, 0, 2, 3}) + end;
    EXPECT_EQ(decode(before_end), expected) << progressive;
    std::string before_tables = file;
    before_tables.insert(file.find("\xff\xdb"), bytes({5, 0, 7}));
    EXPECT_EQ(decode(before_tables), expected) << progressive;
    EXPECT_EQ(decode(file + "more"), expected) << progressive;
    // They do not hide that pixels are missing.
    const std::string half = before_tables.substr(0, before_tables.size() / 2);
    EXPECT_THAT(refusal(half), HasSubstr("The JPEG is damaged: ")) << progressive;
    EXPECT_THAT(refusal(half + end), HasSubstr("The JPEG is damaged: ")) << progressive;
  }
}

// Texts and profiles that unpack to a thousand times their size.
TEST(DecodeImage, reads_no_text_of_a_png) {
  constexpr std::size_t kText = std::size_t{4} << 20;
  std::string packed(compressBound(kText), '\0');
  uLongf size = packed.size();
  const std::string text(kText, 'a');
  compress(reinterpret_cast<Bytef*>(packed.data()), &size,
           reinterpret_cast<const Bytef*>(text.data()), kText);
  packed.resize(size);
  std::string chunks = test::png_chunk("iCCP", std::string("p\0\0", 3) + packed);
  for (int i = 0; i < 40; ++i) {
    chunks += test::png_chunk("zTXt", std::string("k\0\0", 3) + packed);
    chunks += test::png_chunk("iTXt", std::string("k\0\1\0\0\0", 6) + packed);
  }
  const std::string file = test::png_file(1, 2, 8, 2, "abcdef", {}, chunks);
  const std::string want = test::png_file(1, 2, 8, 2, "abcdef");
  reset_resident_peak();
  const Index before = resident_bytes();
  EXPECT_EQ(decode(file), decode(want));
  EXPECT_LT(peak_resident_bytes() - before, static_cast<Index>(4 * kText));
}

// Each scan decodes the whole image again, and takes a few bytes.
TEST(DecodeImage, refuses_a_jpeg_of_very_many_scans) {
  const std::string pixels = test::scene(16, 16, 3);
  const std::string file = test::jpeg_file(16, 16, pixels, {.separate_scans = true});
  EXPECT_EQ(decode(file), decode(test::jpeg_file(16, 16, pixels)));
  const std::size_t scan = file.rfind("\xff\xda"), end = file.size() - 2;
  const auto repeated = [&](int times) {
    std::string out = file.substr(0, scan);
    for (int i = 0; i < times; ++i) out += file.substr(scan, end - scan);
    return out + file.substr(end);
  };
  EXPECT_EQ(decode(repeated(80)), decode(file));
  EXPECT_THAT(refusal(repeated(120)), HasSubstr("more than 100 scans"));
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

// Files of each kind that Pillow reads to what hone reads.
std::map<std::string, std::string> files_of_every_kind() {
  constexpr Index kHeight = 13, kWidth = 21;
  std::map<std::string, std::string> out;
  const auto rows = [](Index bytes_of_a_row) { return test::scene(kHeight, bytes_of_a_row, 1); };
  const std::string palette = test::scene(1, 256, 3), alphas = test::scene(1, 256, 1, 2);
  const std::string gamma = test::png_chunk("gAMA", test::big_endian(100'000));
  const auto png = [&](int depth, int color_type, const std::string& chunks = {}) {
    const Index channels = color_type == 2 ? 3 : color_type == 4 ? 2 : color_type == 6 ? 4 : 1;
    const auto entries = static_cast<std::size_t>(3) << depth;
    return test::png_file(kHeight, kWidth, depth, color_type,
                          rows(ceil_div(kWidth * channels * depth, 8)),
                          color_type == 3 ? palette.substr(0, entries) : "", chunks);
  };
  for (const int depth : {1, 2, 4, 8}) {
    const auto entries = std::size_t{1} << depth;
    out[concat("gray_", depth, ".png")] = png(depth, 0);
    out[concat("gray_gamma_", depth, ".png")] = png(depth, 0, gamma);
    out[concat("palette_", depth, ".png")] = png(depth, 3);
    out[concat("palette_transparent_", depth, ".png")] =
        png(depth, 3, test::png_chunk("tRNS", alphas.substr(0, entries)));
  }
  for (const int depth : {8, 16}) {
    for (const int color_type : {2, 4, 6}) {
      out[concat("color_", color_type, "_", depth, ".png")] = png(depth, color_type);
      out[concat("gamma_", color_type, "_", depth, ".png")] = png(depth, color_type, gamma);
    }
  }
  out["interlaced.png"] = test::interlaced_png_file(kHeight, kWidth, test::scene(13, 21, 3));
  const std::string color = test::scene(kHeight, kWidth, 3), ink = test::scene(kHeight, kWidth, 4);
  const std::string jpeg = test::jpeg_file(kHeight, kWidth, color);
  out["gray.jpg"] = test::jpeg_file(kHeight, kWidth, test::scene(kHeight, kWidth, 1));
  out["color.jpg"] = jpeg;
  out["rgb.jpg"] = test::jpeg_file(kHeight, kWidth, color, {.stored = JCS_RGB});
  out["progressive.jpg"] = test::jpeg_file(kHeight, kWidth, color, true);
  out["extraneous.jpg"] = jpeg.substr(0, jpeg.size() - 2) + "abc\xff\xd9";
  out["cmyk.jpg"] = test::jpeg_file(kHeight, kWidth, ink, {.stored = JCS_CMYK});
  out["ycck.jpg"] = test::jpeg_file(kHeight, kWidth, ink, {.stored = JCS_YCCK});
  out["plain_cmyk.jpg"] = test::jpeg_file(kHeight, kWidth, ink, {.has_adobe_marker = false});
  return out;
}

// Except for gray samples of 16 bits, which Pillow clips to white.
TEST(DecodeImage, gives_the_pixels_that_pillow_gives) {
  HONE_REQUIRE_PEER("PIL");
  const test::TemporaryFolder folder;
  const std::map<std::string, std::string> files = files_of_every_kind();
  for (const auto& [name, content] : files) test::write_bytes(folder.path() / name, content);
  test::run_peer("tests/data/pillow_rgb.py", {folder.path().string()});
  for (const auto& [name, content] : files) {
    const std::string expected = read_text_file(folder.path() / (name + ".rgb"), 1 << 20);
    const std::vector<std::uint8_t> found = decode(content);
    ASSERT_EQ(found.size(), expected.size()) << name;
    int largest = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
      const auto value = static_cast<unsigned char>(expected[i]);
      largest = std::max(largest, std::abs(static_cast<int>(found[i]) - value));
    }
    EXPECT_LE(largest, 1) << name;
  }
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
