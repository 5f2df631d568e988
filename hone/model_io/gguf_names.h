// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace hone::model_io {

// Tensor names of GGUF's llama architecture and of Hugging Face, both ways; empty when unknown.
// "blk.3.attn_q.weight" <-> "model.layers.3.self_attn.q_proj.weight"
std::string to_hugging_face_name(std::string_view gguf_name);
std::string to_gguf_name(std::string_view hugging_face_name);

}  // namespace hone::model_io
