// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "hone/core/config/config_table.h"
#include "hone/model_io/architecture.h"
#include "hone/train/optim/optim_config.h"
#include "hone/train/trainer/distill_config.h"
#include "hone/train/trainer/trainer_config.h"

namespace hone::task {

// The configuration of `hone train lm`. The defaults suit a small model on a text of about a
// megabyte. docs/config.md lists every key.
struct LmConfig {
  struct Model {
    std::string init = {};  // model whose weights training starts from; empty: new weights
    Index hidden_size = 160, intermediate_size = 432, layers = 4, heads = 5;
    Index kv_heads = 0;  // 0: heads
    Index head_dim = 0;  // 0: hidden_size / heads
    Index context = 128;
    double rope_theta = 10000, norm_eps = 1e-5;
    bool tied_embeddings = true, attention_bias = false, mlp_bias = false;
  } model;
  struct Data {
    std::string path;               // empty: the embedded story grammar
    std::string tokenizer = "bpe";  // or "byte"
    Index vocab_size = 512;
    Index window = 0;                  // 0: window_of()
    std::string windows = "document";  // or "stream"
    Index stories = 20000, held_out_stories = 500;
    Index validation_tokens = 16384;
  } data;
  trainer::DistillConfig distill;
  optim::OptimConfig optim;
  optim::LrConfig lr;
  struct Trainer : trainer::TrainerConfig {
    std::string matmul = "auto";
  } trainer;
  ConfigKeys given;  // keys that a file or an assignment has set
};

ConfigEntries config_entries(LmConfig& config);

// Rates and decays that train the default model well.
optim::RuleTable lm_rules();
// Positions of a training window: data.window or, if that is 0, the model's context, which is
// limited to 512 if training starts from a model.
Index window_of(const LmConfig& config);
// lr.peak or, if that is 0, the peak of the rule, divided by 50 if training starts from a model.
double peak_of(const LmConfig& config);

// Checks ranges, divisibility, and that every key of `given` has an effect. Throws
// Error{InvalidArgument} that names the key.
void check_config(const LmConfig& config);

// The architecture that this configuration describes.
model_io::Architecture make_architecture(const LmConfig& config, Index vocab_size);

// Returns the configuration of training that starts from a model of this architecture. The
// architecture supplies the values of [model] that were not given. Only model.context may be given
// another value, a smaller one. Throws Error{InvalidArgument} that names a key that contradicts the
// model.
LmConfig with_architecture(LmConfig config, const model_io::Architecture& architecture);

}  // namespace hone::task
