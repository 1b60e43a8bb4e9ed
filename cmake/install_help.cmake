# Run by cmake --install: the program itself writes its man page and completions.
set(share "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/share")
foreach(page "man;man/man1/atoll.1" "completion bash;bash-completion/completions/atoll"
             "completion zsh;zsh/site-functions/_atoll" "completion fish;fish/vendor_completions.d/atoll.fish")
  list(GET page 0 words)
  list(GET page 1 name)
  separate_arguments(words)
  cmake_path(GET name PARENT_PATH folder)
  file(MAKE_DIRECTORY ${share}/${folder})
  message(STATUS "Installing: ${share}/${name}")
  execute_process(COMMAND ${atoll_program} ${words} OUTPUT_FILE ${share}/${name} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
