# Third-party libraries, all from Debian packages except LibTorch.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(ZLIB REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)
find_package(Protobuf REQUIRED)
find_package(gRPC REQUIRED CONFIG)
find_package(CLI11 REQUIRED)
if(ATOLL_BUILD_TESTS)
  find_package(GTest REQUIRED)
  find_package(benchmark REQUIRED)
  include(GoogleTest)
endif()

# LibTorch is imported by path, not by its own CMake package: that one demands a CUDA toolkit when
# the build is a CUDA build, though linking needs none. ATOLL_TORCH_DIR holds include/ and lib/.
if(ATOLL_TORCH)
  set(ATOLL_TORCH_DIR "$ENV{ATOLL_TORCH_DIR}" CACHE PATH "LibTorch: the folder with include/ and lib/")
  if(NOT EXISTS "${ATOLL_TORCH_DIR}/lib/libtorch_cpu.so")
    message(FATAL_ERROR "LibTorch not found: '${ATOLL_TORCH_DIR}/lib/libtorch_cpu.so' does not exist. "
                        "Run 'make build' (which sets it up) or pass -DATOLL_TORCH_DIR=DIR.")
  endif()
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
