// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "hone/compress/model.h"
#include "hone/core/file/json_io.h"
#include "hone/core/machine/measurer.h"
#include "hone/core/thread/executor.h"
#include "hone/model_io/tensor_plan.h"

namespace hone::compress {

enum class Status { Applied, Skipped, Failed };
std::string_view name_of(Status status);  // "applied", …

// The quality that the gate checks, relative to the original and measured on the runtime that will
// serve the model.
struct Quality {
  double ppl_ratio = 1, ppl_ratio_low = 1, ppl_ratio_high = 1;
  double kl_mean = 0, kl_high = 0, top1_agreement = 1, top1_low = 1;
  Json card;  // the whole card
};

// The outcome of a pass, with its evidence.
struct PassRecord {
  std::string name;    // "quantize int4:g32:asym rtn"
  std::string family;  // "quantize"
  std::string reason;
  Status status = Status::Skipped;
  bool gate_held = true;
  Index bytes_before = 0, bytes_after = 0;  // of the affected tensors
  Spread ms_before, ms_after;  // all affected products once, with one row of activations
  RatioInterval speedup;
  Json evidence = Json::array();  // per changed matrix
  Json statistics;                // of the whole pass; null if there are none
  Index rounded_again = 0;        // of these, that were quantized already
  Json kept = Json::array();      // {tensor, type, reason}: named by the pass, but not changed
  std::optional<Quality> quality;
};
Json to_json(const PassRecord& record);
// What a measured pass came to: status, gates, times and card, to be kept in StepStore.
Json outcome_of(const PassRecord& record);
void restore_outcome(const Json& outcome, PassRecord& record);

class StepStore;

// Supplied by the caller.
struct Context {
  Executor& executor;
  Measurer& measurer;
  std::function<Quality(const Model&)> quality;  // if empty, quality is not measured and not gated
  // The calibration text, for passes that need the inputs of layers.
  std::vector<std::vector<text::TokenId>> calibration = {};
  Index file_overhead = 0;     // bytes of the file to write that belong to no tensor
  bool masks = true;           // whether the file to write leaves zeros out (core/format/bitmask.h)
  StepStore* steps = nullptr;  // finished steps of an interrupted run; null keeps none
  Index pass = 0;              // the place of the pass that runs, for `steps`
  bool measures = true;        // whether the quality is measured after this pass
  std::stop_token stop = {};
};

// Throws Error{Cancelled} if a stop is requested.
void throw_if_cancelled(const Context& context);
// Throws Error{InvalidArgument} that names `op` if there is no calibration text.
void require_calibration(const Context& context, std::string_view op);

// A matrix as it will be, for a forecast of sizes.
struct PlannedMatrix {
  const model_io::NamedMatrix* tensor;  // of the original
  Index layer = -1;                     // its layer; -1 if it is in none
  Index rows = 0, cols = 0;
  double bits = 0;   // per weight, as stored
  double kept = 1;   // the fraction of the weights that are not 0
  double share = 1;  // of rows times cols that two factors take

  // `masks`: whether the file leaves zeros out.
  Index bytes(bool masks) const;
};

class Pass {
 public:
  virtual ~Pass() = default;
  // Throws Error{InvalidArgument} if the pass cannot be applied to this model. Called for every
  // pass before the first one is applied.
  virtual void check(const Model& model) const = 0;
  // Whether the pass needs the inputs of layers, and so a calibration text.
  virtual bool needs_inputs() const = 0;
  // The multiplications in f64 that a product takes, beside running the text through it.
  virtual double multiplications(const model_io::LayerProduct& /*product*/) const { return 0; }
  // Seconds that are in no product, if a token in a layer and its logits take so many.
  virtual double other_seconds(Index /*layers*/, double /*layer*/, double /*head*/) const {
    return 0;
  }
  // What the pass would make of matrices that it names.
  virtual void plan(std::vector<PlannedMatrix>& matrices,
                    const model_io::Architecture& architecture) const = 0;
  // Changes `model` only when the record says applied.
  virtual PassRecord apply(Model& model, Context& context) = 0;
};

}  // namespace hone::compress
