// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/method/structure_pass.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "hone/compress/allocate/divergence.h"
#include "hone/compress/method/layer_pass.h"
#include "hone/compress/method/remove_inputs.h"
#include "hone/compress/step_store.h"
#include "hone/core/check.h"
#include "hone/core/format/matrix_type.h"
#include "hone/core/machine/trace.h"
#include "hone/core/progress.h"

namespace hone::compress {
namespace {

using model_io::NamedMatrix;

constexpr Index kMeasuredTokens = 512;  // for the choice of layers

std::string name_of_pass(const StructurePass& options) {
  return concat("structure ", name_of(options.part), " ", options.ratio,
                options.repair || options.part == Part::Layers ? "" : " norepair");
}

// Copies rows of bytes.
Buffer take_bytes(std::span<const std::byte> bytes, Index all, std::span<const Index> rows) {
  const Index size = std::ssize(bytes) / all;
  Buffer out(size * std::ssize(rows));
  for (std::size_t i = 0; i < rows.size(); ++i)
    std::memcpy(out.data() + static_cast<Index>(i) * size, bytes.data() + rows[i] * size,
                static_cast<std::size_t>(size));
  return out;
}

// Some rows of a matrix, or some elements of a dense vector, as they are stored.
EncodedMatrix take_rows(const NamedMatrix& tensor, std::span<const Index> rows) {
  const StoredMatrix& from = tensor.matrix;
  const Index all = tensor.is_vector ? from.cols : from.rows;
  EncodedMatrix out;
  out.stored = from;
  (tensor.is_vector ? out.stored.cols : out.stored.rows) = std::ssize(rows);
  if (from.layout != WeightLayout::Canonical) {
    out.codes = take_bytes(from.bytes, all, rows);
    out.stored.bytes = out.codes.span();
    return out;
  }
  const bool shared = from.quant.spec.span == ScaleSpan::Tensor;
  const std::vector<Index> first{0};
  const auto take = [&](std::span<const std::byte> bytes, bool is_shared) {
    if (bytes.empty()) return Buffer();
    return is_shared ? take_bytes(bytes, 1, first) : take_bytes(bytes, all, rows);
  };
  out.codes = take(from.quant.codes, false);
  out.scales = take(from.quant.scales, shared);
  out.zeros = take(from.quant.zeros, shared);
  out.stored.quant = {.spec = from.quant.spec,
                      .rows = std::ssize(rows),
                      .cols = from.cols,
                      .codes = out.codes.span(),
                      .scales = out.scales.span(),
                      .zeros = out.zeros.span()};
  return out;
}

// How many units of a whole go, and in what groups.
struct Cut {
  Index unit = 1, groups = 1, removed = 0;

  // The columns of the matrix behind the part that go.
  Index columns() const { return unit * groups * removed; }
};

Json statistics_of(const StructurePass& options, const Model& before, const Model& after) {
  Json statistics = removal_statistics(name_of(options.part), before, after);
  statistics["target_sparsity"] = options.ratio;
  return statistics;
}

class WidthPass final : public LayerPass {
 public:
  WidthPass(const StructurePass& options, const Recipe& recipe)
      : LayerPass("structure", name_of_pass(options), options, recipe), options_(options) {}

  void check(const Model& model) const override;
  bool needs_inputs() const override { return true; }
  double multiplications(const model_io::LayerProduct& product) const override;
  void plan(std::vector<PlannedMatrix>& matrices,
            const model_io::Architecture& architecture) const override;

 protected:
  std::vector<Index> products_to_observe(const Model& model, Index layer) const override;
  void change_layer(Model& model, Index layer, LayerInputs& inputs, Context& context,
                    PassRecord& record) const override;
  void summarize(const Model& before, const Model& after, PassRecord& record) const override;

 private:
  bool is_ffn() const { return options_.part == Part::Ffn; }
  // Places in layer_products(): of the product that reads the part, and of the one that makes it.
  std::size_t consumer() const { return is_ffn() ? 3 : 1; }
  std::size_t producer() const { return is_ffn() ? 2 : 0; }
  // The matrix that reads the part.
  const NamedMatrix& consumer_of(const Model& model, Index layer) const;
  Cut cut_of(const model_io::Architecture& a, Index layer) const;
  // The same for a tensor that may be the consumer of its layer.
  ReasonToKeep reason_to_keep(const Model& model, const NamedMatrix& tensor) const;
  void shrink_producer(Model& model, Index layer, std::span<const Index> kept,
                       PassRecord& record) const;

  StructurePass options_;
};

const NamedMatrix& WidthPass::consumer_of(const Model& model, Index layer) const {
  const auto product = model_io::layer_products(model.architecture(), layer)[consumer()];
  return model.tensor(model_io::layer_name(layer, concat(product.name, ".weight")));
}

Cut WidthPass::cut_of(const model_io::Architecture& a, Index layer) const {
  if (is_ffn()) {
    const Index width = a.intermediate_of(layer), step = options_.round_to;
    Index kept = width - std::llround(options_.ratio * static_cast<double>(width));
    if (width % step == 0) kept = std::max(step, (kept + step / 2) / step * step);
    return {.removed = width - std::clamp<Index>(kept, 1, width)};
  }
  const Index each = a.heads_of(layer) / a.kv_heads;
  const Index removed = std::llround(options_.ratio * static_cast<double>(each));
  return {.unit = a.head_dim, .groups = a.kv_heads, .removed = std::min(removed, each - 1)};
}

// The matrix behind the part gets new weights, which a quantized one keeps from.
ReasonToKeep WidthPass::reason_to_keep(const Model& model, const NamedMatrix& tensor) const {
  const Index layer = model_io::layer_of(tensor.name);
  if (layer < 0 || &tensor != &consumer_of(model, layer) || !selection_.names(tensor))
    return std::nullopt;
  const Cut cut = cut_of(model.architecture(), layer);
  if (cut.removed == 0) return concat("a ratio of ", options_.ratio, " removes nothing");
  if (!is_quantized(tensor)) return std::string();
  if (std::string reason = reason_to_keep_codes(tensor, requantize_); !reason.empty())
    return reason;
  const Index cols = tensor.matrix.cols - cut.columns();
  const auto format = format_for_columns(parse_weight_format(type_text(tensor.matrix)), cols);
  if (format->takes(cols)) return std::string();
  return concat(format->name(), " does not take the ", cols, " columns that would remain");
}

void WidthPass::check(const Model& model) const {
  const model_io::Architecture& a = model.architecture();
  selection_.check(model, "structure");
  if (!is_ffn()) {
    if (a.qk_norm == model_io::QkNorm::Row)
      fail_unsupported("structure heads",
                       "This model normalizes the queries of all heads together.");
    HONE_REQUIRE(a.heads > a.kv_heads, "structure heads",
                 "Each key head of this model has one query head, which cannot go alone.");
  }
  check_use(model, "structure",
            [&](const NamedMatrix& tensor) { return reason_to_keep(model, tensor); });
}

void WidthPass::plan(std::vector<PlannedMatrix>& matrices,
                     const model_io::Architecture& architecture) const {
  const std::string_view reads = is_ffn() ? "mlp.down_proj.weight" : "self_attn.o_proj.weight";
  for (const PlannedMatrix& consumer : std::vector<PlannedMatrix>(matrices)) {
    if (!consumer.tensor->name.ends_with(reads) || !selection_.names(*consumer.tensor)) continue;
    const Index gone = cut_of(architecture, consumer.layer).columns();
    for (PlannedMatrix& planned : matrices) {
      const std::string& name = planned.tensor->name;
      if (planned.layer != consumer.layer || planned.tensor->is_vector) continue;
      const bool makes =
          is_ffn() ? name.ends_with("gate_proj.weight") || name.ends_with("up_proj.weight")
                   : name.ends_with("q_proj.weight");
      if (name.ends_with(reads)) planned.cols -= gone;
      if (makes) planned.rows -= gone;
    }
  }
}

double WidthPass::multiplications(const model_io::LayerProduct& product) const {
  const auto k = static_cast<double>(product.inputs), n = static_cast<double>(product.outputs);
  const bool reads = product.name == (is_ffn() ? "mlp.down_proj" : "self_attn.o_proj");
  return reads && options_.repair ? k * k * (1.5 * k + options_.ratio * (n + k)) : 0;
}

std::vector<Index> WidthPass::products_to_observe(const Model& model, Index layer) const {
  if (reason_to_keep(model, consumer_of(model, layer)) != "") return {};
  return {static_cast<Index>(consumer())};
}

// Keeps the rows that make the kept inputs of the consumer.
void WidthPass::shrink_producer(Model& model, Index layer, std::span<const Index> kept,
                                PassRecord& record) const {
  const auto product = model_io::layer_products(model.architecture(), layer)[producer()];
  for (const auto& [part, rows] : product.parts) {
    if (!is_ffn() && part != "self_attn.q_proj") continue;
    for (const std::string_view kind : {".weight", ".bias"}) {
      const NamedMatrix* tensor = model.find(model_io::layer_name(layer, concat(part, kind)));
      if (tensor == nullptr) continue;
      const Index at = tensor - model.tensors().data();
      EncodedMatrix smaller = take_rows(*tensor, kept);
      record.bytes_before += tensor->matrix.stored_bytes();
      record.bytes_after += smaller.stored.stored_bytes();
      model.replace(at, std::move(smaller), tensor->matrix.act_int8);
    }
  }
}

void WidthPass::change_layer(Model& model, Index layer, LayerInputs& inputs, Context& context,
                             PassRecord& record) const {
  const NamedMatrix reader = consumer_of(model, layer);
  const model_io::Architecture& a = model.architecture();
  const auto& gram = inputs[consumer()];
  if (!gram) {
    const ReasonToKeep reason = reason_to_keep(model, consumer_of(model, layer));
    if (reason) record.kept.push_back(kept_row(reader, *reason));
    return;
  }
  const Cut cut = cut_of(a, layer);
  const std::vector<float> values = values_of(reader.matrix);
  const Removal removal =
      remove_inputs(*gram, {values, reader.matrix.rows, reader.matrix.cols, reader.name},
                    {.unit = cut.unit,
                     .groups = cut.groups,
                     .removed = cut.removed,
                     .repair = options_.repair,
                     .damp = options_.damp},
                    context.executor);
  const Index kept = std::ssize(removal.kept);
  EncodedMatrix smaller = store_like(
      reader.matrix, {removal.weights, reader.matrix.rows, kept, reader.name}, context.executor);
  record.evidence.push_back({{"tensor", reader.name},
                             {"shape", {reader.matrix.rows, reader.matrix.cols}},
                             {"inputs_left", kept},
                             {"output_error", removal.error},
                             {"output_error_unrepaired", removal.error_unrepaired}});
  record.bytes_before += reader.matrix.stored_bytes();
  record.bytes_after += smaller.stored.stored_bytes();
  model.replace(model.index_of(reader.name), std::move(smaller), reader.matrix.act_int8);
  shrink_producer(model, layer, removal.kept, record);
  if (is_ffn()) return model.set_widths(layer, a.heads_of(layer), kept);
  model.set_widths(layer, kept / a.head_dim, a.intermediate_of(layer));
}

void WidthPass::summarize(const Model& before, const Model& after, PassRecord& record) const {
  record.statistics = statistics_of(options_, before, after);
}

// Chooses layers by their measured effect.
class LayerChooser {
 public:
  // Only layers that `removable` accepts go.
  LayerChooser(const Model& model, std::function<bool(Index)> removable, Context& context)
      : model_(model),
        removable_(std::move(removable)),
        context_(context),
        meter_(model, sample_texts(context.calibration, model, kMeasuredTokens), context.executor),
        left_(static_cast<std::size_t>(model.architecture().layers)) {
    std::iota(left_.begin(), left_.end(), Index{0});
    run_from(0);
    meter_.keep_logits();
  }

  // The next layer to go, in the numbers of the original, and the divergence without it.
  std::pair<Index, double> remove_next() {
    std::vector<double> divergences;
    Progress progress("measuring layers", std::ssize(left_), "layers");
    meter_.walk().restart();
    for (std::size_t i = 0; i < left_.size(); ++i) {
      throw_if_cancelled(context_);
      infer::LayerWalk& walk = meter_.walk();
      divergences.push_back(std::numeric_limits<double>::infinity());
      if (removable_(left_[i])) {
        const std::vector<float> stream(walk.hidden().begin(), walk.hidden().end());
        run_from(i + 1);
        divergences.back() = meter_.compare();
        walk.set_hidden(stream);
      }
      walk.advance(left_[i], model_);
      progress.update(static_cast<Index>(i) + 1);
    }
    const auto least = std::ranges::min_element(divergences);
    const auto at = least - divergences.begin();
    const Index layer = left_[static_cast<std::size_t>(at)];
    left_.erase(left_.begin() + at);
    return {layer, *least};
  }

 private:
  void run_from(std::size_t first) {
    for (std::size_t i = first; i < left_.size(); ++i) meter_.walk().advance(left_[i], model_);
  }

  const Model& model_;
  std::function<bool(Index)> removable_;
  Context& context_;
  DivergenceMeter meter_;
  std::vector<Index> left_;
};

class DepthPass final : public Pass {
 public:
  DepthPass(const StructurePass& options, const Recipe& recipe)
      : options_(options),
        gate_(recipe.gate),
        selection_{recipe.keep_float, options.apply, options.except} {}

  void check(const Model& model) const override {
    const model_io::Architecture& a = model.architecture();
    selection_.check(model, "structure layers");
    const Index wanted = std::llround(options_.ratio * static_cast<double>(a.layers));
    HONE_REQUIRE(wanted > 0, "structure layers",
                 concat("A ratio of ", options_.ratio, " of ", a.layers, " layers removes none."));
    HONE_REQUIRE(wanted < a.layers, "structure layers",
                 concat("A ratio of ", options_.ratio, " removes all layers."));
    HONE_REQUIRE(count_of(model) > 0, "structure layers", "The globs leave no layer to remove.");
    if (a.inverse_layer_scale)
      fail_unsupported("structure layers",
                       "This model divides scores by the place of their layer.");
  }

  bool needs_inputs() const override { return true; }
  // Every layer that goes is chosen by running the text without each of those that are left.
  double other_seconds(Index layers, double layer, double head) const override {
    const auto all = static_cast<double>(layers);
    return options_.ratio * all * kMeasuredTokens * all * (layer * all / 2 + head);
  }
  void plan(std::vector<PlannedMatrix>& matrices,
            const model_io::Architecture& /*architecture*/) const override {
    Index layers = 0;
    for (const PlannedMatrix& one : matrices) layers = std::max(layers, one.layer + 1);
    const Index left = layers - std::llround(options_.ratio * static_cast<double>(layers));
    std::erase_if(matrices, [left](const PlannedMatrix& one) { return one.layer >= left; });
  }

  PassRecord apply(Model& model, Context& context) override {
    PassRecord record;
    record.family = "structure";
    record.name = name_of_pass(options_);
    HONE_TRACE_ZONE("pass", {"name", record.name});
    const Model before = model;
    record.evidence = choose(model, context);
    std::vector<Index> gone;
    for (const Json& row : record.evidence) gone.push_back(row.at("layer").get<Index>());
    std::ranges::sort(gone, std::greater<>());
    for (const Index layer : gone) model.remove_layer(layer);
    record.bytes_before = before.bytes();
    record.bytes_after = model.bytes();
    record.statistics = statistics_of(options_, before, model);
    finish_pass(gate_, false, before, model, context, record);
    return record;
  }

 private:
  bool is_removable(const Model& model, Index layer) const {
    return std::ranges::all_of(model.tensors(), [&](const NamedMatrix& tensor) {
      return role_of(tensor) != Role::Linear || selection_.names(tensor) ||
             model_io::layer_of(tensor.name) != layer;
    });
  }
  // At least one layer stays, whatever passes before have removed.
  Index count_of(const Model& model) const {
    const Index layers = model.architecture().layers;
    Index removable = 0;
    for (Index layer = 0; layer < layers; ++layer) removable += is_removable(model, layer) ? 1 : 0;
    const Index wanted = std::llround(options_.ratio * static_cast<double>(layers));
    return std::min({wanted, removable, layers - 1});
  }

  // [{layer, kl}] in the order of removal; a finished choice of an interrupted run is kept.
  Json choose(const Model& model, Context& context) const {
    require_calibration(context, "structure");
    const std::string step = concat("pass", context.pass, "-layers.json");
    if (context.steps != nullptr) {
      if (const auto saved = context.steps->text(step)) return parse_json(*saved, step);
    }
    LayerChooser chooser(
        model, [&](Index layer) { return is_removable(model, layer); }, context);
    Json chosen = Json::array();
    for (Index i = 0; i < count_of(model); ++i) {
      const auto [layer, kl] = chooser.remove_next();
      chosen.push_back({{"layer", layer}, {"kl", kl}});
    }
    if (context.steps != nullptr) context.steps->save_text(step, chosen.dump());
    return chosen;
  }

  StructurePass options_;
  Gate gate_;
  Selection selection_;
};

}  // namespace

std::unique_ptr<Pass> make_pass(const StructurePass& options, const Recipe& recipe) {
  if (options.part == Part::Layers) return std::make_unique<DepthPass>(options, recipe);
  return std::make_unique<WidthPass>(options, recipe);
}

}  // namespace hone::compress
