// SPDX-License-Identifier: Apache-2.0
#include "hone/data/leaves/leaves.h"

#include <algorithm>
#include <fstream>
#include <stop_token>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "hone/data/image/readers.h"
#include "hone/data/leaves/draw_leaf.h"

namespace hone::data {
namespace {

namespace fs = std::filesystem;

// `number` with as many digits as the largest number below `count` has, and at least `least`.
std::string padded(Index number, Index count, std::size_t least) {
  const std::string digits = std::to_string(number);
  const std::size_t length = std::max(least, std::to_string(count - 1).size());
  return std::string(length - digits.size(), '0') + digits;
}

Index images_of(const LeavesOptions& options, LeafSplit split) {
  switch (split) {
    case LeafSplit::Train:
      return options.train;
    case LeafSplit::Val:
      return options.val;
    default:
      return options.test;
  }
}

Image draw_image(const LeavesOptions& options, LeafSplit split, Index label, Index index) {
  return draw_leaf(cues_of_image(options, split, label, index), leaf_levels(options.classes),
                   options.size, leaf_key(options, split, label, index));
}

ImagePart keep_in_memory(const ImagePart& part, const ImageShape& shape,
                         const std::stop_token& stop, Executor& executor) {
  const auto bytes = static_cast<std::size_t>(shape.values());
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(part.size()) * bytes);
  std::vector<std::uint16_t> labels;
  for (Index i = 0; i < part.size(); ++i) {
    labels.push_back(static_cast<std::uint16_t>(part.label(i)));
  }
  executor.parallel_for(part.size(), 1, [&](Index begin, Index end, int) {
    for (Index i = begin; i < end && !stop.stop_requested(); ++i) {
      part.read(i, std::span(pixels).subspan(static_cast<std::size_t>(i) * bytes, bytes));
    }
  });
  if (stop.stop_requested()) {
    throw Error(ErrorCategory::Cancelled, "[leaves] Drawing was interrupted.");
  }
  return {shape, std::move(labels), std::move(pixels)};
}

void write_png(const fs::path& path, const Image& image) {
  const std::vector<std::byte> file = encode_png(image);
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(file.data()), static_cast<std::streamsize>(file.size()));
  out.close();
  if (!out) fail(ErrorCategory::Io, path.string(), "The file cannot be written.");
}

}  // namespace

std::vector<std::string> leaf_class_names(Index classes) {
  std::vector<std::string> out;
  for (Index label = 0; label < classes; ++label) {
    out.push_back("leaf_" + padded(label, classes, 2));
  }
  return out;
}

ImagePart leaves_part(const LeavesOptions& options, LeafSplit split) {
  check_leaves(options);
  const Index each = images_of(options, split);
  std::vector<std::uint16_t> labels(static_cast<std::size_t>(each * options.classes));
  for (std::size_t i = 0; i < labels.size(); ++i) {
    labels[i] = static_cast<std::uint16_t>(static_cast<Index>(i) / each);
  }
  return {{3, options.size, options.size},
          std::move(labels),
          [options, split, each](Index index, std::span<std::uint8_t> planes) {
            const Image image = draw_image(options, split, index / each, index % each);
            const std::size_t plane = planes.size() / 3;
            for (std::size_t i = 0; i < planes.size(); ++i) {
              planes[i] = image.pixels[3 * (i % plane) + i / plane];
            }
          }};
}

ImageCorpus leaves_corpus(const LeavesOptions& options, const ImageOptions& image_options,
                          Executor& executor) {
  ImageCorpus corpus;
  corpus.name = kLeavesName;
  corpus.shape = {3, options.size, options.size};
  corpus.classes = leaf_class_names(options.classes);
  corpus.train = leaves_part(options, LeafSplit::Train);
  corpus.held_out = leaves_part(options, LeafSplit::Val);
  const Index images = corpus.train.size() + corpus.held_out.size();
  if (images <= image_options.memory_bytes / corpus.shape.values()) {
    for (ImagePart* const part : {&corpus.train, &corpus.held_out}) {
      *part = keep_in_memory(*part, corpus.shape, image_options.stop, executor);
    }
  }
  corpus.hash = hash_images(corpus, image_options.stop, executor);
  return corpus;
}

void write_leaves(const LeavesOptions& options, const fs::path& folder, Executor& executor) {
  check_leaves(options);
  AtomicFolder out(folder, [](const fs::path& old) {
    std::error_code ignored;
    HONE_REQUIRE(fs::is_directory(old, ignored) && fs::is_empty(old, ignored), old.string(),
                 "Images are written to a new or an empty folder; this one is not.");
  });
  const std::vector<std::string> names = leaf_class_names(options.classes);
  for (const auto& [split, name] :
       {std::pair{LeafSplit::Train, "train"}, std::pair{LeafSplit::Val, "val"},
        std::pair{LeafSplit::Test, "test"}}) {
    const Index each = images_of(options, split);
    if (each == 0) continue;
    for (const std::string& class_name : names) {
      fs::create_directories(out.staging() / name / class_name);
    }
    executor.parallel_for(
        each * options.classes, 1,
        [&, part = split, where = out.staging() / name](Index begin, Index end, int) {
          for (Index i = begin; i < end; ++i) {
            const Index label = i / each, index = i % each;
            write_png(
                where / names[static_cast<std::size_t>(label)] / (padded(index, each, 4) + ".png"),
                draw_image(options, part, label, index));
          }
        });
  }
  out.commit();
}

}  // namespace hone::data
