# SPDX-License-Identifier: Apache-2.0
# cmake -DEXAMPLE=… -DBINARY=… -DPREFIX=… -DTORCH=… -P RunExample.cmake: configures an example
# against the installed package, builds it and runs its tests. Most of an example's time is reading
# LibTorch's headers; -O1 instead of -O3 saves a fifth.
function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

run(${CMAKE_COMMAND} -S ${EXAMPLE} -B ${BINARY} -G Ninja -DCMAKE_PREFIX_PATH=${PREFIX}
  -DTorch_DIR=${TORCH} "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG" --log-level=WARNING -Wno-dev)
run(${CMAKE_COMMAND} --build ${BINARY})
cmake_path(GET CMAKE_COMMAND PARENT_PATH programs)
run(${programs}/ctest --test-dir ${BINARY} --output-on-failure --no-tests=error)
