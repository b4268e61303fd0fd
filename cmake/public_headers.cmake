# The public headers, such as <axle/core/tensor.h>, and <axle/axle.h>, which includes the headers
# that programs use most. They are copies in public/axle/ of the build folder, which
# write_public_headers.cmake updates when a header changes. The copies are installed.
#
# The copies include each other with <axle/...>, because the project that uses them may have its own
# folder core/ or data/.
#
# A header of a layer is public unless its first line begins with "// Private to", its name ends with
# -inl.h, or it is in kernels/cpu/ (headers that are compiled for each instruction set) or core/ops/
# (headers that only the ops use).

file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}
     kernels/*.h kernels/*.inl core/*.h nn/*.h optim/*.h data/*.h dist/*.h accel/*.h)
list(FILTER headers EXCLUDE REGEX "-inl\\.h$|^kernels/cpu/|^core/ops/")
list(APPEND headers core/version.h)
list(SORT headers)

set(public ${PROJECT_BINARY_DIR}/public)
list(JOIN headers "\n" lines)
file(CONFIGURE OUTPUT ${public}/headers.txt CONTENT "${lines}\n" @ONLY)
set(sources ${headers})
list(TRANSFORM sources PREPEND ${PROJECT_SOURCE_DIR}/)
list(TRANSFORM sources REPLACE ".*/core/version\\.h$"
     ${PROJECT_BINARY_DIR}/include/core/version.h)
# Declares the copies as outputs, so that sources that include them are compiled again in the same
# build.
set(copies ${public}/axle/axle.h)
foreach(header source IN ZIP_LISTS headers sources)
    file(STRINGS ${source} first_line LIMIT_COUNT 1)
    if(NOT first_line MATCHES "^// Private to ")
        list(APPEND copies ${public}/axle/${header})
    endif()
endforeach()
set(script ${PROJECT_SOURCE_DIR}/cmake/write_public_headers.cmake)
add_custom_command(
    OUTPUT ${public}/written
    BYPRODUCTS ${copies}
    COMMAND ${CMAKE_COMMAND} -DFROM=${PROJECT_SOURCE_DIR} -DGENERATED=${PROJECT_BINARY_DIR}/include
            -DTO=${public} -P ${script}
    COMMAND ${CMAKE_COMMAND} -E touch ${public}/written
    DEPENDS ${script} ${public}/headers.txt ${sources}
    COMMENT "Writing the public headers"
    VERBATIM)
add_custom_target(axle_public_headers ALL DEPENDS ${public}/written)
add_dependencies(axle axle_public_headers)

# The second include folder lets code move unchanged between this tree and other projects:
# "core/tensor.h" is the same file in both.
include(GNUInstallDirs)
target_include_directories(
    axle INTERFACE $<BUILD_INTERFACE:${public}> $<BUILD_INTERFACE:${public}/axle>
                   $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
                   $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/axle>)
