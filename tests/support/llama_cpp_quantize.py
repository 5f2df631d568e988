# SPDX-License-Identifier: Apache-2.0
"""llama.cpp's own quantizer.

llama_cpp_quantize.py IN OUT TYPE    TYPE: Q4_K_M, Q5_K_M, Q6_K, Q4_1, Q5_0 or Q5_1
"""
import sys

import llama_cpp

source, out, kind = sys.argv[1:4]
params = llama_cpp.llama_model_quantize_default_params()
params.ftype = getattr(llama_cpp, "LLAMA_FTYPE_MOSTLY_" + kind)
params.nthread = 1
status = llama_cpp.llama_model_quantize(source.encode(), out.encode(), params)
sys.exit(f"llama_model_quantize returned {status}" if status != 0 else 0)
