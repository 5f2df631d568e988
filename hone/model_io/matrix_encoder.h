// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "hone/core/function_ref.h"
#include "hone/model_io/write_model.h"

namespace hone::model_io {

// Which stored row becomes row r of the written tensor. Only q and k change, and only between the
// two pairings of RoPE: inside each head, half-split row a*(d/2)+b is adjacent row 2b+a (a in {0,
// 1}, d the rotary dimensions); rows beyond d stay.
class RowOrder {
 public:
  RowOrder() = default;  // as stored
  RowOrder(const Architecture& architecture, std::string_view tensor, RopePairing wanted);
  Index source(Index row) const;
  bool is_identity() const { return head_dim_ == 0; }

 private:
  Index head_dim_ = 0, rotary_dims_ = 0;
  RopePairing wanted_ = RopePairing::HalfSplit;
};

// The type a matrix is stored in, where it is one of those: canonical codes on Q8_0's or Q4_0's
// grid count as that type.
std::optional<StoreType> stored_type(const StoredMatrix& matrix);

// The quantization of canonical codes that holds Q8_0 or Q4_0 code for code.
QuantSpec canonical_spec(StoreType type);

using ByteSink = FunctionRef<void(std::span<const std::byte>)>;

// Hands the tensor to `sink` row by row in the type's layout (Q8_0, Q4_0: GGUF blocks). A vector is
// one row, permuted inside. Copies where stored_type() is the type already.
// Error{InvalidArgument} for values that the type cannot hold.
void encode_tensor(const NamedMatrix& tensor, const RowOrder& order, StoreType type, ByteSink sink);

// A matrix in canonical codes; owns them.
struct CanonicalMatrix {
  std::vector<std::byte> codes, scales, zeros;
};
// Quantized matrices of any canonical spec: their codes with permuted rows.
CanonicalMatrix permute_canonical(const StoredMatrix& matrix, const RowOrder& order);
// Others: encoded to `type` (Q8_0 or Q4_0), in the layout of canonical_spec(type).
CanonicalMatrix encode_canonical(const NamedMatrix& tensor, const RowOrder& order, StoreType type);

}  // namespace hone::model_io
