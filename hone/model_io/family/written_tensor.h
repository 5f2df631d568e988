// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "hone/model_io/family/family.h"
#include "hone/model_io/write_plan.h"

namespace hone::model_io {

// A tensor as a format stores it: one of hone's, or several stacked, perhaps transposed.
struct WrittenTensor {
  std::string name;  // in the file
  std::vector<const NamedMatrix*> parts;
  Index rows = 0, cols = 0;  // in the file; vectors have rows = 1
  bool is_vector = false, is_transposed = false;
};

// The tensors of a model in the order in which a format has them. Throws Error{InvalidArgument}
// that names `where` if the source's are not exactly those of the architecture.
std::vector<WrittenTensor> written_tensors(const ModelSource& source, FileFormat format,
                                           const std::string& where);

// How a format stores what the source's architecture may store otherwise: the order of rows of q
// and k, and the offset that readers of the format add to weights of norms.
struct StorageRules {
  const Architecture& architecture;
  RopePairing pairing = RopePairing::HalfSplit;
  double norm_offset = 0;
};
// Passes a tensor to `sink` in the type's layout.
void encode_written(const WrittenTensor& tensor, const StorageRules& rules, StoreType type,
                    ByteSink sink);
// The same for one of hone's tensors.
void encode_part(const NamedMatrix& tensor, const StorageRules& rules, StoreType type,
                 ByteSink sink);

}  // namespace hone::model_io
