// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>

#include "hone/model_io/architecture.h"

namespace hone::model_io {

// The two formats whose names and storage differ between families.
enum class FileFormat { HuggingFace, Gguf };

// Keys of config.json. An empty key does not exist in the family.
struct ConfigKeys {
  std::string_view hidden = "hidden_size", intermediate = "intermediate_size";
  std::string_view layers = "num_hidden_layers", heads = "num_attention_heads";
  std::string_view kv_heads = "num_key_value_heads", head_dim = "head_dim";
  std::string_view context = "max_position_embeddings", eps = "rms_norm_eps";
  std::string_view activation = "hidden_act";
};

// Whether the products of a block have biases: never, always, or as the file says, which is a key
// of config.json or, in GGUF, whether layer 0 has the tensor.
enum class BiasRule { Never, Always, Key };

// Which layers have the attention window of the key sliding_window.
enum class WindowRule {
  None,
  All,     // all of them, unless the value is null
  Switch,  // if use_sliding_window is true, those from max_window_layers on
  Period,  // all but every period-th
};

// How a tensor of a file becomes tensors of hone (tensor_plan.h).
struct TensorRow {
  // Below "model.layers.<i>." or, outside of layers, below the model: "self_attn.q_proj",
  // "model.norm". Several names share one tensor of the file, one below the other.
  std::array<std::string_view, 3> parts;
  std::string_view hugging_face, gguf;  // names without suffix, below the layer's prefix
  // GPT-2's Conv1D: Hugging Face stores [inputs, outputs] instead of [outputs, inputs].
  bool is_conv1d = false;
};

// Values that replace absent keys of config.json.
struct ConfigDefaults {
  double norm_eps = 1e-6, rope_theta = 10000;
  Index context = 2048, head_dim = 0, window = 0;  // head_dim 0: hidden / heads
  bool tied = false;
  double query_scalar = 0, attention_cap = 0, logit_cap = 0;
};

// One family of models: what its files are called and what its layers compute. Readers, writers and
// the forward pass know families by these data alone.
struct Family {
  std::string_view name;         // model_type of config.json
  std::string_view model_class;  // architectures[0]
  std::string_view gguf;         // general.architecture
  std::span<const TensorRow> whole, layer;
  std::string_view layer_prefix = "model.layers.";   // in Hugging Face files; GGUF: "blk."
  std::string_view model_prefix = "model.";          // may be absent there
  std::span<const std::string_view> ignorable = {};  // ends of names of buffers
  ConfigKeys keys = {};
  ConfigDefaults defaults = {};
  RopePairing gguf_pairing = RopePairing::HalfSplit;

  NormKind norm = NormKind::Rms;
  double hugging_face_norm_offset = 0;  // added to stored weights; GGUF stores the sum
  bool pre_norms = true, post_norms = false;
  MlpKind mlp = MlpKind::SiluGate;
  QkNorm qk_norm = QkNorm::None;
  BiasRule attention_bias = BiasRule::Never, mlp_bias = BiasRule::Never;
  bool output_bias = true;  // o has one if q, k and v have
  bool learned_positions = false;
  bool scales_embedding = false;  // by sqrt(hidden)
  bool has_query_scalar = false;  // scores are divided by sqrt(query_pre_attn_scalar)
  bool has_soft_caps = false;
  bool has_partial_rotation = false;
  bool has_window_rope = false;
  bool has_score_switches = false;  // scale_attn_weights, scale_attn_by_inverse_layer_idx
  WindowRule window = WindowRule::None;
  Index window_period = 0;
  // GGUF files of models with this many layers scale scores by 1 / sqrt(hidden / heads), which no
  // key says (llama.cpp does the same).
  Index width_scale_layers = 0;
};

std::span<const Family> families();
// Throws Error{Internal} for a name that is not in the table.
const Family& family_of(const Architecture& architecture);
// Null if no family has this class or model_type. `model_class` wins if it is not empty.
const Family* find_family(std::string_view model_class, std::string_view model_type);
// The names of all classes or of all GGUF architectures, for error messages: "A, B or C".
std::string list_classes();
std::string list_gguf_architectures();

// Sets the traits that all models of a family share, for files of `format`.
void apply_family(const Family& family, FileFormat format, Architecture& architecture);
// The offset of norm weights in files of a format.
double norm_offset_in(const Family& family, FileFormat format);
RopePairing pairing_in(const Family& family, FileFormat format);

// The name in GGUF files of a tensor of layer 0 whose first part is `part`: "blk.0.attn_q".
std::string first_gguf_name(const Family& family, std::string_view part);

}  // namespace hone::model_io
