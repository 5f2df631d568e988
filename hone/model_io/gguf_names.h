// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace hone::model_io {

// Convert tensor names between GGUF's llama architecture and Hugging Face; empty if unknown.
// "blk.3.attn_q.weight" <-> "model.layers.3.self_attn.q_proj.weight"
std::string to_hugging_face_name(std::string_view gguf_name);
std::string to_gguf_name(std::string_view hugging_face_name);

}  // namespace hone::model_io
