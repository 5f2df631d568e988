// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "hone/compress/model.h"
#include "hone/core/executor.h"
#include "hone/core/json_io.h"
#include "hone/core/measurer.h"

namespace hone::compress {

enum class Status { Applied, Skipped, Failed };
std::string_view name_of(Status status);  // "applied", …

// What the gate looks at, measured on the runtime that will serve the model, against the original.
struct Quality {
  double ppl_ratio = 1, ppl_ratio_low = 1, ppl_ratio_high = 1;
  double kl_mean = 0, top1_agreement = 1;
  Json card;  // the whole card
};

// How a pass ended, with its evidence.
struct PassRecord {
  std::string name;    // "quantize int4:g32:asym rtn"
  std::string family;  // "quantize"
  std::string reason;
  Status status = Status::Skipped;
  Index bytes_before = 0, bytes_after = 0;  // of the affected tensors
  Spread ms_before, ms_after;               // all affected products once, one row of activations
  RatioInterval speedup;
  Json evidence = Json::array();  // per layer
  std::optional<Quality> quality;
};
Json to_json(const PassRecord& record);

// What the joining layer supplies.
struct Context {
  Executor& executor;
  Measurer& measurer;
  std::function<Quality(const Model&)> quality;  // empty: not measured, and gates on it are off
  std::function<bool()> cancelled;               // may be empty
};

// Throws Error{Cancelled} when the context says so.
void throw_if_cancelled(const Context& context);

class Pass {
 public:
  virtual ~Pass() = default;
  // Error{InvalidArgument} when the pass cannot do what it was asked for on this model. Called for
  // every pass before the first one is applied.
  virtual void check(const Model& model) const = 0;
  // Changes `model` only when the record says applied.
  virtual PassRecord apply(Model& model, Context& context) = 0;
};

}  // namespace hone::compress
