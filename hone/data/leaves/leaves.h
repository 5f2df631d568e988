// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "hone/core/thread/executor.h"
#include "hone/data/image/image_corpus.h"
#include "hone/data/leaves/leaf_cues.h"

namespace hone::data {

// As the path of a data set it means these leaves.
inline constexpr std::string_view kLeavesName = "leaves";

// leaf_00, leaf_01, …: sorted names are in the order of labels.
std::vector<std::string> leaf_class_names(Index classes);

// The images of a split, class by class, drawn on every read.
ImagePart leaves_part(const LeavesOptions& options, LeafSplit split);

// The splits Train and Val as `train` and `held_out`, drawn once and kept in memory if that takes
// at most memory_bytes; of the other options of ImageOptions only `stop` counts.
ImageCorpus leaves_corpus(const LeavesOptions& options, const ImageOptions& image_options,
                          Executor& executor);

// Writes all splits that have images as PNG files: folder/train/leaf_00/0000.png and so on, which
// load_images() reads. The folder appears when it is complete. Throws Error{InvalidArgument} unless
// it is new or empty.
void write_leaves(const LeavesOptions& options, const std::filesystem::path& folder,
                  Executor& executor);

}  // namespace hone::data
