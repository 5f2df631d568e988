// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "hone/data/image/image_corpus.h"

namespace hone::data {

// One reader for each kind of folder; nothing where the folder is of another kind. Both parts may
// be without a held-out one; load_images adds that, the name and the hash.
std::optional<ImageCorpus> read_idx_folder(const std::filesystem::path& folder);
std::optional<ImageCorpus> read_cifar_folder(const std::filesystem::path& folder);
ImageCorpus read_image_folder(const std::filesystem::path& folder, const ImageOptions& options,
                              Executor& executor);

// An IDX file, unpacked: unsigned bytes in one dimension (labels) or three (images). `where` names
// it in Error{CorruptFile}.
struct IdxArray {
  std::vector<Index> sizes;
  std::vector<std::uint8_t> values;
};
IdxArray parse_idx(std::vector<std::uint8_t> file, Index dimensions, std::string_view where);

// A CIFAR-10 batch: records of a label below 10 and 3 planes of 32 x 32, appended.
void parse_cifar_batch(std::span<const std::uint8_t> file, std::string_view where,
                       std::vector<std::uint16_t>& labels, std::vector<std::uint8_t>& pixels);

}  // namespace hone::data
