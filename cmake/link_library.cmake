# link_library(target library package [OPTIONAL]): makes an imported target link a library for which
# CMake has no module. Both the build and the installed package use it, because a library must be
# found on the machine where it is linked. With OPTIONAL, a missing library is not an error.
#
# Programs link the archive, if there is one, so that they run without the shared library installed.
# Shared libraries link the shared library, because the archives of distributions are not position
# independent.
function(link_library target library package)
    string(MAKE_C_IDENTIFIER ${library} name)
    string(TOUPPER AXLE_LIBRARY_${name} shared)
    find_library(${shared} ${library})
    find_library(${shared}_ARCHIVE lib${library}.a)
    mark_as_advanced(${shared} ${shared}_ARCHIVE)
    if(NOT ${shared})
        if("OPTIONAL" IN_LIST ARGN)
            return()
        endif()
        message(FATAL_ERROR "axle: ${library} not found: install ${package}")
    endif()
    set(linked ${${shared}})
    if(${shared}_ARCHIVE)
        set(program $<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>)
        set(linked $<IF:${program},${${shared}_ARCHIVE},${${shared}}>)
    endif()
    target_link_libraries(${target} INTERFACE ${linked})
endfunction()
