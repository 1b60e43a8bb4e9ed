# Third-party libraries, all from Debian packages except LibTorch.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(ZLIB REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(zstd REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(oniguruma REQUIRED IMPORTED_TARGET oniguruma)
# Oniguruma exports POSIX' regcomp() and regexec() with other meanings. All others must find those of
# the C library, which is found first where it is named first, by its path: compilers put -lc last.
execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libc.so.6
  OUTPUT_VARIABLE c_library OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
add_library(atoll_oniguruma INTERFACE)
target_link_libraries(atoll_oniguruma INTERFACE ${c_library} PkgConfig::oniguruma)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(httplib REQUIRED IMPORTED_TARGET cpp-httplib)
pkg_check_modules(nlopt REQUIRED IMPORTED_TARGET nlopt)
pkg_check_modules(sqlite3 REQUIRED IMPORTED_TARGET sqlite3)
find_package(Protobuf REQUIRED)
find_package(gRPC REQUIRED CONFIG)
find_package(CLI11 REQUIRED)
find_package(yaml-cpp REQUIRED)
if(ATOLL_BUILD_TESTS)
  find_package(GTest REQUIRED)
  find_package(benchmark REQUIRED)
endif()

# LibTorch is imported by path, not by its own CMake package: that one demands a CUDA toolkit when
# the build is a CUDA build, though linking needs none. ATOLL_TORCH_DIR holds include/ and lib/.
set(ATOLL_TORCH_VERSION "none")
if(ATOLL_TORCH)
  set(ATOLL_TORCH_DIR "$ENV{ATOLL_TORCH_DIR}" CACHE PATH "LibTorch: the folder with include/ and lib/")
  if(NOT EXISTS "${ATOLL_TORCH_DIR}/lib/libtorch_cpu.so")
    message(FATAL_ERROR "LibTorch not found: '${ATOLL_TORCH_DIR}/lib/libtorch_cpu.so' does not exist. "
                        "Run 'make build' (which sets it up) or pass -DATOLL_TORCH_DIR=DIR.")
  endif()
  # A wheel has version.py, an archive build-version.
  set(ATOLL_TORCH_VERSION "of unknown version")
  foreach(file build-version version.py)
    if(EXISTS ${ATOLL_TORCH_DIR}/${file})
      file(STRINGS ${ATOLL_TORCH_DIR}/${file} line REGEX "^(__version__ = )?'?[0-9]+[.]" LIMIT_COUNT 1)
      string(REGEX REPLACE "^(__version__ = )?'?([^']+)'?.*" "\\2" ATOLL_TORCH_VERSION "${line}")
      break()
    endif()
  endforeach()
  add_library(torch INTERFACE)
  target_include_directories(torch SYSTEM INTERFACE ${ATOLL_TORCH_DIR}/include
                             ${ATOLL_TORCH_DIR}/include/torch/csrc/api/include)
  target_compile_options(torch INTERFACE -fopenmp)
  # LibTorch ships fmt's headers, of another version than the system's library: code that sees them
  # must not need that library. The versions live in different inline namespaces.
  target_compile_definitions(torch INTERFACE FMT_HEADER_ONLY=1)
  foreach(part torch_cpu c10)
    target_link_libraries(torch INTERFACE ${ATOLL_TORCH_DIR}/lib/lib${part}.so)
  endforeach()
  file(GLOB torch_gomp ${ATOLL_TORCH_DIR}/lib/libgomp*.so*)
  if(torch_gomp)
    list(GET torch_gomp 0 torch_gomp)
    target_link_libraries(torch INTERFACE ${torch_gomp})
  else()
    target_link_options(torch INTERFACE -fopenmp)
  endif()
  foreach(part torch_cuda c10_cuda)
    if(EXISTS ${ATOLL_TORCH_DIR}/lib/lib${part}.so)  # Registers CUDA kernels when it is loaded.
      target_link_options(torch INTERFACE "SHELL:-Wl,--no-as-needed ${ATOLL_TORCH_DIR}/lib/lib${part}.so")
    endif()
  endforeach()
  target_link_options(torch INTERFACE -Wl,-rpath,${ATOLL_TORCH_DIR}/lib -Wl,--allow-shlib-undefined)
endif()

# What every unit test is compiled with. Tests are compiled once and run for seconds, so that their own
# objects are not worth -O3; the code under test has it.
if(ATOLL_BUILD_TESTS)
  add_library(atoll_test INTERFACE)
  target_link_libraries(atoll_test INTERFACE GTest::gmock fmt::fmt)
  # -pthread: some of the libraries ask for it, and one set of precompiled headers serves all tests.
  target_compile_options(atoll_test INTERFACE -pthread $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
  if(CMAKE_BUILD_TYPE STREQUAL Release AND NOT ATOLL_SANITIZE)
    target_compile_options(atoll_test INTERFACE -Og)
  endif()
endif()
# Headers of others that most tests read, compiled once. Ours are not among them: each test includes what it needs.
# The compiler cache keeps them for other clones too.
function(atoll_precompile name libraries)
  set(source ${PROJECT_BINARY_DIR}/${name}.cpp)
  file(CONFIGURE OUTPUT ${source} CONTENT "")
  add_library(${name} OBJECT ${source})
  target_link_libraries(${name} PRIVATE ${libraries})
  target_precompile_headers(${name} PRIVATE ${ARGN})
endfunction()
if(ATOLL_BUILD_TESTS AND ATOLL_PRECOMPILE)
  set(headers <gmock/gmock.h> <gtest/gtest.h> <fmt/format.h>)
  atoll_precompile(atoll_test_headers atoll_test ${headers})
  if(ATOLL_TORCH)
    atoll_precompile(atoll_torch_test_headers "atoll_test;torch" ${headers} <ATen/ATen.h>)
  endif()
endif()
