# libaxle_gloo.so: Gloo behind a C interface, opened by programs that train with other processes on
# CPUs. It alone links Gloo, and nothing links it. AXLE_GLOO says whether it is built.

set(gloo OFF)
if(AXLE_GLOO)
    find_path(AXLE_GLOO_INCLUDE_DIR gloo/context.h)
    find_library(AXLE_GLOO_LIBRARY gloo)
    mark_as_advanced(AXLE_GLOO_INCLUDE_DIR AXLE_GLOO_LIBRARY)
    if(AXLE_GLOO_INCLUDE_DIR AND AXLE_GLOO_LIBRARY)
        set(gloo ON)
    elseif(AXLE_GLOO STREQUAL "AUTO")
        message(STATUS "axle: no libaxle_gloo.so, for Gloo is absent (libgloo-dev)")
    else()
        message(FATAL_ERROR "axle: AXLE_GLOO=${AXLE_GLOO}, but there is no Gloo: install "
                            "libgloo-dev, or run tools/install_dependencies")
    endif()
endif()

# After the layers: it shares a header with dist.
function(gloo_module)
    if(NOT gloo)
        return()
    endif()
    file(GLOB sources CONFIGURE_DEPENDS dist/gloo/*.cpp)
    add_library(axle_gloo MODULE ${sources})
    target_include_directories(axle_gloo SYSTEM PRIVATE ${AXLE_GLOO_INCLUDE_DIR})
    target_include_directories(axle_gloo PRIVATE ${PROJECT_SOURCE_DIR})
    target_link_libraries(axle_gloo PRIVATE ${AXLE_GLOO_LIBRARY} Threads::Threads)
    if(CMAKE_RUNTIME_OUTPUT_DIRECTORY)  # beside the programs
        set_target_properties(
            axle_gloo PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
    endif()
endfunction()

# For a program, so that the module lies beside it when it runs.
function(opens_gloo program)
    if(gloo)
        add_dependencies(${program} axle_gloo)
    endif()
endfunction()
