// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "hone/data/image/image_corpus.h"

namespace hone::data {

// One reader for each kind of folder; empty if the folder is of another kind. The held-out part may
// be empty: load_images() adds it, the name and the hash.
std::optional<ImageCorpus> read_idx_folder(const std::filesystem::path& folder);
std::optional<ImageCorpus> read_cifar_folder(const std::filesystem::path& folder);
ImageCorpus read_image_folder(const std::filesystem::path& folder, const ImageOptions& options,
                              Executor& executor);

// What ImageCorpus::hash says.
std::string hash_images(const ImageCorpus& corpus, const std::stop_token& stop, Executor& executor);

// The content of an IDX file: unsigned bytes in one dimension (labels) or three (images). `where`
// names the file in Error{CorruptFile}.
struct IdxArray {
  std::vector<Index> sizes;
  std::vector<std::uint8_t> values;
};
IdxArray parse_idx(std::vector<std::uint8_t> file, Index dimensions, std::string_view where);

// Appends a CIFAR-10 batch: records of a label below 10 and 3 planes of 32 x 32.
void parse_cifar_batch(std::span<const std::uint8_t> file, std::string_view where,
                       std::vector<std::uint16_t>& labels, std::vector<std::uint8_t>& pixels);

}  // namespace hone::data
