# SPDX-License-Identifier: Apache-2.0
# Settings that all targets of hone share: language level, warnings, ccache, sanitizers.
include_guard()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()
# -g1 gives backtraces with file and line; full debug information would double link time.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1 -DNDEBUG")
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})

find_program(HONE_CCACHE ccache)
if(HONE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Clones in different folders share results. Precompiled headers hit the cache only with these
  # sloppiness settings. They know headers with #pragma once by the bytes, comments included, so
  # that a result must be found by bytes (depend mode) and not by preprocessed text.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_NOHASHDIR=1 CCACHE_DEPEND=1
      CCACHE_BASEDIR=${CMAKE_SOURCE_DIR}
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      ${HONE_CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()

add_library(hone_settings INTERFACE)
add_library(hone::settings ALIAS hone_settings)
# Command lines have no path of the build folder, so that builds share ccache's results.
target_include_directories(hone_settings INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
set(HONE_CXX_OPTIONS -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
  # a * b + c is fused only where the code says so, so that results do not depend on the optimizer.
  -ffp-contract=off)
set(HONE_CUDA_OPTIONS --fmad=false -Xcompiler=-Wall)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC frees memory later: a file with LibTorch takes 0.9 of the time and 1.7 instead of 1.5 GiB.
  list(APPEND HONE_CXX_OPTIONS --param=ggc-min-expand=200 --param=ggc-min-heapsize=262144)
  if(CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
    # GCC warns wrongly of references into one argument where another argument is a temporary.
    list(APPEND HONE_CXX_OPTIONS -Wno-dangling-reference)
  endif()
endif()
target_compile_options(hone_settings INTERFACE
  "$<BUILD_INTERFACE:$<$<COMPILE_LANGUAGE:CXX>:${HONE_CXX_OPTIONS}>>"
  "$<BUILD_INTERFACE:$<$<COMPILE_LANGUAGE:CUDA>:${HONE_CUDA_OPTIONS}>>")

# The instruction sets beyond plain C++ that kernels are compiled for. A program that was built for
# one machine runs on every other, with what both have.
set(HONE_ISA native CACHE STRING
  "Instruction sets of the kernels: native (this machine's and AVX2) or all")
set_property(CACHE HONE_ISA PROPERTY STRINGS native all)
set(HONE_ISAS sse4 avx2 avxvnni avx512 avx512vnni amx)
set(hone_processor "")
if(HONE_ISA STREQUAL native AND EXISTS /proc/cpuinfo)
  file(STRINGS /proc/cpuinfo hone_processor REGEX "^flags" LIMIT_COUNT 1)
endif()
if("${hone_processor} " MATCHES " avx2 ")
  set(HONE_ISAS avx2)
  set(isas avxvnni avx512 avx512vnni amx)
  set(flags avx_vnni avx512vl avx512_vnni amx_int8)
  foreach(isa flag IN ZIP_LISTS isas flags)
    if("${hone_processor} " MATCHES " ${flag} ")
      list(APPEND HONE_ISAS ${isa})
    endif()
  endforeach()
endif()
# Highway compiles a kernel once per target; these two take build time without a measurable gain.
set(HONE_DISABLED_TARGETS "HWY_SSSE3|HWY_AVX3_DL")
if(NOT sse4 IN_LIST HONE_ISAS)
  string(APPEND HONE_DISABLED_TARGETS "|HWY_SSE4")
endif()
if(NOT avx512 IN_LIST HONE_ISAS)
  string(APPEND HONE_DISABLED_TARGETS "|HWY_AVX3")
endif()
target_compile_definitions(hone_settings INTERFACE $<BUILD_INTERFACE:HONE_BUILD>
  $<BUILD_INTERFACE:HWY_DISABLED_TARGETS=\(${HONE_DISABLED_TARGETS}\)>)
if(HONE_SANITIZE)
  set(HONE_SANITIZE_OPTIONS -fsanitize=${HONE_SANITIZE} -fno-sanitize-recover=all
    -fno-omit-frame-pointer)
  target_compile_options(hone_settings INTERFACE
    "$<BUILD_INTERFACE:$<$<COMPILE_LANGUAGE:CXX>:${HONE_SANITIZE_OPTIONS}>>")
  target_link_options(hone_settings INTERFACE $<BUILD_INTERFACE:-fsanitize=${HONE_SANITIZE}>)
endif()
