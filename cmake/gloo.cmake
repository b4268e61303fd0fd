# Builds libaxle_gloo.so: Gloo with a C interface. Programs open it to communicate between processes
# on CPUs. Only this module links Gloo, and nothing links the module. AXLE_GLOO enables it.

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

# An installed program searches the installed module in this folder, relative to the prefix.
include(GNUInstallDirs)
set_source_files_properties(
    dist/transport/gloo.cpp
    PROPERTIES COMPILE_DEFINITIONS "AXLE_LIBRARY_FOLDER=\"${CMAKE_INSTALL_LIBDIR}\"")

# gloo_module(): builds the module. Called after the layers, because it uses a header of dist.
function(gloo_module)
    if(NOT gloo)
        return()
    endif()
    file(GLOB sources CONFIGURE_DEPENDS dist/gloo/*.cpp)
    add_library(axle_gloo MODULE ${sources})
    target_include_directories(axle_gloo SYSTEM PRIVATE ${AXLE_GLOO_INCLUDE_DIR})
    target_include_directories(axle_gloo PRIVATE ${PROJECT_SOURCE_DIR})
    target_link_libraries(axle_gloo PRIVATE ${AXLE_GLOO_LIBRARY} Threads::Threads)
    if(CMAKE_RUNTIME_OUTPUT_DIRECTORY)  # next to the programs
        set_target_properties(
            axle_gloo PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
    endif()
endfunction()

# opens_gloo(program): makes a program depend on the module, and finds the module at run time.
function(opens_gloo program)
    if(gloo)
        add_dependencies(${program} axle_gloo)
    endif()
endfunction()
