# SPDX-License-Identifier: Apache-2.0
# hone_find_torch(): defines the target hone_libtorch, Torch_FOUND and Torch_VERSION. It is also
# installed for users of the train layer.
include_guard()

# LibTorch's libraries export parts of the libstdc++ that they were built with, among them functions
# that call symbols which are absent here: in LibTorch 2.11 for CUDA, std::filesystem::remove_all()
# of libtorch.so calls a null pointer. The system's own library therefore comes first. A program
# that links LibTorch itself, too, must name hone::train before it.
set(HONE_CXX_LIBRARY "")
if("stdc++" IN_LIST CMAKE_CXX_IMPLICIT_LINK_LIBRARIES)
  set(HONE_CXX_LIBRARY stdc++)
endif()

# The package of a CUDA build of LibTorch stops the configuration if CUDA's compiler is absent. hone
# calls only the CPU interface, so for such builds this function names the libraries.
function(hone_import_torch root)
  add_library(hone_libtorch INTERFACE IMPORTED GLOBAL)
  target_include_directories(hone_libtorch SYSTEM INTERFACE
    ${root}/include ${root}/include/torch/csrc/api/include)
  target_link_libraries(hone_libtorch INTERFACE ${HONE_CXX_LIBRARY}
    # Nothing refers to libtorch.so, but it loads libtorch_cuda.so.
    LINKER:--push-state,--no-as-needed ${root}/lib/libtorch.so LINKER:--pop-state
    ${root}/lib/libtorch_cpu.so ${root}/lib/libc10.so)
  # LibTorch finds CUDA's own libraries at run time.
  target_link_options(hone_libtorch INTERFACE LINKER:--allow-shlib-undefined)
endfunction()

macro(hone_find_torch)
  unset(HONE_TORCH_CONFIG_DIR)
  find_path(HONE_TORCH_CONFIG_DIR TorchConfig.cmake NO_CACHE
    HINTS ${Torch_DIR} PATH_SUFFIXES Torch share/cmake/Torch lib/cmake/Torch)
  cmake_path(SET hone_torch_root NORMALIZE "${HONE_TORCH_CONFIG_DIR}/../../..")
  if(EXISTS "${hone_torch_root}/lib/libtorch_cuda.so" AND NOT TARGET torch)
    include(${HONE_TORCH_CONFIG_DIR}/TorchConfigVersion.cmake)
    set(Torch_VERSION ${PACKAGE_VERSION})
    set(Torch_FOUND TRUE)
    hone_import_torch(${hone_torch_root})
  else()
    find_package(Torch QUIET)
    if(Torch_FOUND)
      set(HONE_TORCH_CONFIG_DIR ${Torch_DIR})
      add_library(hone_libtorch INTERFACE IMPORTED GLOBAL)
      target_link_libraries(hone_libtorch INTERFACE ${HONE_CXX_LIBRARY} ${TORCH_LIBRARIES})
    endif()
  endif()
  cmake_path(SET HONE_TORCH_LIBRARY_DIR NORMALIZE "${HONE_TORCH_CONFIG_DIR}/../../../lib")
endmacro()
