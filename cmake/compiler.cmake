# Flags every target shares.
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
# Bits must not depend on whether a compiler fuses a multiply and an add: digests of the global
# parameters are compared between machines.
add_compile_options(-ffp-contract=off -fno-omit-frame-pointer -Wall -Wextra -Wpedantic -Wshadow
                    -Wno-missing-field-initializers)  # Designated initialisers leave defaults out.
if(ATOLL_WERROR)
  add_compile_options(-Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # GCC 12 reports false positives of these in the standard library's own headers.
  add_compile_options(-Wno-restrict -Wno-stringop-overflow -Wno-array-bounds -Wno-maybe-uninitialized
                      -Wno-dangling-pointer -Wno-stringop-overread)
endif()
if(ATOLL_SANITIZE)
  add_compile_options(-fsanitize=${ATOLL_SANITIZE} -fno-sanitize-recover=all -g1)
  add_link_options(-fsanitize=${ATOLL_SANITIZE})
endif()

find_program(ccache_program ccache)
if(ccache_program)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${ccache_program})
endif()
find_program(mold_program mold)
if(mold_program)
  add_link_options(-fuse-ld=mold)
  # Before 2.4.0 mold may begin PT_GNU_RELRO in an unmapped page (its issue 1151): now and then, as
  # sizes fall, a program would not start at all.
  execute_process(COMMAND ${mold_program} --version OUTPUT_VARIABLE mold_version)
  string(REGEX MATCH "[0-9]+\\.[0-9]+" mold_version "${mold_version}")
  if(mold_version VERSION_LESS 2.4)
    add_link_options(-Wl,-z,norelro)
  endif()
endif()
