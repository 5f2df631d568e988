# SPDX-License-Identifier: Apache-2.0
# Installs headers, layers, programs and the CMake package `hone`.
include_guard()
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(HONE_IS_INSTALLABLE OFF)
# A fetched dependency is a target of this build, which cannot be exported.
foreach(dependency nlohmann_json::nlohmann_json fmt::fmt spdlog::spdlog)
  get_target_property(is_imported ${dependency} IMPORTED)
  if(NOT is_imported)
    message(STATUS "hone: no install rules, because ${dependency} was fetched")
    return()
  endif()
endforeach()

set(HONE_IS_INSTALLABLE ON)
get_property(layers GLOBAL PROPERTY HONE_LAYERS)
set_target_properties(hone_settings PROPERTIES EXPORT_NAME settings)
target_compile_features(hone_settings INTERFACE cxx_std_20)
target_include_directories(hone_settings INTERFACE
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
install(TARGETS hone_settings ${layers} EXPORT hone_targets)
foreach(program hone hone-torch)
  if(TARGET ${program})
    set_target_properties(${program} PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
    # INSTALL_RPATH_USE_LINK_PATH covers imported libraries with a full path, but not those of
    # a package's targets.
    if(program STREQUAL hone-torch)
      set_property(TARGET ${program} PROPERTY INSTALL_RPATH ${HONE_TORCH_LIBRARY_DIR})
    endif()
    install(TARGETS ${program})
  endif()
endforeach()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/hone DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h" PATTERN "*.cuh"
  PATTERN "cli" EXCLUDE PATTERN "bench" EXCLUDE PATTERN "precompiled.h" EXCLUDE)

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/hone)
set(HONE_HAS_TRAIN OFF)
if(TARGET hone_train)
  set(HONE_HAS_TRAIN ON)
endif()
install(EXPORT hone_targets NAMESPACE hone:: DESTINATION ${package_folder})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/honeConfig.cmake.in
  ${PROJECT_BINARY_DIR}/honeConfig.cmake INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/honeConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/honeConfig.cmake ${PROJECT_BINARY_DIR}/honeConfigVersion.cmake
  ${PROJECT_SOURCE_DIR}/cmake/HoneTorch.cmake DESTINATION ${package_folder})
