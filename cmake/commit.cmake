# cmake -DSOURCE=DIR -DFILE=commit.cpp -P commit.cmake: writes the file if the commit is another than it says.
set(commit "unknown")
if(EXISTS ${SOURCE}/.git)
  execute_process(COMMAND git describe --always --dirty=\ and\ changes --abbrev=12 --exclude *
                  WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE said RESULT_VARIABLE result
                  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(result EQUAL 0)
    set(commit ${said})
  endif()
endif()
file(CONFIGURE OUTPUT ${FILE} CONTENT [[
#include "atoll/cli/commit.h"

namespace atl::cli {

const char* const kCommit = "@commit@";

}  // namespace atl::cli
]] @ONLY)
