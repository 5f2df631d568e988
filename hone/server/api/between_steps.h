// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <exception>
#include <functional>

#include "hone/infer/engine.h"

namespace hone::server {

// Work on the thread of the engine in pieces, so that texts go on between them.
struct PieceWork {
  std::size_t pieces = 0;
  // Does piece i; returns false to leave out the rest.
  std::function<bool(infer::Engine& engine, std::size_t i)> run;
  // Called on the engine's thread after the last piece, or with what a piece threw.
  std::function<void(const std::exception_ptr& error)> end;
};
// Posts one piece after the other: each runs between two steps of the engine.
void post_pieces(infer::Engine& engine, PieceWork work);

}  // namespace hone::server
