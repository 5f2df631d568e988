// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "hone/core/index.h"
#include "hone/core/philox.h"

// Writes image files that need no library.
namespace hone::test {

inline void write_bytes(const std::filesystem::path& path, const std::string& bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

// An IDX file of unsigned bytes.
inline std::string idx_file(const std::vector<Index>& sizes, const std::string& values) {
  std::string out = {0, 0, 8, static_cast<char>(sizes.size())};
  for (const Index size : sizes) {
    for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(size >> shift);
  }
  return out + values;
}

// Interleaved 8-bit pixels with an edge, a slope and noise, none of which suits a format well.
inline std::string scene(Index height, Index width, Index channels, std::uint64_t seed = 1) {
  PhiloxStream random(seed);
  std::string out;
  for (Index y = 0; y < height; ++y) {
    for (Index x = 0; x < width; ++x) {
      for (Index c = 0; c < channels; ++c) {
        const Index edge = x > width / 2 ? 120 : 20;
        out += static_cast<char>((edge + 40 * c + 90 * y / height + random.below(8)) & 0xff);
      }
    }
  }
  return out;
}

inline std::string ppm_file(Index height, Index width, const std::string& pixels) {
  return "P6\n" + std::to_string(width) + ' ' + std::to_string(height) + "\n255\n" + pixels;
}

// A picture of a bright bar on noise in one of `classes` rows; the row is the label.
inline std::string bar_picture(Index side, Index row, std::uint64_t seed) {
  PhiloxStream random(seed);
  std::string out;
  for (Index i = 0; i < side * side; ++i) {
    const bool bright = i / side == row || i / side == row + 1;
    out += static_cast<char>((bright ? 150 : 0) + static_cast<Index>(random.below(100)));
  }
  return out;
}

// Writes an IDX folder of such pictures in `classes` classes.
inline void write_bar_folder(const std::filesystem::path& folder, Index side, Index classes,
                             Index train, Index test) {
  const auto write = [&](const std::string& name, Index count, std::uint64_t seed) {
    std::string pixels, labels;
    for (Index i = 0; i < count; ++i) {
      const Index label = i % classes;
      pixels += bar_picture(side, label * side / classes, seed + static_cast<std::uint64_t>(i));
      labels += static_cast<char>(label);
    }
    write_bytes(folder / (name + "-images-idx3-ubyte"), idx_file({count, side, side}, pixels));
    write_bytes(folder / (name + "-labels-idx1-ubyte"), idx_file({count}, labels));
  };
  write("train", train, 1);
  write("t10k", test, 1'000'000);
}

}  // namespace hone::test
