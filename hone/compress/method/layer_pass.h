// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hone/compress/pass.h"
#include "hone/compress/recipe.h"
#include "hone/core/function_ref.h"
#include "hone/infer/capture.h"
#include "hone/kernels/linalg/gram.h"
#include "hone/model_io/tensor_plan.h"

namespace hone::compress {

// The second moments of the inputs of a layer's products, by place in model_io::layer_products().
using LayerInputs = std::vector<std::optional<kernels::Gram>>;

// The matrices that globs name.
struct Selection {
  std::vector<std::string> keep, apply, except;

  bool names(const model_io::NamedMatrix& tensor) const;
  // Throws Error{InvalidArgument} that names `op` for a glob of apply or except that matches no
  // tensor of the model.
  void check(const Model& model, std::string_view op) const;
};
bool matches_any(const std::vector<std::string>& globs, const std::string& name);
// Throws Error{InvalidArgument} unless the glob matches a tensor.
void check_glob(const Model& model, const std::string& glob, std::string_view op);

bool is_quantized(const model_io::NamedMatrix& tensor);
// Why a quantized matrix is not changed unless the recipe allows it; empty for one that is not
// quantized, and if the recipe does allow it.
std::string reason_to_keep_codes(const model_io::NamedMatrix& tensor, bool requantize);
Json kept_row(const model_io::NamedMatrix& tensor, const std::string& reason);

// Why a pass would leave a matrix as it is: empty if it would change it, nothing if it does not
// name it.
using ReasonToKeep = std::optional<std::string>;
// Throws Error{InvalidArgument} that names `op` unless the pass would change a matrix.
void check_use(const Model& model, std::string_view op,
               FunctionRef<ReasonToKeep(const model_io::NamedMatrix&)> reason_to_keep);

// The suite's statistics of a pass that makes a model smaller.
Json removal_statistics(std::string_view method, const Model& before, const Model& after);

// The matrices of a product, by position in model.tensors(): if it is projected, the one that
// projects comes first.
std::vector<Index> matrices_of(const Model& model, Index layer,
                               const model_io::LayerProduct& product);

// The products of a layer that have a matrix for which `wanted` is true; it gets the position in
// model.tensors().
std::vector<Index> products_with(const Model& model, Index layer, FunctionRef<bool(Index)> wanted);

// Calls visit(inputs, matrices) for the matrices of a product that share inputs, whose second
// moments are null if `inputs` is: all of them, or of a projected product first the one that
// projects, then those that read what it makes, as it is by then.
using VisitMatrices = FunctionRef<void(const kernels::Gram*, std::span<const Index>)>;
void for_matrices(const Model& model, Index layer, const model_io::LayerProduct& product,
                  const kernels::Gram* inputs, Executor& executor, VisitMatrices visit);

// A pass that changes one layer after another, so that later layers see what earlier ones became.
// Each layer is a step of context.steps. What is common to such passes: the walk through the
// calibration text, rollback, times, quality and gate.
class LayerPass : public Pass {
 public:
  PassRecord apply(Model& model, Context& context) final;

 protected:
  // `options` has the pass's globs.
  template <class Options>
  LayerPass(std::string family, std::string name, const Options& options, const Recipe& recipe)
      : selection_{recipe.keep_float, options.apply, options.except},
        requantize_(recipe.requantize),
        family_(std::move(family)),
        name_(std::move(name)),
        gate_(recipe.gate) {}

  // The products of a layer whose inputs change_layer() needs, if needs_inputs() is true.
  virtual std::vector<Index> products_to_observe(const Model& model, Index layer) const = 0;
  // Called before the first layer.
  virtual void begin(const Model& /*model*/, Context& /*context*/) {}
  virtual void change_layer(Model& model, Index layer, LayerInputs& inputs, Context& context,
                            PassRecord& record) const = 0;
  // Changes what is in no layer.
  virtual void change_rest(Model& /*model*/, Context& /*context*/, PassRecord& /*record*/) const {}
  // Called after everything has changed.
  virtual void summarize(const Model& /*before*/, const Model& /*after*/,
                         PassRecord& /*record*/) const {}
  // Whether the products of changed matrices take another time.
  virtual bool changes_speed() const { return true; }

  const Selection selection_;
  const bool requantize_;

 private:
  void change(Model& model, Context& context, PassRecord& record);
  void change_step(Model& model, Index layer, infer::LayerWalk* walk, Context& context,
                   PassRecord& record) const;
  LayerInputs observe(const Model& model, Index layer, infer::LayerWalk& walk,
                      Context& context) const;

  std::string family_, name_;
  Gate gate_;
};

// Measures a changed model: the times of products, the quality, and the gates, which may restore
// `before`.
void finish_pass(const Gate& gate, bool times, const Model& before, Model& model, Context& context,
                 PassRecord& record);

}  // namespace hone::compress
