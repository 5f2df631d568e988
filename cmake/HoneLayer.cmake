# SPDX-License-Identifier: Apache-2.0
# One function per kind of target, so that folders need no build files of their own.
include_guard()

# Maps suffixes of file names to instruction-set flags. Such files include only intrinsics,
# fixed-width integers and their own private header.
set(HONE_ISA_FLAGS_sse4 -msse4.2)
set(HONE_ISA_FLAGS_avx2 -mavx2 -mfma -mf16c -mbmi2)
set(HONE_ISA_FLAGS_avxvnni ${HONE_ISA_FLAGS_avx2} -mavxvnni)
set(HONE_ISA_FLAGS_avx512 ${HONE_ISA_FLAGS_avx2} -mavx512f -mavx512bw -mavx512cd -mavx512dq
  -mavx512vl)
set(HONE_ISA_FLAGS_avx512vnni ${HONE_ISA_FLAGS_avx512} -mavx512vnni)
set(HONE_ISA_FLAGS_amx ${HONE_ISA_FLAGS_avx512vnni} -mamx-tile -mamx-int8)

function(hone_apply_isa_flags)
  foreach(file ${ARGN})
    if(file MATCHES "_(sse4|avx2|avxvnni|avx512|avx512vnni|amx)\\.cc$")
      set(isa ${CMAKE_MATCH_1})  # saved, because the next MATCHES overwrites it
      if(NOT isa IN_LIST HONE_ISAS)
        set_source_files_properties(${file} PROPERTIES COMPILE_DEFINITIONS HONE_ISA_LEFT_OUT)
      elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
        set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS
          "${HONE_ISA_FLAGS_${isa}}")
      endif()
    endif()
  endforeach()
endfunction()

# hone_unite(target limit sources…): compiles neighboring files as one, up to `limit` KiB of them,
# or twice that where they include LibTorch: template instantiations that the precompiled header
# leaves to every file then take less of the time.
function(hone_unite target limit)
  if(target MATCHES "train|torch")
    math(EXPR limit "2 * ${limit}")
  endif()
  if(limit EQUAL 0)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # GCC treats the files of a batch as headers
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
  endif()
  math(EXPR limit "${limit} * 1024")
  set(batch 0)
  set(bytes 0)
  foreach(file ${ARGN})
    file(SIZE ${file} size)
    math(EXPR bytes "${bytes} + ${size}")
    if(bytes GREATER limit)
      math(EXPR batch "${batch} + 1")
      set(bytes ${size})
    endif()
    set_source_files_properties(${file} PROPERTIES UNITY_GROUP ${batch})
  endforeach()
endfunction()

# hone_layer(name DEPENDS layer… [LINK lib…] [EXCLUDE regex] [CUDA] [PRIVATE] [GLUE]): builds the
# library hone_<name> from every .cc, with CUDA also every .cu, below the layer's folder. PRIVATE
# layers are not installed. GLUE calls other layers and has no loops of its own that take time: few
# optimizations make its compilation shorter.
function(hone_layer name)
  cmake_parse_arguments(arg
    "CUDA;PRIVATE;GLUE" "EXCLUDE;FOLDER" "DEPENDS;LINK;PRIVATE_LINK" ${ARGN})
  if(NOT arg_FOLDER)
    set(arg_FOLDER ${name})
  endif()
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${arg_FOLDER}/*.cc)
  if(arg_EXCLUDE)
    list(FILTER sources EXCLUDE REGEX "${arg_EXCLUDE}")
  endif()
  if(arg_CUDA)
    file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${arg_FOLDER}/*.cu)
    list(APPEND sources ${cuda_sources})
  endif()
  if(NOT sources)
    message(STATUS "hone: layer ${name} is empty")
    return()
  endif()
  hone_apply_isa_flags(${sources})
  add_library(hone_${name} STATIC ${sources})
  if(NOT name STREQUAL kernels)  # Highway and the ISA flags need separate files
    hone_unite(hone_${name} ${HONE_UNITY_KIB} ${sources})
  endif()
  add_library(hone::${name} ALIAS hone_${name})
  set_target_properties(hone_${name} PROPERTIES EXPORT_NAME ${name})
  target_link_libraries(hone_${name} PUBLIC hone::settings ${arg_LINK} PRIVATE ${arg_PRIVATE_LINK})
  foreach(layer ${arg_DEPENDS})
    if(TARGET hone_${layer})
      target_link_libraries(hone_${name} PUBLIC hone::${layer})
    endif()
  endforeach()
  if(arg_GLUE)
    target_compile_options(hone_${name} PRIVATE -O1)
  endif()
  if(NOT arg_PRIVATE)
    set_property(GLOBAL APPEND PROPERTY HONE_LAYERS hone_${name})
  endif()
endfunction()

# hone_share_headers(layer…): the headers that layers without LibTorch share are read once, by a
# target that has none of their private definitions. <…> names a header without the clone's folder.
function(hone_share_headers)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/headers.cc CONTENT "// no code\n")
  add_library(hone_headers OBJECT ${PROJECT_BINARY_DIR}/generated/headers.cc)
  target_link_libraries(hone_headers PRIVATE hone::settings nlohmann_json::nlohmann_json)
  target_precompile_headers(hone_headers PRIVATE <hone/core/precompiled.h>)
  foreach(layer ${ARGN})
    if(TARGET hone_${layer})
      target_precompile_headers(hone_${layer} REUSE_FROM hone_headers)
    endif()
  endforeach()
endfunction()

# LibTorch's headers are read once, by the training layer. A precompiled header wants the same
# definitions and code model in all who share it.
function(hone_share_torch_headers target)
  target_compile_options(${target} PRIVATE -fPIC)
  target_precompile_headers(${target} REUSE_FROM hone_train)
endfunction()

# Tests run side by side. Waiting threads of LibTorch would otherwise keep their CPUs from those of
# others: two tests of two threads on two CPUs then take up to four times as long.
set(HONE_TEST_ENVIRONMENT OMP_WAIT_POLICY=passive)

# Tests are compiled for half as long with few optimizations; what they call has all of them. Their
# binaries share precompiled headers, which want one code model.
function(hone_compile_as_test target)
  target_compile_options(${target} PRIVATE -Og -fPIC)
endfunction()

# hone_tests(folder LAYERS layer… [LABELS label…] [ISA_SWEEP [VNNI]]): one binary from the *_test.cc
# and *_support.cc of one folder. ISA_SWEEP registers the suite once per instruction set, with VNNI
# also for those that only integer products are compiled for; one that the machine lacks, or that is
# beyond HONE_FORCE_ISA, shows as skipped.
function(hone_tests folder)
  cmake_parse_arguments(arg "ISA_SWEEP;VNNI" "" "LAYERS;LABELS;LINK" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*_test.cc
    ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*_support.cc)
  if(NOT sources)
    return()
  endif()
  string(REPLACE "/" "_" target "test_${folder}")
  add_executable(${target} ${sources})
  foreach(layer ${arg_LAYERS})
    if(TARGET hone_${layer})
      target_link_libraries(${target} PRIVATE hone::${layer})
    endif()
  endforeach()
  set(support hone_test_support)
  set(common_environment "")
  if(arg_LAYERS MATCHES "train|_torch")
    set(support hone_torch_test_support)
    set(common_environment ${HONE_TEST_ENVIRONMENT})
  endif()
  target_link_libraries(${target} PRIVATE ${support} ${arg_LINK})
  hone_compile_as_test(${target})
  target_precompile_headers(${target} REUSE_FROM ${support})
  if(NOT folder MATCHES "^kernels/")
    hone_unite(${target} ${HONE_UNITY_KIB} ${sources})
  endif()
  if(NOT arg_LABELS)
    set(arg_LABELS unit)
  endif()
  set(isas default)
  if(arg_ISA_SWEEP)
    if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
      set(isas ${HONE_ISAS})
      if(NOT arg_VNNI)
        list(REMOVE_ITEM isas avxvnni avx512vnni amx)
      endif()
      list(PREPEND isas scalar)
    else()
      set(isas scalar neon sve)
    endif()
  endif()
  foreach(isa ${isas})
    set(name ${target})
    set(environment ${common_environment})
    if(NOT isa STREQUAL default)
      set(name ${target}@${isa})
      list(APPEND environment "HONE_TEST_ISA=${isa}")
    endif()
    add_test(NAME ${name} COMMAND ${target})
    # tools/run_tests.py counts the cases in these reports.
    list(APPEND environment "GTEST_OUTPUT=xml:${CMAKE_BINARY_DIR}/test_results/${name}.xml")
    set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}" SKIP_RETURN_CODE 77
      TIMEOUT 900 ENVIRONMENT "${environment}")
  endforeach()
endfunction()
