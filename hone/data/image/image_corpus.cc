// SPDX-License-Identifier: Apache-2.0
#include "hone/data/image/image_corpus.h"

#include <algorithm>
#include <array>
#include <stop_token>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/file/sha256.h"
#include "hone/data/hold_out.h"
#include "hone/data/image/readers.h"

namespace hone::data {
namespace {

// Hashes pixels and labels in pieces of 256 images, and then the hashes of the pieces.
std::string hash_part(const ImagePart& part, const ImageShape& shape, const std::stop_token& stop,
                      Executor& executor) {
  constexpr Index kPiece = 256;
  std::vector<std::string> pieces(static_cast<std::size_t>(ceil_div(part.size(), kPiece)));
  executor.parallel_for(part.size(), kPiece, [&](Index begin, Index end, int) {
    std::vector<std::uint8_t> planes(static_cast<std::size_t>(shape.values()));
    Sha256 piece;
    for (Index i = begin; i < end; ++i) {
      check_not_stopped(part, stop);
      part.read(i, planes);
      piece.add(std::as_bytes(std::span(planes)));
      const std::array label = {static_cast<std::byte>(part.label(i) & 0xff),
                                static_cast<std::byte>(part.label(i) >> 8)};
      piece.add(label);
    }
    pieces[static_cast<std::size_t>(begin / kPiece)] = piece.hex();
  });
  std::string text;
  for (const std::string& piece : pieces) text += piece;
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

ImagePart ImagePart::append(const ImagePart& other) const {
  if (size() == 0) return other;
  if (other.size() == 0) return *this;
  HONE_REQUIRE(shape_ == other.shape_, "ImagePart", "The images of both parts have one shape.");
  std::vector<std::uint16_t> labels = labels_;
  labels.insert(labels.end(), other.labels_.begin(), other.labels_.end());
  if (in_memory() && other.in_memory()) {
    std::vector<std::uint8_t> pixels = pixels_;
    pixels.insert(pixels.end(), other.pixels_.begin(), other.pixels_.end());
    return {shape_, std::move(labels), std::move(pixels)};
  }
  return {shape_, std::move(labels),
          [first = *this, other](Index index, std::span<std::uint8_t> planes) {
            if (index < first.size()) return first.read(index, planes);
            other.read(index - first.size(), planes);
          }};
}

void check_not_stopped(const ImagePart& part, const std::stop_token& stop) {
  if (!part.in_memory() && stop.stop_requested()) {
    throw Error(ErrorCategory::Cancelled, "[images] Reading was interrupted.");
  }
}

std::string hash_images(const ImageCorpus& corpus, const std::stop_token& stop,
                        Executor& executor) {
  return sha256_hex_of_text(concat(corpus.shape.channels, ' ', corpus.shape.height, ' ',
                                   corpus.shape.width, ' ',
                                   hash_part(corpus.train, corpus.shape, stop, executor),
                                   hash_part(corpus.held_out, corpus.shape, stop, executor)));
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
  if (options.parts == ImageParts::All) {
    corpus.held_out = corpus.train.append(corpus.held_out);
  } else if (corpus.held_out.size() == 0) {
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
  if (options.parts != ImageParts::Both) corpus.train = {};
  corpus.name = std::filesystem::absolute(path).lexically_normal().filename().string();
  if (corpus.name.empty()) {
    corpus.name = std::filesystem::absolute(path).lexically_normal().parent_path().filename();
  }
  if (options.parts != ImageParts::Both) return std::move(corpus);
  corpus.hash = hash_images(corpus, options.stop, executor);
  return std::move(corpus);
}

}  // namespace hone::data
