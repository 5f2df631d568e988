// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <sstream>
#include <string>

#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "hone/core/file/mmap_file.h"
#include "hone/data/image/readers.h"

namespace hone::data {
namespace {

namespace fs = std::filesystem;

constexpr ImageShape kShape = {3, 32, 32};
constexpr std::size_t kRecord = 1 + 3 * 32 * 32;
constexpr Index kClasses = 10;
constexpr std::size_t kBatches = 5;
constexpr std::array<const char*, kClasses> kNames = {
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"};

std::vector<std::string> read_class_names(const fs::path& folder) {
  const fs::path path = folder / "batches.meta.txt";
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return {kNames.begin(), kNames.end()};
  std::vector<std::string> names;
  std::istringstream lines(read_text_file(path, 1 << 16));
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (!line.empty()) names.push_back(line);
  }
  if (static_cast<Index>(names.size()) != kClasses) {
    fail_corrupt(path.string(), concat(kClasses, " class names"), concat(names.size()));
  }
  return names;
}

std::string batch_name(std::size_t batch) { return concat("data_batch_", batch, ".bin"); }

std::vector<std::string> missing_batches(const fs::path& folder) {
  std::vector<std::string> out;
  for (std::size_t batch = 1; batch <= kBatches; ++batch) {
    std::error_code ignored;
    if (!fs::exists(folder / batch_name(batch), ignored)) out.push_back(batch_name(batch));
  }
  return out;
}

void append_batch(const fs::path& path, std::vector<std::uint16_t>& labels,
                  std::vector<std::uint8_t>& pixels) {
  const MmapFile file(path);
  const auto bytes = file.bytes();
  parse_cifar_batch({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()},
                    path.string(), labels, pixels);
}

ImageCorpus read_batches(const fs::path& folder) {
  ImageCorpus corpus;
  corpus.shape = kShape;
  corpus.classes = read_class_names(folder);
  std::vector<std::uint16_t> labels;
  std::vector<std::uint8_t> pixels;
  for (std::size_t batch = 1; batch <= kBatches; ++batch) {
    append_batch(folder / batch_name(batch), labels, pixels);
  }
  corpus.train = ImagePart(kShape, std::move(labels), std::move(pixels));
  std::error_code ignored;
  if (const fs::path path = folder / "test_batch.bin"; fs::exists(path, ignored)) {
    labels.clear();
    pixels.clear();
    append_batch(path, labels, pixels);
    corpus.held_out = ImagePart(kShape, std::move(labels), std::move(pixels));
  }
  return corpus;
}

}  // namespace

void parse_cifar_batch(std::span<const std::uint8_t> file, std::string_view where,
                       std::vector<std::uint16_t>& labels, std::vector<std::uint8_t>& pixels) {
  if (file.empty() || file.size() % kRecord != 0) {
    fail_corrupt(where, concat("a multiple of ", kRecord, " bytes"), concat(file.size(), " bytes"));
  }
  pixels.reserve(pixels.size() + file.size());
  for (std::size_t at = 0; at < file.size(); at += kRecord) {
    if (file[at] >= kClasses) {
      fail_corrupt(where, concat("a label below ", kClasses, " in record ", at / kRecord),
                   concat(static_cast<Index>(file[at])));
    }
    labels.push_back(file[at]);
    const auto planes = file.subspan(at + 1, kRecord - 1);
    pixels.insert(pixels.end(), planes.begin(), planes.end());
  }
}

std::optional<ImageCorpus> read_cifar_folder(const fs::path& folder) {
  for (const fs::path& inside : {folder, folder / "cifar-10-batches-bin"}) {
    const std::vector<std::string> missing = missing_batches(inside);
    if (missing.size() == kBatches) continue;
    if (!missing.empty()) {
      std::string names;
      for (const std::string& name : missing) names += concat(names.empty() ? "" : ", ", name);
      fail(ErrorCategory::NotFound, inside.string(),
           concat("CIFAR-10 has ", kBatches, " training batches, but there is no ", names, "."));
    }
    return read_batches(inside);
  }
  return std::nullopt;
}

}  // namespace hone::data
