// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/philox.h"
#include "hone/kernels/attention/linear_attention.h"
#include "tests/kernels/kernel_support.h"

namespace hone::kernels::test {

struct LinearCase {
  Index batch = 1, heads = 1, queries = 1, keys = 1, qk_dim = 8, v_dim = 8, features = 16;
  FeatureKind kind = FeatureKind::Softmax;
  bool causal = true;
  float eps = 0, size = 1;

  std::string text() const {
    return concat("batch ", batch, " heads ", heads, " queries ", queries, " keys ", keys, " dims ",
                  qk_dim, " and ", v_dim, " features ", features,
                  kind == FeatureKind::Relu ? " relu" : " softmax", causal ? " causal" : " all");
  }
};

// Random inputs of a call, and memory for its results.
struct LinearProblem {
  explicit LinearProblem(const LinearCase& c)
      : shape(c),
        q(random_values(c.batch * c.queries * c.heads * c.qk_dim, 1, c.size)),
        k(random_values(c.batch * c.keys * c.heads * c.qk_dim, 2, c.size)),
        v(random_values(c.batch * c.keys * c.heads * c.v_dim, 3)),
        omega(random_values(c.features * c.qk_dim, 4, 1.7f)),
        grad_out(random_values(c.batch * c.queries * c.heads * c.v_dim, 5)),
        out(grad_out.size(), -7.0f),
        grad_q(q.size(), -7.0f),
        grad_k(k.size(), -7.0f),
        grad_v(v.size(), -7.0f) {
    LinearAttentionArgs sizes = args();
    inverse_sums.resize(static_cast<std::size_t>(c.batch * c.heads * c.queries));
    checkpoints.resize(static_cast<std::size_t>(sizes.checkpoint_floats()));
  }

  LinearAttentionArgs args() {
    return {.batch = shape.batch,
            .heads = shape.heads,
            .queries = shape.queries,
            .keys = shape.keys,
            .qk_dim = shape.qk_dim,
            .v_dim = shape.v_dim,
            .features = shape.features,
            .kind = shape.kind,
            .eps = shape.eps,
            .causal = shape.causal,
            .q = q.data(),
            .k = k.data(),
            .v = v.data(),
            .omega = omega.data(),
            .key_mask = key_mask.get(),
            .query_mask = query_mask.get(),
            .out = out.data(),
            .inverse_sums = inverse_sums.data(),
            .checkpoints = checkpoints.data()};
  }
  LinearAttentionGradArgs grad_args() {
    return {.forward = args(),
            .grad_out = grad_out.data(),
            .grad_q = grad_q.data(),
            .grad_k = grad_k.data(),
            .grad_v = grad_v.data()};
  }
  // Admits about three quarters of the tokens; never the first key, so that causal rows start with
  // nothing to attend to.
  void draw_masks() {
    const auto draw = [](Index count, std::uint64_t seed) {
      PhiloxStream random(seed);
      auto mask = std::make_unique<bool[]>(static_cast<std::size_t>(count));
      for (Index i = 0; i < count; ++i) mask[static_cast<std::size_t>(i)] = random.below(4) != 0;
      return mask;
    };
    key_mask = draw(shape.batch * shape.keys, 6);
    query_mask = draw(shape.batch * shape.queries, 7);
    key_mask[0] = false;
  }

  const LinearCase shape;
  std::vector<float> q, k, v, omega, grad_out, out, grad_q, grad_k, grad_v, inverse_sums,
      checkpoints;
  std::unique_ptr<bool[]> key_mask, query_mask;
};

}  // namespace hone::kernels::test
