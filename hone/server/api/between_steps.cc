// SPDX-License-Identifier: Apache-2.0
#include "hone/server/api/between_steps.h"

#include <memory>
#include <utility>

namespace hone::server {
namespace {

void post_piece(infer::Engine& engine, std::shared_ptr<const PieceWork> work, std::size_t i) {
  engine.post([work = std::move(work), i](infer::Engine& own) {
    try {
      if (!work->run(own, i)) return;
    } catch (...) {
      return work->end(std::current_exception());
    }
    if (i + 1 < work->pieces) return post_piece(own, work, i + 1);
    work->end(nullptr);
  });
}

}  // namespace

void post_pieces(infer::Engine& engine, PieceWork work) {
  post_piece(engine, std::make_shared<const PieceWork>(std::move(work)), 0);
}

}  // namespace hone::server
