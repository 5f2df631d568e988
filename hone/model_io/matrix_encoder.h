// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "hone/core/function_ref.h"
#include "hone/model_io/write_model.h"

namespace hone::model_io {

// Maps rows of the written tensor to stored rows. Only q and k are permuted, and only between the
// two pairings of RoPE: within each head, half-split row a*(d/2)+b is adjacent row 2b+a (a in {0,
// 1}, d the rotary dimensions); rows beyond d stay in place.
class RowOrder {
 public:
  RowOrder() = default;  // as stored
  RowOrder(const Architecture& architecture, std::string_view tensor, RopePairing target);
  Index source(Index row) const;
  bool is_identity() const { return head_dim_ == 0; }

 private:
  Index head_dim_ = 0, rotary_dims_ = 0;
  RopePairing target_ = RopePairing::HalfSplit;
};

// The type that a matrix is stored in, if it is a StoreType. Canonical codes on the grid of Q8_0 or
// Q4_0 count as that type.
std::optional<StoreType> stored_type(const StoredMatrix& matrix);

// The spec whose canonical codes are those of Q8_0 or Q4_0.
QuantSpec canonical_spec(StoreType type);

using ByteSink = FunctionRef<void(std::span<const std::byte>)>;

// Passes the tensor to `sink` row by row in the type's layout (GGUF blocks for Q8_0 and Q4_0). A
// vector is one row, whose elements are permuted. Copies the data if stored_type() is already the
// type. Throws Error{CorruptFile} for values that the type cannot represent.
void encode_tensor(const NamedMatrix& tensor, const RowOrder& order, StoreType type, ByteSink sink);

// Passes the rows of a matrix of GGUF blocks to `sink` as they are.
void copy_blocks(const StoredMatrix& matrix, const RowOrder& order, ByteSink sink);

// A matrix that owns its canonical codes.
struct CanonicalMatrix {
  std::vector<std::byte> codes, scales, zeros;
};
// Copies a quantized matrix of any canonical spec with permuted rows.
CanonicalMatrix permute_canonical(const StoredMatrix& matrix, const RowOrder& order);
// Encodes any other matrix to `type` (Q8_0 or Q4_0) in the layout of canonical_spec(type).
CanonicalMatrix encode_canonical(const NamedMatrix& tensor, const RowOrder& order, StoreType type);

}  // namespace hone::model_io
