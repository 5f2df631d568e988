// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "hone/core/format/gguf.h"
#include "hone/model_io/family/family.h"

namespace hone::model_io {

struct GgufModelKeys {
  Architecture architecture;  // without what only tensors say: vocabulary, tying, optional biases
  const Family* family = nullptr;
};

// Reads the keys of a model. Throws Error{Unsupported} that lists the known architectures,
// Error{CorruptFile} for missing keys.
GgufModelKeys read_gguf_architecture(const GgufFile& file, const std::string& where);
void write_gguf_architecture(const Architecture& architecture, GgufWriter& writer);

// GGUF stores Llama 3 scaling as divisors, base frequencies over scaled ones, in rope_freqs.weight.
// Returns those to write, empty if keys describe the scaling. hone adds the formula's parameters.
std::vector<float> write_frequency_divisors(const RopeSpec& rope, GgufWriter& writer);
// Replaces divisors by the formula if the file has its parameters and they yield these divisors,
// because other programs may have changed those.
void restore_llama3(const GgufFile& file, RopeSpec& rope);

}  // namespace hone::model_io
