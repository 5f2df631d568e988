// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "hone/core/executor.h"
#include "hone/data/image/image.h"

namespace hone::data {

// Labeled images of one size, in memory or decoded whenever they are asked for.
class ImagePart {
 public:
  using Decoder = std::function<void(Index index, std::span<std::uint8_t> planes)>;

  ImagePart() = default;
  // `pixels`: planes [channels, height, width] of one image behind those of the other.
  ImagePart(ImageShape shape, std::vector<std::uint8_t> labels, std::vector<std::uint8_t> pixels);
  ImagePart(ImageShape shape, std::vector<std::uint16_t> labels, std::vector<std::uint8_t> pixels);
  ImagePart(ImageShape shape, std::vector<std::uint16_t> labels, Decoder decode);

  Index size() const { return static_cast<Index>(labels_.size()); }
  Index label(Index index) const { return labels_[static_cast<std::size_t>(index)]; }
  bool in_memory() const { return decode_ == nullptr; }
  // The planes of an image. From any thread.
  void read(Index index, std::span<std::uint8_t> planes) const;

  // A part with images taken by index.
  ImagePart select(const std::vector<Index>& indices) const;

 private:
  ImageShape shape_;
  std::vector<std::uint16_t> labels_;
  std::vector<std::uint8_t> pixels_;
  Decoder decode_;
};

struct ImageCorpus {
  std::string name;
  ImageShape shape;
  std::vector<std::string> classes;  // by label
  ImagePart train, held_out;
  Index broken = 0;  // files that were left out, each named in the log
  std::string hash;  // SHA-256 over shape, labels and pixels of both parts
};

struct ImageOptions {
  Index side = 0;  // images of a folder become squares of this side; 0: 64. Unread by others.
  Index memory_bytes = Index{1} << 30;      // a folder that takes more is decoded again and again
  bool held_out_only = false;               // nothing to train on is kept, or decoded; no hash
  const std::atomic<bool>* stop = nullptr;  // true: Error{Cancelled}
};

// What `path` is, a folder:
//  - IDX (MNIST and its kin): train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-…, each plain
//    or .gz;
//  - CIFAR-10: data_batch_1.bin and on, test_batch.bin, batches.meta.txt, also one folder below;
//  - else an ImageFolder: a folder of images for each class, below train/ and test/ (or val/) where
//    there are such.
// Held out is what the data set itself holds out; without: every tenth image, of a folder's classes
// each. Files of a folder that cannot be decoded are named in the log, counted, and left out.
// Error{NotFound}; Error{CorruptFile} naming the file, also where no image is left.
ImageCorpus load_images(const std::filesystem::path& path, const ImageOptions& options,
                        Executor& executor);

// Image files as squares of this shape, of one channel (luma of ITU-R BT.601, as Pillow's "L") or
// three, decoded whenever they are asked for; labels are 0. Reading one throws what decode_image
// does.
ImagePart read_image_files(std::vector<std::filesystem::path> paths, ImageShape shape);

}  // namespace hone::data
