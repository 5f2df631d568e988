// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include <string>
#include <vector>

#include "hone/app/torch/serve/served_module.h"
#include "hone/core/file/json_io.h"
#include "hone/server/http/http_message.h"
#include "hone/train/serve/module_server.h"

namespace hone::app {

// The most inputs of a request.
inline constexpr Index kMostInputs = 256;

// A request of POST /v1/infer: {"inputs": [tensor, …]} or {"images": [base64 or data URL, …]}, and
// "model", "top", "logits" and "encoding_format"; or an image file as the body, and these in the
// query of the URL.
struct InferRequest {
  std::vector<torch::Tensor> inputs{};  // without the dimension of the batch
  std::string field{};                  // "inputs" or "images", for errors
  Index top = 3;                        // classes of a classifier's answer
  bool wants_logits = false, is_base64 = false;
  std::string ignored{};  // names of fields that were not read
};

// Throws ApiError{400} that names the field, and ApiError{404} for another model than `id`.
InferRequest read_infer_request(const server::HttpRequest& request, const ServedModule& module,
                                const std::string& id);
// The answer for one input: {"classes": [{"name", "probability"}], "logits"} of a classifier, the
// most probable class first, or {"output"}; and "latency_ms" and "batch". Throws ApiError{400} for
// logits that are not finite, and ApiError{500} for an output that is not a tensor of numbers.
Json answer_json(const InferRequest& request, const ServedModule& module,
                 const nn::ModuleResult& result);

}  // namespace hone::app
