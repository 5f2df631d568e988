# SPDX-License-Identifier: Apache-2.0
# Prefers installed packages; fetches a pinned release of those that are missing.
include_guard()
include(FetchContent)

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(ZLIB REQUIRED)

function(hone_dependency name package target)
  cmake_parse_arguments(arg "" "URL" "" ${ARGN})
  find_package(${package} QUIET)
  if(NOT TARGET ${target})
    if(NOT arg_URL)
      message(FATAL_ERROR "hone needs ${name}: run tools/setup")
    endif()
    message(STATUS "hone: fetching ${name}")
    FetchContent_Declare(${name} URL ${arg_URL})
    FetchContent_MakeAvailable(${name})
  endif()
endfunction()

pkg_check_modules(hwy REQUIRED IMPORTED_TARGET libhwy>=1.0.3)
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(yaml REQUIRED IMPORTED_TARGET yaml-0.1)
pkg_check_modules(jpeg REQUIRED IMPORTED_TARGET libjpeg)
pkg_check_modules(png REQUIRED IMPORTED_TARGET libpng)
find_path(HONE_BOOST_INCLUDE boost/beast/http.hpp REQUIRED)  # 1.74 or newer, headers alone
hone_dependency(json nlohmann_json nlohmann_json::nlohmann_json
  URL https://github.com/nlohmann/json/releases/download/v3.11.3/json.tar.xz)
hone_dependency(fmt fmt fmt::fmt
  URL https://github.com/fmtlib/fmt/releases/download/9.1.0/fmt-9.1.0.zip)
hone_dependency(spdlog spdlog spdlog::spdlog
  URL https://github.com/gabime/spdlog/archive/refs/tags/v1.10.0.tar.gz)
hone_dependency(cli11 CLI11 CLI11::CLI11
  URL https://github.com/CLIUtils/CLI11/archive/refs/tags/v2.3.2.tar.gz)
hone_dependency(tomlplusplus tomlplusplus tomlplusplus::tomlplusplus
  URL https://github.com/marzer/tomlplusplus/archive/refs/tags/v3.3.0.tar.gz)
if(HONE_BUILD_TESTS)
  hone_dependency(googletest GTest GTest::gtest
    URL https://github.com/google/googletest/archive/refs/tags/v1.14.0.tar.gz)
endif()

if(HONE_WITH_TORCH)
  include(HoneTorch)
  hone_find_torch()
  if(NOT Torch_FOUND)
    message(STATUS "hone: LibTorch not found, building without the training layer")
    set(HONE_WITH_TORCH OFF)
  endif()
endif()
