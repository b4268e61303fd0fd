# add_test_suites(program PREFIX prefix [FILTER patterns] [LABELS label] [ENVIRONMENT ...]
#                 [ENVIRONMENT_MODIFICATION ...] [TIMEOUT seconds] [CASES count])
#
# Registers one ctest test, `prefix.Suite`, for each suite of a GoogleTest program. A suite of more
# than CASES (default: 60) cases becomes several tests, `prefix.Suite.1`, `prefix.Suite.2`, ...
# Cases are not separate tests, because starting a process takes longer than most cases. FILTER is a
# pattern for --gtest_filter; the default is all cases. TIMEOUT is the limit for each test (default:
# 900). The list of suites is read from the program when ctest starts, as
# gtest_discover_tests(DISCOVERY_MODE PRE_TEST) does.
#
# tools/count_tests counts the cases in the output of the programs.
function(add_test_suites program)
    cmake_parse_arguments(PARSE_ARGV 1 suites "" "PREFIX;FILTER;LABELS;TIMEOUT;CASES"
                          "ENVIRONMENT;ENVIRONMENT_MODIFICATION")
    if(NOT suites_TIMEOUT)
        set(suites_TIMEOUT 900)
    endif()
    if(NOT suites_FILTER)
        set(suites_FILTER *)
    endif()
    if(NOT suites_CASES)
        set(suites_CASES 60)
    endif()
    set(properties TIMEOUT ${suites_TIMEOUT})
    foreach(property LABELS ENVIRONMENT ENVIRONMENT_MODIFICATION)
        if(suites_${property})
            string(APPEND properties " ${property} \"${suites_${property}}\"")
        endif()
    endforeach()
    set(script ${CMAKE_CURRENT_BINARY_DIR}/suites/${suites_PREFIX}${suites_LABELS}.cmake)
    file(GENERATE OUTPUT ${script} CONTENT
"set(program [==[$<TARGET_FILE:${program}>]==])
set(emulator [==[${CMAKE_CROSSCOMPILING_EMULATOR}]==])
set(prefix ${suites_PREFIX})
set(filter [==[${suites_FILTER}]==])
set(most_cases ${suites_CASES})
set(properties [==[${properties}]==])
include([==[${PROJECT_SOURCE_DIR}/cmake/list_test_suites.cmake]==])
")
    set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${script})
endfunction()

# keep_suites(name folder): removes the sources without a suite that matches AXLE_TEST_SUITES from the
# list `name`. Keeps all sources if the option is empty.
function(keep_suites name folder)
    if(NOT AXLE_TEST_SUITES)
        return()
    endif()
    set(kept)
    foreach(source IN LISTS ${name})
        file(STRINGS ${source} heads REGEX "^(TYPED_)?TEST(_F|_P)?\\([A-Za-z0-9_]+,")
        foreach(head IN LISTS heads)
            string(REGEX REPLACE "^[A-Z_]+\\(([A-Za-z0-9_]+),.*" "${folder}.\\1" suite "${head}")
            if(suite MATCHES "${AXLE_TEST_SUITES}")
                list(APPEND kept ${source})
                break()
            endif()
        endforeach()
    endforeach()
    set(${name} ${kept} PARENT_SCOPE)
endfunction()
