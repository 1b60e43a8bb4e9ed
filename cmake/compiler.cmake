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
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  add_compile_options(-Wthread-safety -Werror=thread-safety)  # The marks of atoll/base/mutex.h.
endif()
if(ATOLL_SANITIZE)
  add_compile_options(-fsanitize=${ATOLL_SANITIZE} -fno-sanitize-recover=all -g1)
  add_link_options(-fsanitize=${ATOLL_SANITIZE})
endif()

find_program(ccache_program ccache)
if(ccache_program)  # What one clone has compiled another one need not; precompiled headers are kept too.
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros ${ccache_program})
endif()
# Several times as fast as the usual linker. Not mold: Debian 12's (1.10) now and then never ends, and
# now and then makes a program that cannot start (its issue 1151).
find_program(lld_program ld.lld)
if(lld_program)
  add_link_options(-fuse-ld=lld)
endif()
