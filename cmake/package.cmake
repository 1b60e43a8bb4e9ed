# The Debian package (`make deb`): programs, man page, completions, systemd units, and LibTorch's libraries in /usr/lib/atoll, as
# Debian 12 has none of that version. What else they need dpkg-shlibdeps finds. `make install` leaves the bundle out: there the
# programs find LibTorch where it was built with.
set(bundle OFF)
if(ATOLL_TORCH AND NOT EXISTS ${ATOLL_TORCH_DIR}/lib/libtorch_cuda.so)
  set(bundle ON)
  set(libraries ${ATOLL_TORCH_DIR}/lib/libtorch_cpu.so ${ATOLL_TORCH_DIR}/lib/libc10.so)
  if(torch_gomp)
    list(APPEND libraries ${torch_gomp})
  endif()
  if(num_arrow_libraries EQUAL 2)  # Of PyPI pyarrow's wheel, as atoll-tables was linked with.
    list(APPEND libraries ${arrow_libraries})
  endif()
  install(FILES ${libraries} DESTINATION lib/atoll COMPONENT package EXCLUDE_FROM_ALL)
  # Both licences ask that their text goes with the libraries.
  file(GLOB torch_licences ${ATOLL_TORCH_DIR}/../torch-*.dist-info/licenses/LICENSE ${ATOLL_TORCH_DIR}/LICENSE)
  if(torch_licences)
    list(GET torch_licences 0 torch_licence)
    install(FILES ${torch_licence} DESTINATION share/doc/atoll RENAME LICENSE.LibTorch COMPONENT package EXCLUDE_FROM_ALL)
  endif()
  file(GLOB arrow_licences ${ATOLL_PYARROW_DIR}/../pyarrow-*.dist-info/licenses/LICENSE.txt)
  if(arrow_licences AND num_arrow_libraries EQUAL 2)
    list(GET arrow_licences 0 arrow_licence)
    install(FILES ${arrow_licence} DESTINATION share/doc/atoll RENAME LICENSE.Arrow COMPONENT package EXCLUDE_FROM_ALL)
  endif()
endif()
install(FILES LICENSE DESTINATION share/doc/atoll RENAME copyright COMPONENT package EXCLUDE_FROM_ALL)
install(FILES deploy/systemd/atoll-coordinator@.service deploy/systemd/atoll-island@.service deploy/systemd/atoll-relay@.service
        DESTINATION lib/systemd/system COMPONENT package EXCLUDE_FROM_ALL)
install(FILES deploy/systemd/atoll.sysusers DESTINATION lib/sysusers.d RENAME atoll.conf COMPONENT package EXCLUDE_FROM_ALL)
install(FILES deploy/systemd/atoll.tmpfiles DESTINATION lib/tmpfiles.d RENAME atoll.conf COMPONENT package EXCLUDE_FROM_ALL)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME atoll)
set(CPACK_PACKAGE_VENDOR Atoll)
set(CPACK_PACKAGE_CONTACT "The Atoll maintainers <maintainers@atoll.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "training of language models on machines that are far apart")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
    "Islands of fast machines train on their own and agree over ordinary, slow,\n unreliable internet: now and then, in 4 bits, beside training.")
set(CPACK_PACKAGE_FILE_NAME atoll)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_INSTALL_CMAKE_PROJECTS "${PROJECT_BINARY_DIR};atoll;Unspecified;/" "${PROJECT_BINARY_DIR};atoll;package;/")
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/package_files.cmake)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_COMPRESSION_TYPE zstd)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS OFF)  # package_files.cmake asks.
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/deploy/debian/postinst)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
include(CPack)
