// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "hone/core/thread/executor.h"
#include "hone/data/image/image.h"

namespace hone::data {

// Labeled images of one size, held in memory or decoded on every read.
class ImagePart {
 public:
  using Decoder = std::function<void(Index index, std::span<std::uint8_t> planes)>;

  ImagePart() = default;
  // `pixels` are the planes [channels, height, width] of one image after another.
  ImagePart(ImageShape shape, std::vector<std::uint8_t> labels, std::vector<std::uint8_t> pixels);
  ImagePart(ImageShape shape, std::vector<std::uint16_t> labels, std::vector<std::uint8_t> pixels);
  ImagePart(ImageShape shape, std::vector<std::uint16_t> labels, Decoder decode);

  Index size() const { return static_cast<Index>(labels_.size()); }
  Index label(Index index) const { return labels_[static_cast<std::size_t>(index)]; }
  bool in_memory() const { return decode_ == nullptr; }
  // Reads the planes of an image. Thread-safe.
  void read(Index index, std::span<std::uint8_t> planes) const;

  // A part with the images of these indices.
  ImagePart select(const std::vector<Index>& indices) const;
  // A part with these images and then those of `other`, which must have the same shape.
  ImagePart append(const ImagePart& other) const;

 private:
  ImageShape shape_;
  std::vector<std::uint16_t> labels_;
  std::vector<std::uint8_t> pixels_;
  Decoder decode_;
};

// For loops over images: Error{Cancelled} when stop is not null and true, and reading them takes
// long because they are not in memory.
void check_not_stopped(const ImagePart& part, const std::stop_token& stop);

struct ImageCorpus {
  std::string name;
  ImageShape shape;
  std::vector<std::string> classes;  // indexed by label
  ImagePart train, held_out;
  Index broken = 0;  // number of files that could not be decoded and were skipped
  std::string hash;  // SHA-256 over shape, labels and pixels of both parts
};

enum class ImageParts {
  Both,
  HeldOut,  // the training part stays empty, and there is no hash
  All,      // the same, and every image counts as held out
};

struct ImageOptions {
  Index side = 0;  // side of the squares that a folder's images become; 0 means 64; ignored by IDX
                   // and CIFAR-10
  Index memory_bytes =
      Index{1} << 30;  // if a folder takes more, its images are decoded on every read
  ImageParts parts = ImageParts::Both;
  std::stop_token stop = {};  // requested: Error{Cancelled}
};

// Loads a folder, which may be:
//  - IDX (MNIST and similar): train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-…, each plain
//    or .gz;
//  - CIFAR-10: data_batch_1.bin … data_batch_5.bin, test_batch.bin, batches.meta.txt, also in a
//    folder cifar-10-batches-bin;
//  - otherwise an ImageFolder: a folder of images for each class, below train/ and test/ (or val/,
//    valid/, validation/) if these exist. The images of a class may lie in further folders.
// If the data set itself has no held-out part, every tenth image is held out, in an ImageFolder of
// each class. Files of an ImageFolder that cannot be decoded are skipped, counted and named in the
// log, as are class folders without an image and classes of which none is held out. Throws
// Error{NotFound}, also for a folder that cannot be read and for missing batches of CIFAR-10, or
// Error{CorruptFile} that names the file, says that no image is left, names the classes of which
// none to train on is, or says that what would be classes are parts or data sets: their images lie
// in train/ or test/, or in folders of which two or more have the same names in two of them.
ImageCorpus load_images(const std::filesystem::path& path, const ImageOptions& options,
                        Executor& executor);

// Image files as squares of this shape, with one channel (luma of ITU-R BT.601, as Pillow's "L") or
// three, decoded on every read. All labels are 0. Reading an image throws as decode_image() does.
ImagePart read_image_files(std::vector<std::filesystem::path> paths, ImageShape shape);

}  // namespace hone::data
