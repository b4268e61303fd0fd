# Builds one engine library for each installed implementation of MPI, because their binary
# interfaces differ. The libraries are libaxle_mpi_openmpi.so, and libaxle_mpi_mpich.so for MPICH
# and compatible implementations, such as Intel MPI and Cray MPICH. A program opens one of them on
# request. Only these libraries link MPI, and no program links them. AXLE_MPI enables them.
set(AXLE_MPI_COMPILERS "mpicc.openmpi;mpicc.mpich;mpicc" CACHE STRING
    "The compiler wrappers of MPI; the first one of each implementation is used")

# mpi_engine(wrapper): reads the flags that a compiler wrapper prints with -show, and adds the
# engine library of the wrapper's implementation of MPI. If it cannot add the library, sets
# `missing` to the reason.
function(mpi_engine wrapper)
    set(missing "${wrapper} is not installed" PARENT_SCOPE)
    string(MAKE_C_IDENTIFIER AXLE_MPI_${wrapper} program)
    find_program(${program} ${wrapper})
    mark_as_advanced(${program})
    if(NOT ${program})
        return()
    endif()
    execute_process(COMMAND ${${program}} -show OUTPUT_VARIABLE command RESULT_VARIABLE failed
                    ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(failed)
        set(missing "'${wrapper} -show' failed" PARENT_SCOPE)
        return()
    endif()
    separate_arguments(flags UNIX_COMMAND "${command}")
    set(includes ${flags})
    list(FILTER includes INCLUDE REGEX "^-I")
    set(links ${flags})
    list(FILTER links INCLUDE REGEX "^(-L|-l|-Wl,|-pthread)")
    # The macros of mpi.h name the implementation.
    file(WRITE ${PROJECT_BINARY_DIR}/mpi/mpi.cpp "#include <mpi.h>\n")
    execute_process(
        COMMAND ${CMAKE_CXX_COMPILER} -E -dM -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX ${includes}
                ${PROJECT_BINARY_DIR}/mpi/mpi.cpp
        OUTPUT_VARIABLE macros RESULT_VARIABLE failed ERROR_QUIET)
    if(failed)
        set(missing
            "the flags of ${wrapper} give no valid mpi.h: install libopenmpi-dev or libmpich-dev"
            PARENT_SCOPE)
        return()
    endif()
    if(NOT macros MATCHES "#define MPI_VERSION ([0-9]+)" OR CMAKE_MATCH_1 LESS 3)
        set(missing "mpi.h of ${wrapper} does not define an MPI_VERSION of at least 3" PARENT_SCOPE)
        return()
    endif()
    if(macros MATCHES "#define OPEN_MPI ")
        set(name openmpi)
    elseif(macros MATCHES "#define (MPICH_VERSION|MPICH_NAME|I_MPI_VERSION|MVAPICH2_VERSION) ")
        set(name mpich)
    else()
        set(missing "the MPI of ${wrapper} is neither Open MPI nor compatible with MPICH"
            PARENT_SCOPE)
        return()
    endif()
    set(missing "" PARENT_SCOPE)
    if(TARGET axle_mpi_${name})
        return()
    endif()
    add_library(axle_mpi_${name} MODULE dist/mpi/plugin/plugin.cpp)
    list(TRANSFORM includes REPLACE "^-I" "")
    target_include_directories(axle_mpi_${name} SYSTEM PRIVATE ${includes})
    target_include_directories(axle_mpi_${name} PRIVATE ${PROJECT_SOURCE_DIR})
    target_link_libraries(axle_mpi_${name} PRIVATE ${links})
    if(CMAKE_RUNTIME_OUTPUT_DIRECTORY)  # next to the programs
        set_target_properties(
            axle_mpi_${name}
            PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
    endif()
    message(STATUS "axle: libaxle_mpi_${name}.so with ${wrapper}")
    set(mpi_engines ${mpi_engines} axle_mpi_${name} PARENT_SCOPE)
endfunction()

# mpi_engines(): adds the engine libraries, and sets `mpi_engines` to their targets. AUTO adds no
# libraries in builds with sanitizers, because installed MPI libraries are built without sanitizers.
macro(mpi_engines)
    set(mpi_engines "")
    if(NOT AXLE_MPI MATCHES "^(AUTO|ON|OFF)$")
        message(FATAL_ERROR "AXLE_MPI=${AXLE_MPI}: expected AUTO, ON or OFF")
    endif()
    if(AXLE_MPI STREQUAL "ON" OR (AXLE_MPI STREQUAL "AUTO" AND NOT AXLE_SANITIZE))
        set(reasons "")
        foreach(wrapper IN LISTS AXLE_MPI_COMPILERS)
            mpi_engine(${wrapper})
            if(missing)
                list(APPEND reasons "${missing}")
            endif()
        endforeach()
        list(JOIN reasons "; " reasons)
        if(NOT mpi_engines AND AXLE_MPI STREQUAL "ON")
            message(FATAL_ERROR "AXLE_MPI=ON, but no MPI can be used: ${reasons}")
        elseif(NOT mpi_engines)
            message(STATUS "axle: no engine library for MPI: ${reasons}")
        endif()
    endif()
endmacro()
