# atoll_module(NAME [TORCH] [DEPS folders...] [LIBS targets...] [TEST_DEPS folders...])
#
# One call per folder of atoll/. Suffixes register files, so none can be forgotten:
#   x.cpp        part of the library atoll_NAME
#   x_test.cpp   a GoogleTest binary
#   x_bench.cpp  a Google Benchmark binary, also run with tiny inputs as a test
#   x_fuzz.cpp   a fuzz target: libFuzzer under clang, replay of a few random inputs as a test
# A TORCH folder needs LibTorch: without it (ATOLL_TORCH=OFF) it is left out. TEST_DEPS is what tests
# alone link: atoll/testing, which is declared behind all that it may include.

# Of all tests. They neither measure which library multiplies quickest nor hang on what was measured
# here before: the same bits each time.
set(atoll_test_environment ATOLL_PRODUCTS=usual)

function(atoll_module name)
  cmake_parse_arguments(arg "TORCH" "" "DEPS;LIBS;TEST_DEPS" ${ARGN})
  if(arg_TORCH AND NOT ATOLL_TORCH)
    return()
  endif()
  foreach(dep IN LISTS arg_DEPS)
    if(NOT TARGET atoll_${dep})
      message(FATAL_ERROR "${name} may not depend on ${dep}: it is declared later (an upward arrow)")
    endif()
  endforeach()
  list(TRANSFORM arg_DEPS PREPEND atoll_)
  list(TRANSFORM arg_TEST_DEPS PREPEND atoll_)

  file(GLOB sources RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} CONFIGURE_DEPENDS *.cpp)
  set(tests ${sources})
  set(fuzzers ${sources})
  set(benches ${sources})
  list(FILTER tests INCLUDE REGEX "_test[.]cpp$")
  list(FILTER fuzzers INCLUDE REGEX "_fuzz[.]cpp$")
  list(FILTER benches INCLUDE REGEX "_bench[.]cpp$")
  list(FILTER sources EXCLUDE REGEX "_(test|fuzz|bench|main)[.]cpp$")

  if(arg_TORCH)
    list(APPEND arg_DEPS torch)
  endif()
  atoll_library(${name} "${sources}" "${arg_DEPS};${arg_LIBS}")

  if(ATOLL_BUILD_TESTS)
    atoll_tests(${name} "${tests}" "${fuzzers}" "${benches}" "${arg_TEST_DEPS}")
  endif()
endfunction()

function(atoll_library name sources deps)
  if(sources)
    add_library(atoll_${name} STATIC ${sources})
    set(scope PUBLIC)
  else()
    add_library(atoll_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(atoll_${name} ${scope} ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
  target_link_libraries(atoll_${name} ${scope} ${deps})
endfunction()

function(atoll_tests name tests fuzzers benches deps)
  foreach(test IN LISTS tests)
    cmake_path(GET test STEM stem)
    atoll_unit_test(${name}_${stem} ${name}.${stem} ${test} "atoll_${name};${deps}")
  endforeach()
  foreach(fuzzer IN LISTS fuzzers)
    cmake_path(GET fuzzer STEM stem)
    set(target ${name}_${stem})
    if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
      add_executable(${target} ${fuzzer})
      target_compile_options(${target} PRIVATE -fsanitize=fuzzer)
      target_link_options(${target} PRIVATE -fsanitize=fuzzer)
      add_test(NAME ${name}.${stem} COMMAND ${target} -runs=20000 -max_total_time=30 -seed=1)
    else()
      add_executable(${target} ${fuzzer} ${PROJECT_SOURCE_DIR}/tests/fuzz_main.cpp)
      add_test(NAME ${name}.${stem} COMMAND ${target})
    endif()
    target_link_libraries(${target} PRIVATE atoll_${name})
    set_tests_properties(${name}.${stem} PROPERTIES LABELS fuzz TIMEOUT 120 ENVIRONMENT ${atoll_test_environment})
  endforeach()
  foreach(bench IN LISTS benches)
    cmake_path(GET bench STEM stem)
    set(target ${name}_${stem})
    add_executable(${target} ${bench})
    target_link_libraries(${target} PRIVATE atoll_${name} benchmark::benchmark_main)
    add_test(NAME ${name}.${stem} COMMAND ${target} --benchmark_min_time=0.001)
    set_tests_properties(${name}.${stem} PROPERTIES LABELS bench TIMEOUT 120 ENVIRONMENT ${atoll_test_environment})
  endforeach()
endfunction()

# One ctest entry for a binary: a process for each of its cases would cost more than most cases. It
# prints what failed and nothing else.
function(atoll_unit_test target name source libraries)
  add_executable(${target} ${source})
  target_link_libraries(${target} PRIVATE ${libraries} atoll_test GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${target})
  set_tests_properties(${name} PROPERTIES LABELS unit TIMEOUT 300
                       ENVIRONMENT "GTEST_BRIEF=1;${atoll_test_environment}")
  if(ATOLL_PRECOMPILE)
    list(GET libraries 0 library)
    get_target_property(libraries ${library} LINK_LIBRARIES)
    set(headers atoll_test_headers)
    if(torch IN_LIST libraries)
      set(headers atoll_torch_test_headers)
    endif()
    target_precompile_headers(${target} REUSE_FROM ${headers})
  endif()
endfunction()
