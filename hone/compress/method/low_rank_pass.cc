// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/method/low_rank_pass.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "hone/compress/method/layer_pass.h"
#include "hone/compress/method/low_rank.h"
#include "hone/core/check.h"
#include "hone/core/format/matrix_type.h"
#include "hone/core/machine/trace.h"

namespace hone::compress {
namespace {

using model_io::NamedMatrix;

std::string name_of_pass(const LowRankPass& options) {
  const std::string size = options.rank > 0   ? concat("rank ", options.rank)
                           : options.loss > 0 ? concat("loss ", options.loss)
                                              : concat("ratio ", options.ratio);
  return concat("lowrank ", options.whitened ? "whitened " : "svd ", size);
}

class FactorPass final : public LayerPass {
 public:
  FactorPass(const LowRankPass& options, const Recipe& recipe)
      : LayerPass("lowrank", name_of_pass(options), options, recipe), options_(options) {}

  void check(const Model& model) const override;
  bool needs_inputs() const override { return options_.whitened; }
  double multiplications(const model_io::LayerProduct& product) const override;
  void plan(std::vector<PlannedMatrix>& matrices,
            const model_io::Architecture& architecture) const override;

 protected:
  std::vector<Index> products_to_observe(const Model& model, Index layer) const override;
  void change_layer(Model& model, Index layer, LayerInputs& inputs, Context& context,
                    PassRecord& record) const override;
  void summarize(const Model& before, const Model& after, PassRecord& record) const override;

 private:
  // The matrices of a product if they are to be factored; otherwise none, and the reason if the
  // pass names them.
  std::vector<Index> matrices(const Model& model, Index layer,
                              const model_io::LayerProduct& product, std::string* reason) const;
  // The rank for a product with these singular values squared; -1 if it would save nothing.
  Index rank_of(const model_io::LayerProduct& product, std::span<const double> squares) const;
  void replace(Model& model, Index layer, const model_io::LayerProduct& product,
               std::span<const Index> parts, const ThinFactors& factors, Context& context,
               PassRecord& record) const;

  LowRankPass options_;
};

std::vector<Index> FactorPass::matrices(const Model& model, Index layer,
                                        const model_io::LayerProduct& product,
                                        std::string* reason) const {
  const std::vector<Index> found = matrices_of(model, layer, product);
  if (found.size() != product.parts.size()) return {};  // factored already
  for (const Index at : found) {
    const NamedMatrix& tensor = model.tensors()[static_cast<std::size_t>(at)];
    if (!selection_.names(tensor)) return {};
    if (const std::string why = reason_to_keep_codes(tensor, requantize_); !why.empty()) {
      *reason = why;
      return {};
    }
  }
  return found;
}

void FactorPass::check(const Model& model) const {
  selection_.check(model, "lowrank");
  const int sizes = (options_.rank > 0) + (options_.ratio > 0) + (options_.loss > 0);
  HONE_REQUIRE(sizes == 1, "lowrank", "Give one of rank, ratio and loss.");
  std::string reason = "No product is named by this pass.";
  for (Index layer = 0; layer < model.architecture().layers; ++layer) {
    for (const auto& product : model_io::layer_products(model.architecture(), layer))
      if (!matrices(model, layer, product, &reason).empty()) return;
  }
  fail_argument("lowrank", concat("Nothing would change: ", reason));
}

double FactorPass::multiplications(const model_io::LayerProduct& product) const {
  const auto least = static_cast<double>(std::min(product.inputs, product.outputs));
  return 12 * least * least * least;  // of the eigenvalues
}

// By each matrix, which does not know that its product shares the first factor; a loss tells
// nothing before it is measured.
void FactorPass::plan(std::vector<PlannedMatrix>& matrices, const model_io::Architecture&) const {
  for (PlannedMatrix& planned : matrices) {
    if (!selection_.names(*planned.tensor) || role_of(*planned.tensor) != Role::Linear) continue;
    const double rank = options_.rank > 0 ? static_cast<double>(options_.rank)
                                          : options_.ratio * static_cast<double>(planned.cols);
    const double share =
        rank / static_cast<double>(planned.cols) + rank / static_cast<double>(planned.rows);
    if (rank > 0 && share < 1) planned.share = share;
  }
}

std::vector<Index> FactorPass::products_to_observe(const Model& model, Index layer) const {
  const auto products = model_io::layer_products(model.architecture(), layer);
  std::vector<Index> found;
  std::string reason;
  for (std::size_t p = 0; p < products.size(); ++p)
    if (!matrices(model, layer, products[p], &reason).empty())
      found.push_back(static_cast<Index>(p));
  return found;
}

Index FactorPass::rank_of(const model_io::LayerProduct& product,
                          std::span<const double> squares) const {
  Index rank = options_.rank;
  if (options_.ratio > 0) rank = std::llround(options_.ratio * static_cast<double>(product.inputs));
  if (options_.loss > 0) {
    const double all = std::accumulate(squares.begin(), squares.end(), 0.0);
    double left = all;
    for (rank = 0; rank < std::ssize(squares) && left > options_.loss * all; ++rank)
      left -= squares[static_cast<std::size_t>(rank)];
  }
  const Index step = rank >= 32 ? 32 : 16;
  rank = std::max(step, round_up(rank, step));
  const bool saves = rank * (product.inputs + product.outputs) < product.inputs * product.outputs;
  return saves && rank <= std::ssize(squares) ? rank : -1;
}

void FactorPass::replace(Model& model, Index layer, const model_io::LayerProduct& product,
                         std::span<const Index> parts, const ThinFactors& factors, Context& context,
                         PassRecord& record) const {
  const std::string name = model_io::layer_name(layer, product.name);
  const StoredMatrix like = model.tensors()[static_cast<std::size_t>(parts.front())].matrix;
  Index before = 0, after = 0, first = 0;
  const auto store = [&](const StoredMatrix& type, std::span<const float> values, Index rows,
                         Index cols, const std::string& tensor) {
    EncodedMatrix out = store_like(type, {values, rows, cols, tensor}, context.executor);
    after += out.stored.stored_bytes();
    return out;
  };
  for (const Index at : parts) {
    const NamedMatrix part = model.tensors()[static_cast<std::size_t>(at)];
    const auto values =
        std::span(factors.b).subspan(static_cast<std::size_t>(first * factors.rank),
                                     static_cast<std::size_t>(part.matrix.rows * factors.rank));
    before += part.matrix.stored_bytes();
    first += part.matrix.rows;
    model.replace(at, store(part.matrix, values, part.matrix.rows, factors.rank, part.name),
                  part.matrix.act_int8);
  }
  model.add(name + ".a", store(like, factors.a, factors.rank, product.inputs, name + ".a"),
            like.act_int8);
  model.add_factored(
      {.name = name, .mode = model_io::FactoredLayer::Mode::Projected, .rank = factors.rank});
  record.evidence.push_back({{"tensor", name},
                             {"shape", {product.outputs, product.inputs}},
                             {"rank", factors.rank},
                             {"output_error", factors.loss},
                             {"bytes_before", before},
                             {"bytes_after", after}});
  record.bytes_before += before;
  record.bytes_after += after;
}

void FactorPass::change_layer(Model& model, Index layer, LayerInputs& inputs, Context& context,
                              PassRecord& record) const {
  const auto products = model_io::layer_products(model.architecture(), layer);
  for (std::size_t p = 0; p < products.size(); ++p) {
    throw_if_cancelled(context);
    std::string reason;
    const std::vector<Index> parts = matrices(model, layer, products[p], &reason);
    const auto keep = [&](const std::string& why) {
      const std::vector<Index> all = matrices_of(model, layer, products[p]);
      record.kept.push_back(kept_row(model.tensors()[static_cast<std::size_t>(all.front())], why));
    };
    if (parts.empty()) {
      if (!reason.empty()) keep(reason);
      continue;
    }
    std::vector<float> weights;
    for (const Index at : parts) {
      const std::vector<float> values =
          values_of(model.tensors()[static_cast<std::size_t>(at)].matrix);
      weights.insert(weights.end(), values.begin(), values.end());
    }
    bool saves = true;
    const ThinFactors factors = factor_matrix(
        {weights, products[p].outputs, products[p].inputs, products[p].name},
        inputs[p] ? &*inputs[p] : nullptr,
        [&](std::span<const double> squares) {
          const Index rank = rank_of(products[p], squares);
          saves = rank > 0;
          return saves ? rank : Index{1};
        },
        context.executor);
    inputs[p].reset();
    if (saves) {
      replace(model, layer, products[p], parts, factors, context, record);
    } else {
      keep("factors of that rank would have no fewer weights");
    }
  }
}

void FactorPass::summarize(const Model& before, const Model& after, PassRecord& record) const {
  record.statistics = removal_statistics(options_.whitened ? "whitened" : "svd", before, after);
}

}  // namespace

std::unique_ptr<Pass> make_pass(const LowRankPass& options, const Recipe& recipe) {
  return std::make_unique<FactorPass>(options, recipe);
}

}  // namespace hone::compress
