// SPDX-License-Identifier: Apache-2.0
#include "hone/data/image/image_corpus.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/sha256.h"
#include "hone/data/hold_out.h"
#include "hone/data/image/readers.h"

namespace hone::data {
namespace {

// Hashes all pixels and labels piece by piece, without copying them as a whole.
std::string hash_part(const ImagePart& part, const ImageShape& shape,
                      const std::atomic<bool>* stop) {
  std::string text;
  std::vector<std::uint8_t> planes(static_cast<std::size_t>(shape.values()));
  constexpr Index kPiece = 256;
  std::vector<std::byte> piece;
  for (Index i = 0; i < part.size(); ++i) {
    check_not_stopped(part, stop);
    part.read(i, planes);
    const auto* bytes = reinterpret_cast<const std::byte*>(planes.data());
    piece.insert(piece.end(), bytes, bytes + planes.size());
    piece.push_back(static_cast<std::byte>(part.label(i) & 0xff));
    piece.push_back(static_cast<std::byte>(part.label(i) >> 8));
    if (i % kPiece == kPiece - 1 || i + 1 == part.size()) {
      text += sha256_hex(piece);
      piece.clear();
    }
  }
  return sha256_hex_of_text(text);
}

}  // namespace

ImagePart::ImagePart(ImageShape shape, std::vector<std::uint8_t> labels,
                     std::vector<std::uint8_t> pixels)
    : ImagePart(shape, std::vector<std::uint16_t>(labels.begin(), labels.end()),
                std::move(pixels)) {}

ImagePart::ImagePart(ImageShape shape, std::vector<std::uint16_t> labels,
                     std::vector<std::uint8_t> pixels)
    : shape_(shape), labels_(std::move(labels)), pixels_(std::move(pixels)) {
  HONE_CHECK(static_cast<Index>(pixels_.size()) == size() * shape_.values(), "ImagePart",
             concat(size() * shape_.values(), " bytes of pixels"), pixels_.size());
}

ImagePart::ImagePart(ImageShape shape, std::vector<std::uint16_t> labels, Decoder decode)
    : shape_(shape), labels_(std::move(labels)), decode_(std::move(decode)) {}

void ImagePart::read(Index index, std::span<std::uint8_t> planes) const {
  HONE_CHECK(index >= 0 && index < size() && static_cast<Index>(planes.size()) == shape_.values(),
             "ImagePart",
             concat("an index below ", size(), " and memory for ", shape_.values(), " values"),
             concat(index, " and ", planes.size()));
  if (decode_) return decode_(index, planes);
  std::copy_n(pixels_.begin() + index * shape_.values(), planes.size(), planes.begin());
}

ImagePart ImagePart::select(const std::vector<Index>& indices) const {
  std::vector<std::uint16_t> labels;
  for (const Index index : indices) labels.push_back(static_cast<std::uint16_t>(label(index)));
  if (decode_) {
    return {shape_, std::move(labels),
            [decode = decode_, indices](Index index, std::span<std::uint8_t> planes) {
              decode(indices[static_cast<std::size_t>(index)], planes);
            }};
  }
  const auto bytes = static_cast<std::size_t>(shape_.values());
  std::vector<std::uint8_t> pixels(indices.size() * bytes);
  for (std::size_t i = 0; i < indices.size(); ++i) {
    read(indices[i], std::span(pixels).subspan(i * bytes, bytes));
  }
  return {shape_, std::move(labels), std::move(pixels)};
}

void check_not_stopped(const ImagePart& part, const std::atomic<bool>* stop) {
  if (!part.in_memory() && stop != nullptr && *stop) {
    throw Error(ErrorCategory::Cancelled, "[images] Reading was interrupted.");
  }
}

std::string hash_images(const ImageCorpus& corpus, const std::atomic<bool>* stop) {
  return sha256_hex_of_text(concat(
      corpus.shape.channels, ' ', corpus.shape.height, ' ', corpus.shape.width, ' ',
      hash_part(corpus.train, corpus.shape, stop), hash_part(corpus.held_out, corpus.shape, stop)));
}

ImageCorpus load_images(const std::filesystem::path& path, const ImageOptions& options,
                        Executor& executor) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) {
    const bool exists = std::filesystem::exists(path, error);
    fail(exists ? ErrorCategory::CorruptFile : ErrorCategory::NotFound, path.string(),
         exists ? "Images are read from a folder, but this is a file."
                : "There is no such folder of images.");
  }
  std::optional<ImageCorpus> found = read_idx_folder(path);
  if (!found) found = read_cifar_folder(path);
  if (!found) found = read_image_folder(path, options, executor);
  ImageCorpus& corpus = *found;
  if (corpus.held_out.size() == 0) {
    std::vector<Index> kept, held_out;
    for (Index i = 0; i < corpus.train.size(); ++i) {
      (i % kHoldOutEvery == kHoldOutEvery - 1 ? held_out : kept).push_back(i);
    }
    if (held_out.empty()) {
      fail_corrupt(path.string(),
                   concat("at least ", kHoldOutEvery, " images, so that some can be held out"),
                   concat(corpus.train.size()));
    }
    corpus.held_out = corpus.train.select(held_out);
    corpus.train = corpus.train.select(kept);
  }
  if (options.held_out_only) corpus.train = {};
  corpus.name = std::filesystem::absolute(path).lexically_normal().filename().string();
  if (corpus.name.empty()) {
    corpus.name = std::filesystem::absolute(path).lexically_normal().parent_path().filename();
  }
  if (options.held_out_only) return std::move(corpus);
  corpus.hash = hash_images(corpus, options.stop);
  return std::move(corpus);
}

}  // namespace hone::data
