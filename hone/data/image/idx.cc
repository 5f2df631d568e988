// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>

#include "hone/core/check.h"
#include "hone/data/image/gzip.h"
#include "hone/data/image/readers.h"

namespace hone::data {
namespace {

namespace fs = std::filesystem;

constexpr Index kMaxBytes = Index{1} << 32;

Index read_big_endian(std::span<const std::uint8_t> bytes) {
  Index value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | bytes[static_cast<std::size_t>(i)];
  return value;
}

void check_head(std::span<const std::uint8_t> begin, Index dimensions, std::string_view where) {
  const Index magic = 0x800 + dimensions;
  const bool is_short = static_cast<Index>(begin.size()) < 4 + 4 * dimensions;
  if (!is_short && read_big_endian(begin) == magic) return;
  fail_corrupt(
      where,
      concat("an IDX file of unsigned bytes in ", dimensions, " dimensions (magic number ", magic,
             ")"),
      is_short ? concat(begin.size(), " bytes") : concat("magic number ", read_big_endian(begin)));
}

// The path of the file or of its .gz; empty if there is neither.
fs::path find_file(const fs::path& folder, const std::string& name) {
  std::error_code ignored;
  for (const std::string& candidate : {name, name + ".gz"}) {
    if (fs::exists(folder / candidate, ignored)) return folder / candidate;
  }
  return {};
}

struct LabeledIdx {
  ImageShape shape;
  std::vector<std::uint8_t> labels, pixels;
};

// Reads at most about twice the size that the header implies, so that errors can name the excess.
IdxArray read_idx(const fs::path& path, Index dimensions) {
  const Index head = 4 + 4 * dimensions;
  const std::vector<std::uint8_t> begin = read_begin(path, head);
  check_head(begin, dimensions, path.string());
  Index most = 1;
  for (Index at = 4; at + 4 <= static_cast<Index>(begin.size()); at += 4) {
    most =
        checked_mul(most, read_big_endian(std::span(begin).subspan(static_cast<std::size_t>(at))),
                    path.string());
  }
  constexpr Index kSlack = Index{1} << 20;
  most =
      std::min(checked_add(checked_mul(most, 2, path.string()), kSlack, path.string()), kMaxBytes);
  return parse_idx(read_plain_or_gzip(path, most), dimensions, path.string());
}

LabeledIdx read_pair(const fs::path& images_path, const fs::path& labels_path) {
  IdxArray images = read_idx(images_path, 3), labels = read_idx(labels_path, 1);
  if (labels.sizes[0] != images.sizes[0]) {
    fail_corrupt(
        labels_path.string(),
        concat(images.sizes[0], " labels, one for each image of ", images_path.filename().string()),
        concat(labels.sizes[0]));
  }
  return {
      {1, images.sizes[1], images.sizes[2]}, std::move(labels.values), std::move(images.values)};
}

}  // namespace

IdxArray parse_idx(std::vector<std::uint8_t> file, Index dimensions, std::string_view where) {
  const std::span<const std::uint8_t> bytes(file);
  check_head(bytes, dimensions, where);
  const auto head = static_cast<std::size_t>(4 + 4 * dimensions);
  IdxArray out;
  Index values = 1;
  for (Index d = 0; d < dimensions; ++d) {
    out.sizes.push_back(read_big_endian(bytes.subspan(static_cast<std::size_t>(4 + 4 * d))));
    values = checked_mul(values, out.sizes.back(), where);
  }
  const auto found = static_cast<Index>(file.size() - head);
  if (values != found || values == 0) {
    if (values == 0) fail_corrupt(where, "The file has no values.");
    fail_corrupt(where, concat(values, " values"), concat(found));
  }
  file.erase(file.begin(), file.begin() + static_cast<Index>(head));
  out.values = std::move(file);
  return out;
}

std::optional<ImageCorpus> read_idx_folder(const fs::path& folder) {
  const auto find = [&](const char* name) { return find_file(folder, name); };
  const fs::path images = find("train-images-idx3-ubyte");
  if (images.empty()) return std::nullopt;
  const fs::path labels = find("train-labels-idx1-ubyte");
  if (labels.empty()) {
    fail(ErrorCategory::NotFound, (folder / "train-labels-idx1-ubyte").string(),
         "There are no labels for train-images-idx3-ubyte, neither plain nor as .gz.");
  }
  LabeledIdx train = read_pair(images, labels);
  ImageCorpus corpus;
  corpus.shape = train.shape;
  Index most = *std::max_element(train.labels.begin(), train.labels.end());
  const fs::path test_images = find("t10k-images-idx3-ubyte");
  const fs::path test_labels = find("t10k-labels-idx1-ubyte");
  if (test_images.empty() != test_labels.empty()) {
    const char* absent = test_images.empty() ? "t10k-images-idx3-ubyte" : "t10k-labels-idx1-ubyte";
    fail(ErrorCategory::NotFound, (folder / absent).string(),
         "This file is missing. Test data needs both t10k files.");
  }
  if (!test_images.empty()) {
    LabeledIdx test = read_pair(test_images, test_labels);
    if (test.shape != train.shape) {
      fail_corrupt(test_images.string(),
                   concat("images of ", train.shape.height, " x ", train.shape.width),
                   concat(test.shape.height, " x ", test.shape.width));
    }
    const Index most_test = *std::max_element(test.labels.begin(), test.labels.end());
    if (most_test > most) {
      fail_corrupt(test_labels.string(), concat("labels up to ", most), concat(most_test));
    }
    corpus.held_out = ImagePart(test.shape, std::move(test.labels), std::move(test.pixels));
  }
  for (Index label = 0; label <= most; ++label) corpus.classes.push_back(concat(label));
  corpus.train = ImagePart(train.shape, std::move(train.labels), std::move(train.pixels));
  return corpus;
}

}  // namespace hone::data
